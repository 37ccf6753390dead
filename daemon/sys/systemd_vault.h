// FdVault in systemd's file descriptor store.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "daemon/ports/fd_vault.h"
#include "daemon/sys/vault_names.h"

namespace cco::memd {

/// What put() sends waits in systemd's socket, and systemd reads that before it looks at the end of
/// its sender. systemd answers nothing, so its limit (FileDescriptorStoreMax=) is kept here. It
/// holds one open file once only, under the first of its names.
class SystemdVault final : public FdVault {
 public:
  /// FAILED_PRECONDITION: systemd did not start this process, or its descriptor store is off, or of
  /// unknown size; the message says what the unit lacks. INVALID_ARGUMENT: $LISTEN_FDS and what
  /// belongs to it contradict each other.
  static absl::StatusOr<std::unique_ptr<SystemdVault>> open();

  absl::StatusOr<std::map<std::string, UniqueFd>> take_over() override;
  absl::Status put(const std::string& name, BorrowedFd fd) override;
  absl::Status remove(const std::string& name) override;

  /// Listening sockets that systemd opened for us, by FileDescriptorName=. They are no part of the
  /// vault. Once.
  std::multimap<std::string, UniqueFd> take_sockets() { return std::move(sockets_); }

 private:
  explicit SystemdVault(uint64_t limit) : names_(limit) {}
  absl::Status receive_fds();

  VaultNames names_;
  std::map<std::string, UniqueFd> kept_;
  std::multimap<std::string, UniqueFd> sockets_;
};

}  // namespace cco::memd
