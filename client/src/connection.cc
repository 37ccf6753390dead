#include "client/src/connection.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cco/memd/v1/error.pb.h"
#include "client/base/status_macros.h"
#include "client/src/fork_guard.h"

namespace cco {
namespace {

constexpr char kErrorDetailUrl[] = "type.googleapis.com/cco.memd.v1.ErrorDetail";
constexpr char kCut[] = "the connection has ended";
constexpr int kOpenTries = 5;  // Some 150 ms in all, if nobody else keeps the socket open.
constexpr size_t kWelcomeBytes = kSecretBytes + sizeof(uint64_t) + 1;

struct Welcome {
  std::string token;
  uint64_t incarnation = 0;
  bool resumable = false;
};

// The daemon's word that nothing but somebody's doing changes it.
bool is_final(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorDetailUrl);
  v1::ErrorDetail detail;
  return payload.has_value() && detail.ParseFromString(std::string(*payload)) &&
         detail.until_changed();
}

absl::StatusOr<Welcome> parse_welcome(const FdFrame& frame, const std::string& rpc_socket_path) {
  if (frame.payload.size() != kWelcomeBytes) {
    return absl::InternalError(
        absl::StrCat("the welcome of the daemon at ", fd_socket_path(rpc_socket_path), " has ",
                     frame.payload.size(), " bytes instead of ", kWelcomeBytes,
                     ": it is no cco-memd, or one of another version"));
  }
  Welcome welcome;
  welcome.token = frame.payload.substr(0, kSecretBytes);
  std::memcpy(&welcome.incarnation, frame.payload.data() + kSecretBytes,
              sizeof welcome.incarnation);
  welcome.resumable = frame.payload.back() != 0;
  return welcome;
}

}  // namespace

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
                                                             Milliseconds timeout) {
  CCO_RETURN_IF_ERROR(check_not_forked());
  CCO_RETURN_IF_ERROR(check_socket_path(socket_path));
  const Deadline deadline(timeout);
  Link link;
  absl::StatusOr<FdFrame> frame = absl::UnavailableError("");
  Backoff backoff;
  for (int tries = 0; absl::IsUnavailable(frame.status()) && tries < kOpenTries; ++tries) {
    if (tries > 0) backoff.pause(deadline);  // It stops, or has died: perhaps another comes.
    CCO_ASSIGN_OR_RETURN(link.fd, FdChannel::connect(socket_path, timeout, deadline));
    frame = link.fd->hello("", deadline);
  }
  CCO_RETURN_IF_ERROR(frame.status());
  CCO_ASSIGN_OR_RETURN(Welcome welcome, parse_welcome(*frame, socket_path));
  CCO_ASSIGN_OR_RETURN(link.rpc, RpcChannel::connect(socket_path, deadline));
  std::unique_ptr<Connection> connection(new Connection);
  connection->socket_path_ = socket_path;
  connection->timeout_ = timeout;
  connection->token_ = std::move(welcome.token);
  connection->incarnation_ = welcome.incarnation;
  connection->resumable_ = welcome.resumable;
  const std::lock_guard<std::mutex> lock(connection->mutex_);
  connection->link_ = std::move(link);
  return connection;
}

absl::StatusOr<Connection::Link> Connection::link() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ended_.ok()) return ended_;
  return link_;
}

absl::Status Connection::carry_out(Attempt attempt, Milliseconds timeout, Milliseconds away) {
  const Deadline deadline(timeout + kGrace);
  const Deadline back(std::min(away, timeout));  // The grace is for the last try's answer.
  Backoff backoff;
  Milliseconds left = timeout;
  for (;;) {
    CCO_ASSIGN_OR_RETURN(const Link used, link());
    grpc::ClientContext context;
    context.AddMetadata("cco-session-bin", token_);
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_millis(deadline.left().count(), GPR_TIMESPAN)));
    absl::Status outcome = finish(attempt(used.rpc->stub(), &context, left), timeout);
    if (!is_lost(outcome, used)) return outcome;
    if (!answered_by_daemon(outcome)) outcome = absl::UnavailableError(kCut);
    CCO_RETURN_IF_ERROR(come_back(used, outcome, &backoff, back));
    left = std::max(deadline.left() - kGrace, Milliseconds(1));
  }
}

absl::Status Connection::finish(const grpc::Status& status, Milliseconds timeout) const {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(known_code(status.error_code()), status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kErrorDetailUrl, absl::Cord(status.error_details()));
  }
  if (answered_by_daemon(result)) return result;
  if (absl::IsDeadlineExceeded(result)) return not_answered_by(socket_path_, timeout + kGrace);
  if (absl::IsUnavailable(result)) {
    return absl::UnavailableError(
        absl::StrCat("cco-memd at ", socket_path_, " has gone (", status.error_message(),
                     "). Is it restarting? Make a new client once it runs"));
  }
  return absl::Status(result.code(), absl::StrCat("the call to cco-memd at ", socket_path_,
                                                  " failed: ", status.error_message()));
}

absl::StatusOr<FdFrame> Connection::exchange(FdFrameType type, const std::string& payload,
                                             const UniqueFd* fd, FdFrameType expected) {
  const Deadline deadline(timeout_);
  CCO_ASSIGN_OR_RETURN(const Link used, link());
  absl::StatusOr<FdFrame> answer = used.fd->exchange(type, payload, fd, expected, deadline);
  if (answer.ok() || !resumable_ || used.fd->is_open()) return answer;
  // The next daemon knows no ticket and no offer of this one: see repeat_if_resumed().
  Backoff backoff;
  CCO_RETURN_IF_ERROR(come_back(used, absl::UnavailableError(kCut), &backoff, deadline));
  return answer;
}

