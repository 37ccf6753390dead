// A process that has a vault, as a daemon does, and does with it what a test says. It can be
// killed.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "tests/support/process.h"

namespace cco::test {

class VaultActor {
 public:
  struct Options {
    std::string state_dir;  ///< For the keeper; empty: systemd's vault.
    std::string keeper_program;
    std::chrono::milliseconds linger = std::chrono::seconds(60);
    std::chrono::milliseconds answer_timeout = std::chrono::seconds(20);
    std::chrono::milliseconds send_timeout = std::chrono::seconds(20);
    uint64_t descriptor_limit = 0;  ///< RLIMIT_NOFILE, hard; 0: as this process.
    std::map<std::string, std::string> environment;
  };

  /// A process that has no vault yet.
  explicit VaultActor(const Options& options);

  /// Before open(): a descriptor that systemd hands to the next one that it starts.
  void give(const std::string& name, BorrowedFd fd);
  /// Opens the vault. In two steps: what happens between them happens while it tries.
  void begin_open();
  absl::Status end_open();
  absl::Status open();

  absl::StatusOr<std::map<std::string, UniqueFd>> take_over();
  absl::Status put(const std::string& name, BorrowedFd fd);
  absl::Status remove(const std::string& name);
  /// Forgets, not removes, what it put as `name`: recover() does not name it.
  absl::Status forget(const std::string& name);
  absl::Status hold_for(std::chrono::milliseconds keep);
  absl::Status wait_until_broken();
  absl::Status recover();
  /// How many of what it was given are listening sockets.
  int socket_count();

  /// Puts memfds named "<prefix>-0", "<prefix>-1", ..., each with its name in it, up to `count`.
  void begin_flood(const std::string& prefix, int count);
  /// Waits for the next one that was put. NOT_FOUND: no more comes.
  absl::StatusOr<std::string> next_of_flood();

  pid_t pid() const { return process_->pid(); }
  /// By SIGKILL; returns when it is gone.
  void kill();

 private:
  void send(const std::string& command, const BorrowedFd* fd = nullptr);
  absl::Status ask(const std::string& command, const BorrowedFd* fd = nullptr);

  UniqueFd channel_;
  std::unique_ptr<Process> process_;
};

/// For main(): plays an actor if the arguments say so.
bool run_as_vault_actor(int argc, char** argv);

/// A memfd that holds `text`, and that text.
UniqueFd make_memfd(const std::string& text);
std::string read_text(BorrowedFd fd);
bool is_same_file(BorrowedFd a, BorrowedFd b);

}  // namespace cco::test
