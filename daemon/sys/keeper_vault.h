// FdVault in a process of its own, daemon/keeper: for daemons that systemd does not start.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "client/base/fd_frame.h"
#include "daemon/ports/fd_vault.h"
#include "daemon/sys/vault_names.h"

namespace cco::memd {

/// A put descriptor is in the keeper's socket when put() returns, and the keeper reads what a dead
/// daemon left there; so no answer is needed. If the keeper is the one that dies, broken() tells
/// it, and recover() starts another and puts everything again.
class KeeperVault final : public FdVault {
 public:
  struct Options {
    std::string state_dir;  ///< Where keeper.sock and keeper.lock are. The lock lives as it does.
    std::string program;    ///< See find_keeper_program().
    /// How long a keeper holds on when no daemon is there and every session's process has exited,
    /// at least; hold_for() may say longer.
    std::chrono::milliseconds linger = std::chrono::seconds(60);
    /// How long open() and take_over() wait for a keeper that is silent.
    std::chrono::milliseconds answer_timeout = std::chrono::seconds(5);
    /// The same for recover(), and how long put() and remove() wait for room in the socket, once,
    /// until there is some. Short: the event loop waits meanwhile, and with it whoever is to learn
    /// that a peer has died.
    std::chrono::milliseconds recover_timeout{200};
    std::chrono::milliseconds send_timeout{50};
  };

  /// Connects to the keeper of `state_dir`, or starts one. UNAVAILABLE: it does not answer, or
  /// serves another daemon, still after `answer_timeout`. FAILED_PRECONDITION: it cannot be
  /// started. PERMISSION_DENIED: it is another user's.
  static absl::StatusOr<std::unique_ptr<KeeperVault>> open(const Options& options);

  absl::StatusOr<std::map<std::string, UniqueFd>> take_over() override;
  absl::Status put(const std::string& name, BorrowedFd fd) override;
  absl::Status remove(const std::string& name) override;
  absl::Status hold_for(std::chrono::milliseconds keep) override;
  uint64_t limit() const override { return names_.limit(); }

  /// Readable when recover() is needed. The same descriptor for life.
  BorrowedFd broken() const { return broken_; }

  /// Connects again, to a new keeper if the old one has died, and makes it hold exactly `all`.
  /// After an error broken() stays silent: call it again after a while.
  absl::Status recover(const std::map<std::string, BorrowedFd>& all);

 private:
  using Visitor = absl::FunctionRef<void(const std::string& name, UniqueFd fd)>;

  explicit KeeperVault(const Options& options) : options_(options) {}
  absl::Status connect();
  absl::StatusOr<UniqueFd> try_connect();
  absl::StatusOr<UniqueFd> start_keeper(const UniqueFd& lock);
  absl::Status spawn_keeper(const UniqueFd& listener, const UniqueFd& lock);
  absl::Status wait_ready(const UniqueFd& connection);
  absl::Status list(Visitor visit);
  absl::Status share_linger();
  bool has_room() const;
  absl::Status send(FdFrameType type, const std::string& name, std::optional<BorrowedFd> fd);
  std::string describe() const;

  Options options_;
  std::chrono::milliseconds answer_timeout_{};  // Of the call that runs.
  UniqueFd broken_;                             // An epoll that watches the connection of the day.
  UniqueFd connection_;
  bool is_full_ = false;  // The keeper did not read in time; then nothing waits for it.
  UniqueFd linger_;       // A file of the keeper, too: fd_frame.h. None until list().
  VaultNames names_;
};

/// Beside this process's program, or in ../libexec/cco from there. NOT_FOUND.
absl::StatusOr<std::string> find_keeper_program();

}  // namespace cco::memd
