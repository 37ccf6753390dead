// A child process that never outlives its parent.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco::ctl {

struct ChildOptions {
  std::vector<std::string> command;  ///< Looked up in $PATH.
  /// Beside this process's own variables; of the same name they win.
  std::vector<std::pair<std::string, std::string>> environment;
  BorrowedFd in{-1};  ///< -1: the parent's own.
  BorrowedFd out{-1};
  BorrowedFd err{-1};
  const sigset_t* signal_mask = nullptr;  ///< Null: the caller's.
};

/// Leads a process group of its own. Its end can be waited for without taking its number away, so
/// that signals to its group never reach somebody else's.
class Child {
 public:
  /// A command that cannot run ends with 127 and a line on its standard error. The child gets
  /// SIGKILL when the calling thread ends. RESOURCE_EXHAUSTED: no more processes or descriptors.
  static absl::StatusOr<Child> start(const ChildOptions& options);

  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
  /// Kills its process group and takes its exit status.
  ~Child();

  /// Readable once it has ended.
  BorrowedFd pidfd() const { return pidfd_; }
  pid_t pid() const { return pid_; }
  void signal_group(int number) const { ::kill(-pid_, number); }

  struct Exit {
    bool by_signal = false;
    int number = 0;  ///< Exit code or signal.
    int code() const { return by_signal ? 128 + number : number; }
  };
  /// Nothing while it runs. May be asked again.
  std::optional<Exit> exit() const;
  /// Waits for its end; nothing if that does not come in time.
  std::optional<Exit> wait(std::chrono::milliseconds timeout) const;

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

}  // namespace cco::ctl
