// The other process of a test: this binary again, told by messages what to do with its own driver.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco {

/// Environment variables that the peer gets on top of this process's.
using PeerEnvironment = std::map<std::string, std::string>;

class PeerProcess {
 public:
  explicit PeerProcess(const PeerEnvironment& environment = {});
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess() { kill(); }

  /// One command (see peer_process.cc) and its answer. DEADLINE_EXCEEDED after 30 seconds,
  /// UNAVAILABLE if the peer died. `send` goes with the command; an fd in the answer is kept for
  /// take_fd().
  absl::StatusOr<std::string> call(const std::string& command, const UniqueFd* send = nullptr);
  UniqueFd take_fd() { return std::move(received_); }

  /// SIGKILL, and waits until it is gone.
  void kill();

 private:
  pid_t pid_ = -1;
  UniqueFd socket_;
  UniqueFd received_;
};

/// The peer's main(): serves commands on fd 3 until the other side closes.
int run_peer();
inline constexpr char kPeerArgument[] = "--peer";

}  // namespace cco
