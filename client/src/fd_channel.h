// The fd channel of one session (fd_frame.h), with an end to every wait.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/base/fd_frame.h"
#include "client/base/unique.h"
#include "client/src/deadline.h"
#include "client/src/fork_guard.h"
#include "client/src/gate.h"

namespace cco {

/// Thread safe.
class FdChannel {
 public:
  /// `timeout` is what error texts say; waits end with the deadlines given.
  static absl::StatusOr<std::shared_ptr<FdChannel>> connect(const std::string& rpc_socket_path,
                                                            std::chrono::milliseconds timeout,
                                                            const Deadline& deadline);
  ~FdChannel();

  /// Opens a session (empty `token`) or resumes one. After DEADLINE_EXCEEDED a second hello goes on
  /// waiting for the answer to the first.
  absl::StatusOr<FdFrame> hello(const std::string& token, const Deadline& deadline);
  absl::StatusOr<FdFrame> exchange(FdFrameType type, const std::string& payload, const UniqueFd* fd,
                                   FdFrameType expected, const Deadline& deadline);

  /// False: the daemon has closed it, or has died.
  bool is_open() const;

 private:
  FdChannel(const std::string& rpc_socket_path, std::chrono::milliseconds timeout, UniqueFd socket)
      : rpc_socket_path_(rpc_socket_path),
        timeout_(timeout),
        socket_(std::move(socket)),
        fork_registration_(socket_) {}
  // All inside gate_.
  absl::Status send(FdFrameType type, const std::string& payload, const UniqueFd* fd);
  absl::StatusOr<FdFrame> receive(FdFrameType expected, const Deadline& deadline);
  /// When a frame could not be sent: a daemon that hung up may have said why.
  absl::Status last_words(const absl::Status& sent);
  absl::Status not_answered() const;

  const std::string rpc_socket_path_;
  const std::chrono::milliseconds timeout_;
  UniqueFd socket_;
  ForkRegistration fork_registration_;
  Gate gate_;  // One exchange at a time.
  // Inside gate_: requests without an answer so far. Answers come in order, so late ones are
  // skipped by number.
  int awaited_answers_ = 0;
};

/// A daemon that does not answer; `waited` is what the text says.
absl::Status not_answered_by(const std::string& rpc_socket_path, std::chrono::milliseconds waited);

/// A code from the wire: UNKNOWN if it is none of absl's.
absl::StatusCode known_code(int code);

}  // namespace cco
