#include "client/src/connection.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cco/memd/v1/error.pb.h"
#include "client/base/status_macros.h"

namespace cco {
namespace {

constexpr char kErrorDetailUrl[] = "type.googleapis.com/cco.memd.v1.ErrorDetail";
constexpr std::chrono::milliseconds kGrace{1000};
constexpr int kMaxAnswerBytes = 256 << 20;  // ExplainGroup of 1024 ranks is the largest.

absl::StatusCode known_code(int code) {
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

uint64_t inode_of(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

void close_if_same(int fd, uint64_t inode) {
  if (fd >= 0 && inode != 0 && inode_of(fd) == inode) ::close(fd);
}

}  // namespace

Connection::~Connection() = default;

absl::StatusOr<std::string> Connection::default_socket_path() {
  const char* path = std::getenv("CCO_SOCKET");
  if (path == nullptr) return std::string("/run/cco/memd.sock");
  if (*path == '\0') {
    return absl::InvalidArgumentError(
        "CCO_SOCKET is set and empty; set it to the socket of cco-memd, or unset it for "
        "/run/cco/memd.sock");
  }
  if (absl::Status fits = check_socket_path(path); !fits.ok()) {
    return with_context("CCO_SOCKET", fits);
  }
  return std::string(path);
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::open(const std::string& socket_path,
                                                             std::chrono::milliseconds timeout) {
  CCO_RETURN_IF_ERROR(check_not_forked());
  CCO_RETURN_IF_ERROR(check_socket_path(socket_path));
  const Deadline deadline(timeout);
  std::unique_ptr<Connection> connection(new Connection);
  connection->socket_path_ = socket_path;
  connection->timeout_ = timeout;
  CCO_RETURN_IF_ERROR(connection->open_fd_channel(deadline));
  CCO_RETURN_IF_ERROR(connection->open_rpc_channel(deadline));
  return connection;
}

absl::Status Connection::open_fd_channel(const Deadline& deadline) {
  CCO_ASSIGN_OR_RETURN(fd_channel_,
                       connect_unix(fd_socket_path(socket_path_), SOCK_SEQPACKET, deadline.left()));
  CCO_ASSIGN_OR_RETURN(const FdFrame welcome,
                       exchange(FdFrameType::kHello, "", nullptr, FdFrameType::kWelcome, deadline));
  if (welcome.payload.size() != kSecretBytes + sizeof incarnation_) {
    return absl::InternalError(absl::StrCat(
        "the welcome of the daemon at ", fd_socket_path(socket_path_), " has ",
        welcome.payload.size(), " bytes instead of ", kSecretBytes + sizeof incarnation_,
        ": it is no cco-memd, or one of another version"));
  }
  token_ = welcome.payload.substr(0, kSecretBytes);
  std::memcpy(&incarnation_, welcome.payload.data() + kSecretBytes, sizeof incarnation_);
  return absl::OkStatus();
}

absl::Status Connection::open_rpc_channel(const Deadline& deadline) {
  CCO_ASSIGN_OR_RETURN(UniqueFd socket, connect_unix(socket_path_, SOCK_STREAM, deadline.left()));
  CCO_RETURN_IF_ERROR(arm_fork_guard());
  rpc_fd_ = socket.get();
  rpc_inode_ = inode_of(rpc_fd_);
  fork_registration_ = std::make_unique<ForkRegistration>(this);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  stub_ = v1::MemdService::NewStub(
      grpc::CreateCustomInsecureChannelFromFd("cco-memd", socket.release(), arguments));
  return absl::OkStatus();
}

void Connection::prepare(grpc::ClientContext* context, std::chrono::milliseconds timeout) const {
  context->AddMetadata("cco-session-bin", token_);
  context->set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_millis((timeout + kGrace).count(), GPR_TIMESPAN)));
}

absl::Status Connection::finish(const grpc::Status& status,
                                std::chrono::milliseconds timeout) const {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(known_code(status.error_code()), status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kErrorDetailUrl, absl::Cord(status.error_details()));
  }
  if (answered_by_daemon(result)) return result;
  if (absl::IsDeadlineExceeded(result)) return not_answered(timeout + kGrace);
  if (absl::IsUnavailable(result)) {
    return absl::UnavailableError(
        absl::StrCat("cco-memd at ", socket_path_, " has gone (", status.error_message(),
                     "). Is it restarting? Make a new client once it runs"));
  }
  return absl::Status(result.code(), absl::StrCat("the call to cco-memd at ", socket_path_,
                                                  " failed: ", status.error_message()));
}

absl::Status Connection::not_answered(std::chrono::milliseconds timeout) const {
  return absl::DeadlineExceededError(absl::StrCat("cco-memd at ", socket_path_,
                                                  " has not answered within ", timeout.count(),
                                                  " ms. Is cco-memd stopped or overloaded?"));
}

absl::StatusOr<FdFrame> Connection::exchange(FdFrameType type, const std::string& payload,
                                             const UniqueFd* fd, FdFrameType expected,
                                             const Deadline& deadline) {
  const Gate::Pass pass = fd_gate_.enter(deadline);
  if (!pass) return not_answered(timeout_);
  const absl::Status sent = send_frame(fd_channel_, type, absl::StatusCode::kOk, payload, fd);
  if (!sent.ok()) return last_words(sent);
  ++awaited_answers_;
  for (;;) {
    absl::Status ready = wait_readable(fd_channel_, deadline.left());
    if (absl::IsDeadlineExceeded(ready)) return not_answered(timeout_);
    CCO_RETURN_IF_ERROR(ready);
    absl::StatusOr<FdFrame> frame = receive_frame(fd_channel_);
    if (absl::IsUnavailable(frame.status())) {
      return absl::UnavailableError(
          absl::StrCat("cco-memd at ", socket_path_, " has gone, or has ended this session (",
                       std::string(frame.status().message()), "). Make a new client once it runs"));
    }
    if (--awaited_answers_ > 0) continue;
    CCO_RETURN_IF_ERROR(frame.status());
    if (frame->code != absl::StatusCode::kOk) {
      return absl::Status(known_code(static_cast<int>(frame->code)), frame->payload);
    }
    if (frame->type != expected) {
      return absl::InternalError(
          absl::StrCat("the daemon at ", fd_socket_path(socket_path_), " answered with frame type ",
                       static_cast<int>(frame->type), " instead of ", static_cast<int>(expected),
                       ": it is no cco-memd, or one of another version"));
    }
    return frame;
  }
}

absl::Status Connection::last_words(const absl::Status& sent) {
  while (wait_readable(fd_channel_, std::chrono::milliseconds(0)).ok()) {
    const absl::StatusOr<FdFrame> frame = receive_frame(fd_channel_);
    if (!frame.ok()) break;
    if (awaited_answers_ > 0) {
      --awaited_answers_;
    } else if (frame->code != absl::StatusCode::kOk) {
      return absl::Status(known_code(static_cast<int>(frame->code)), frame->payload);
    }
  }
  if (!absl::IsUnavailable(sent)) return sent;
  return absl::UnavailableError(absl::StrCat("cco-memd at ", socket_path_, " takes no message (",
                                             std::string(sent.message()),
                                             "). It has gone, or is stopped"));
}

absl::StatusOr<UniqueFd> Connection::redeem(const std::string& ticket) {
  CCO_ASSIGN_OR_RETURN(FdFrame grant, exchange(FdFrameType::kRedeem, ticket, nullptr,
                                               FdFrameType::kGrant, Deadline(timeout_)));
  if (!grant.fd) {
    return absl::InternalError(
        absl::StrCat("the daemon at ", fd_socket_path(socket_path_), " granted no descriptor"));
  }
  return std::move(grant.fd);
}

absl::StatusOr<std::string> Connection::offer(const UniqueFd& fd) {
  CCO_ASSIGN_OR_RETURN(FdFrame offered, exchange(FdFrameType::kOffer, "", &fd,
                                                 FdFrameType::kOffered, Deadline(timeout_)));
  return std::move(offered.payload);
}

void Connection::abandon() noexcept {
  // In a child only the forking thread exists: nobody else is inside fd_gate_.
  if (fd_channel_) ::close(fd_channel_.release());
  close_if_same(rpc_fd_, rpc_inode_);
}

int error_rank(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorDetailUrl);
  v1::ErrorDetail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return -1;
  return static_cast<int>(detail.rank_plus_one()) - 1;
}

absl::Status with_error_rank(absl::Status status, int rank) {
  v1::ErrorDetail detail;
  detail.set_rank_plus_one(static_cast<uint32_t>(rank + 1));
  status.SetPayload(kErrorDetailUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

absl::Status with_context(const std::string& context, const absl::Status& status) {
  absl::Status result(status.code(), absl::StrCat(context, ": ", std::string(status.message())));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

bool answered_by_daemon(const absl::Status& status) {
  if (status.GetPayload(kErrorDetailUrl).has_value()) return true;
  // With these gRPC itself ends a call. The daemon uses the first two only with a detail that is
  // not empty, and the others not at all.
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return false;
    default:
      return true;
  }
}

std::string new_request_id() { return random_bytes(16); }

}  // namespace cco
