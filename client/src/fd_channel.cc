#include "client/src/fd_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco {

absl::StatusCode known_code(int code) {
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

absl::Status not_answered_by(const std::string& rpc_socket_path, std::chrono::milliseconds waited) {
  return absl::DeadlineExceededError(absl::StrCat("cco-memd at ", rpc_socket_path,
                                                  " has not answered within ", waited.count(),
                                                  " ms. Is cco-memd stopped or overloaded?"));
}

absl::StatusOr<std::shared_ptr<FdChannel>> FdChannel::connect(const std::string& rpc_socket_path,
                                                              std::chrono::milliseconds timeout,
                                                              const Deadline& deadline) {
  CCO_ASSIGN_OR_RETURN(UniqueFd socket, connect_unix(fd_socket_path(rpc_socket_path),
                                                     SOCK_SEQPACKET, deadline.left()));
  return std::shared_ptr<FdChannel>(new FdChannel(rpc_socket_path, timeout, std::move(socket)));
}

FdChannel::~FdChannel() {
  // Closed already in a forked child; the number may mean something else by now.
  if (!check_not_forked().ok()) (void)socket_.release();
}

bool FdChannel::is_open() const {
  pollfd state{socket_.get(), POLLRDHUP, 0};
  int count;
  do {
    count = ::poll(&state, 1, 0);
  } while (count < 0 && errno == EINTR);
  return count == 0;
}

absl::StatusOr<FdFrame> FdChannel::hello(const std::string& token, const Deadline& deadline) {
  const Gate::Pass pass = gate_.enter(deadline);
  if (!pass) return not_answered();
  if (awaited_answers_ == 0) CCO_RETURN_IF_ERROR(send(FdFrameType::kHello, token, nullptr));
  return receive(FdFrameType::kWelcome, deadline);
}

absl::StatusOr<FdFrame> FdChannel::exchange(FdFrameType type, const std::string& payload,
                                            const UniqueFd* fd, FdFrameType expected,
                                            const Deadline& deadline) {
  const Gate::Pass pass = gate_.enter(deadline);
  if (!pass) return not_answered();
  CCO_RETURN_IF_ERROR(send(type, payload, fd));
  return receive(expected, deadline);
}

absl::Status FdChannel::send(FdFrameType type, const std::string& payload, const UniqueFd* fd) {
  const absl::Status sent = send_frame(socket_, type, absl::StatusCode::kOk, payload, fd);
  if (!sent.ok()) return last_words(sent);
  ++awaited_answers_;
  return absl::OkStatus();
}

absl::StatusOr<FdFrame> FdChannel::receive(FdFrameType expected, const Deadline& deadline) {
  for (;;) {
    absl::Status ready = wait_readable(socket_, deadline.left());
    if (absl::IsDeadlineExceeded(ready)) return not_answered();
    CCO_RETURN_IF_ERROR(ready);
    absl::StatusOr<FdFrame> frame = receive_frame(socket_);
    if (absl::IsUnavailable(frame.status())) {
      return absl::UnavailableError(
          absl::StrCat("cco-memd at ", rpc_socket_path_, " has gone, or has ended this session (",
                       std::string(frame.status().message()), "). Make a new client once it runs"));
    }
    if (--awaited_answers_ > 0) continue;
    CCO_RETURN_IF_ERROR(frame.status());
    if (frame->code != absl::StatusCode::kOk) {
      return absl::Status(known_code(static_cast<int>(frame->code)), frame->payload);
    }
    if (frame->type != expected) {
      return absl::InternalError(absl::StrCat(
          "the daemon at ", fd_socket_path(rpc_socket_path_), " answered with frame type ",
          static_cast<int>(frame->type), " instead of ", static_cast<int>(expected),
          ": it is no cco-memd, or one of another version"));
    }
    return frame;
  }
}

absl::Status FdChannel::last_words(const absl::Status& sent) {
  while (wait_readable(socket_, std::chrono::milliseconds(0)).ok()) {
    const absl::StatusOr<FdFrame> frame = receive_frame(socket_);
    if (!frame.ok()) break;
    if (awaited_answers_ > 0) {
      --awaited_answers_;
    } else if (frame->code != absl::StatusCode::kOk) {
      return absl::Status(known_code(static_cast<int>(frame->code)), frame->payload);
    }
  }
  if (!absl::IsUnavailable(sent)) return sent;
  return absl::UnavailableError(absl::StrCat("cco-memd at ", rpc_socket_path_,
                                             " takes no message (", std::string(sent.message()),
                                             "). It has gone, or is stopped"));
}

absl::Status FdChannel::not_answered() const { return not_answered_by(rpc_socket_path_, timeout_); }

}  // namespace cco
