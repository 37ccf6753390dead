// Holds file descriptors by name for one cco-memd after the other. The frames: base/fd_frame.h.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/base/fd_frame.h"
#include "client/base/unique.h"

struct pollfd;

namespace cco::memd {

class Keeper {
 public:
  /// Takes connections from `listener`, and holds up to `limit` descriptors. `linger` counts until
  /// a daemon says otherwise.
  Keeper(UniqueFd listener, uint64_t limit, std::chrono::milliseconds linger)
      : listener_(std::move(listener)), limit_(limit), linger_(linger) {}

  /// Returns when nobody is left who needs it: no daemon is connected, and it holds nothing, or
  /// each process whose pidfd it holds as "session-…" has exited and the lingering is over, after
  /// 30 days at most.
  void run();

 private:
  std::vector<pollfd> watch_sessions() const;
  std::chrono::milliseconds linger() const;
  void accept_daemon();
  absl::Status admit(const UniqueFd& connection, pid_t* pid) const;
  void serve_daemon();
  absl::Status serve(FdFrame frame);
  absl::Status list() const;

  UniqueFd listener_;
  uint64_t limit_;
  std::chrono::milliseconds linger_;
  UniqueFd daemon_;  // One at a time.
  pid_t daemon_pid_ = 0;
  std::map<std::string, UniqueFd> held_;
  UniqueFd told_linger_;  // What the daemon put as kLingerName.
};

}  // namespace cco::memd
