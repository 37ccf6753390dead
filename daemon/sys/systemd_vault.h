// FdVault in systemd's file descriptor store.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/ports/fd_vault.h"
#include "daemon/sys/vault_names.h"

namespace cco::memd {

/// What put() sends waits in systemd's socket, and systemd reads that before it looks at the end of
/// its sender. systemd answers nothing, so its limit (FileDescriptorStoreMax=) is kept here. It
/// holds one open file once only, under the first of its names: what it may have already is put as
/// a message in a socket of its own, which is looked at and never taken out.
class SystemdVault final : public FdVault {
 public:
  /// With what the store gave to this process. FAILED_PRECONDITION: systemd did not start it, or
  /// the store is off, or of unknown size; the message says what the unit lacks.
  static absl::StatusOr<std::unique_ptr<SystemdVault>> open(std::map<std::string, UniqueFd> kept);

  absl::StatusOr<std::map<std::string, UniqueFd>> take_over() override;
  absl::Status put(const std::string& name, BorrowedFd fd) override;
  absl::Status remove(const std::string& name) override;
  uint64_t limit() const override { return names_.limit(); }

 private:
  explicit SystemdVault(uint64_t limit) : names_(limit) {}

  using FileId =
      std::pair<uint64_t, uint64_t>;  // Device and inode: one, perhaps several open files.
  static FileId file_id(BorrowedFd fd);
  absl::Status send(const std::string& message, std::optional<BorrowedFd> fd);
  absl::Status put_once(const std::string& name, BorrowedFd fd);

  VaultNames names_;
  bool is_full_ = false;  // systemd did not read in time; then nothing waits for it.
  std::map<std::string, UniqueFd> kept_;
  std::map<std::string, FileId> stored_;  // By name; those in sockets are not there.
};

}  // namespace cco::memd