absl::StatusOr<UniqueFd> Connection::redeem(const std::string& ticket) {
  CCO_ASSIGN_OR_RETURN(FdFrame grant,
                       exchange(FdFrameType::kRedeem, ticket, nullptr, FdFrameType::kGrant));
  if (!grant.fd) {
    return absl::InternalError(
        absl::StrCat("the daemon at ", fd_socket_path(socket_path_), " granted no descriptor"));
  }
  return std::move(grant.fd);
}

absl::StatusOr<std::string> Connection::offer(const UniqueFd& fd) {
  CCO_ASSIGN_OR_RETURN(FdFrame offered,
                       exchange(FdFrameType::kOffer, "", &fd, FdFrameType::kOffered));
  return std::move(offered.payload);
}

absl::Status Connection::repeat_if_resumed(const Deadline& deadline,
                                           absl::FunctionRef<absl::Status()> step) {
  for (;;) {
    CCO_ASSIGN_OR_RETURN(const Link before, link());
    const absl::Status outcome = step();
    if (!absl::IsNotFound(outcome) && !absl::IsUnavailable(outcome)) return outcome;
    const absl::StatusOr<Link> after = link();
    const bool resumed = after.ok() && after->number != before.number;
    if (!resumed || deadline.has_passed()) return outcome;
  }
}

bool Connection::is_lost(const absl::Status& outcome, const Link& used) const {
  if (!resumable_) return false;
  // A stopping daemon says UNAVAILABLE, and so does gRPC without one; what comes while gRPC stops
  // it cancels. A next one that is met before the session has been resumed does not know the
  // caller.
  return (absl::IsUnavailable(outcome) && !is_final(outcome)) || absl::IsCancelled(outcome) ||
         (absl::IsUnauthenticated(outcome) && !used.fd->is_open());
}

absl::Status Connection::come_back(const Link& used, absl::Status last, Backoff* backoff,
                                   const Deadline& deadline) {
  const Gate::Pass pass = resume_gate_.enter(deadline);
  if (!pass) return not_back(last);
  CCO_ASSIGN_OR_RETURN(const Link now, link());
  if (now.number != used.number && now.fd->is_open()) return absl::OkStatus();
  while (!deadline.has_passed()) {
    // A new socket in the folder would be an event, but comes before anybody listens on it, or not
    // at all if somebody else listens for the daemon.
    backoff->pause(deadline);
    last = reconnect(deadline);
    if (last.ok()) return last;
    if (const absl::StatusOr<Link> still = link(); !still.ok()) return still.status();
  }
  return not_back(last);
}

absl::Status Connection::reconnect(const Deadline& deadline) {
  CCO_ASSIGN_OR_RETURN(Link next, link());
  if (!next.fd->is_open()) {
    CCO_ASSIGN_OR_RETURN(next.fd, resume_session(deadline));
    ++next.number;
    const std::lock_guard<std::mutex> lock(mutex_);
    link_ = next;
  }
  CCO_ASSIGN_OR_RETURN(next.rpc, RpcChannel::connect(socket_path_, deadline));
  ++next.number;
  const std::lock_guard<std::mutex> lock(mutex_);
  link_ = std::move(next);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<FdChannel>> Connection::resume_session(const Deadline& deadline) {
  if (arriving_ == nullptr) {
    CCO_ASSIGN_OR_RETURN(arriving_, FdChannel::connect(socket_path_, timeout_, deadline));
  }
  const absl::StatusOr<FdFrame> frame = arriving_->hello(token_, deadline);
  if (absl::IsDeadlineExceeded(frame.status())) return frame.status();
  const std::shared_ptr<FdChannel> arrived = std::exchange(arriving_, nullptr);
  if (absl::IsUnauthenticated(frame.status())) {
    return end_session(std::string(frame.status().message()));
  }
  CCO_RETURN_IF_ERROR(frame.status());
  CCO_ASSIGN_OR_RETURN(const Welcome welcome, parse_welcome(*frame, socket_path_));
  if (welcome.token == token_ && welcome.incarnation == incarnation_) return arrived;
  return end_session(absl::StrCat("it is incarnation ", welcome.incarnation,
                                  "; the session began with ", incarnation_));
}

absl::Status Connection::end_session(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = absl::UnavailableError(
      absl::StrCat("cco-memd at ", socket_path_, " has restarted without this session (", reason,
                   "): its groups and windows have ended. Make a new client"));
  return ended_;
}

absl::Status Connection::not_back(const absl::Status& last) const {
  return absl::UnavailableError(absl::StrCat(
      "cco-memd at ", socket_path_, " has gone, or is stopping, and is not back in time (",
      std::string(last.message()), "). It keeps this session: call again once it runs"));
}

void Connection::end(Milliseconds away) {
  if (!resumable_) return;
  const Deadline deadline(away);
  Backoff backoff;
  for (absl::StatusOr<Link> used = link(); used.ok() && !deadline.has_passed(); used = link()) {
    const absl::Status ended =
        used->fd->exchange(FdFrameType::kEnd, "", nullptr, FdFrameType::kEnded, deadline).status();
    // A daemon that does not know this is of an earlier version, and hears the connection end.
    if (!absl::IsUnavailable(ended)) return;
    if (!come_back(*used, ended, &backoff, deadline).ok()) return;
  }
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
