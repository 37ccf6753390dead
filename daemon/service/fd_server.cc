#include "daemon/service/fd_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

// A client says hello at once or not at all.
constexpr Milliseconds kHelloTimeout{5000};

// Who is let in needs more of them: for its RPC connection, and for memory.
constexpr uint64_t kReserve = 16;

bool has_exited(BorrowedFd pidfd) {
  pollfd ready{pidfd.get(), POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
}

}  // namespace

FdServer::FdServer(EventLoop& loop, Broker& broker, Outbox& outbox, Journal& journal,
                   Options options)
    : loop_(loop),
      broker_(broker),
      outbox_(outbox),
      journal_(journal),
      options_(options),
      count_(broker, {"fd channel", kReserve}) {}

FdServer::~FdServer() {
  if (listener_.get() >= 0) loop_.unwatch(listener_);
  for (auto& [id, connection] : connections_) {
    loop_.unwatch(connection.socket);
    if (connection.hello_timer.has_value()) loop_.cancel(*connection.hello_timer);
  }
  for (const auto& [id, process] : watched_) loop_.unwatch(*process);
}

absl::Status FdServer::serve(const UniqueFd& listener) {
  for (const auto& [id, session] : broker_.sessions().all()) {
    CCO_RETURN_IF_ERROR(watch_process(session));
  }
  listener_ = listener;
  return loop_.watch(listener, [this, &listener] { accept_one(listener); });
}

void FdServer::accept_one(const UniqueFd& listener) {
  UniqueFd socket = acceptor_.accept(listener, [this](const UniqueFd& surplus) {
    if (surplus) {
      (void)send_frame(surplus, FdFrameType::kWelcome, absl::StatusCode::kResourceExhausted,
                       "cco-memd is at its limit of open file descriptors; raise LimitNOFILE, or "
                       "end some clients");
    }
    journal_.record_refusal(Severity::kError, "client_refused", "all",
                            "reason=\"no file descriptor left\"");
  });
  if (!socket) return;
  absl::StatusOr<Peer> peer = read_peer(socket, options_.operator_gid);
  absl::Status status = peer.status();
  TenantId tenant{};
  if (status.ok()) {
    peer->who.cgroup = read_cgroup(*peer);
    tenant = broker_.tenants().find(peer->who);
    status = count_.check(socket, peer->who, tenant);
  }
  if (!status.ok()) {
    journal_.record_refusal(Severity::kWarning, "client_refused",
                            peer.ok() ? absl::StrCat("uid=", peer->who.uid) : "unknown",
                            absl::StrCat("reason=\"", std::string(status.message()), "\""));
    (void)send_frame(socket, FdFrameType::kWelcome, status.code(), std::string(status.message()));
    return;
  }
  const uint64_t id = ++last_id_;
  Connection& connection = connections_[id];
  connection.id = id;
  connection.socket = std::move(socket);
  connection.peer = *std::move(peer);
  connection.tenant = tenant;
  count_.add(tenant);
  connection.hello_timer = loop_.call_at(loop_.now() + kHelloTimeout, [this, id] {
    connections_.at(id).hello_timer.reset();
    close(id);
  });
  status = loop_.watch(connection.socket, [this, id] { readable(id); });
  if (!status.ok()) close(id);
}

void FdServer::readable(uint64_t id) {
  Connection& connection = connections_.at(id);
  absl::StatusOr<FdFrame> frame = receive_frame(connection.socket);
  if (frame.ok()) return handle(connection, *std::move(frame));
  switch (frame.status().code()) {
    case absl::StatusCode::kUnavailable:
      if (frame.status().message() != "would block") close(id);
      return;
    case absl::StatusCode::kResourceExhausted:  // We are at our limit; the client may try again.
      return reply(connection, FdFrameType::kOffered, frame.status(), "", nullptr);
    default:
      reply(connection, FdFrameType::kGrant, frame.status(), "", nullptr);
      close(id);
  }
}

void FdServer::handle(Connection& connection, FdFrame frame) {
  if (frame.type == FdFrameType::kHello) return hello(connection, frame.payload);
  if (!connection.session.has_value()) {
    return reply(connection, FdFrameType::kGrant,
                 absl::FailedPreconditionError("the first frame must be kHello"), "", nullptr);
  }
  switch (frame.type) {
    case FdFrameType::kRedeem: {
      const absl::StatusOr<const UniqueFd*> fd =
          broker_.desk().redeem(*connection.session, frame.payload);
      return reply(connection, FdFrameType::kGrant, fd.status(), "", fd.ok() ? *fd : nullptr);
    }
    case FdFrameType::kOffer: {
      if (!frame.fd) {
        return reply(connection, FdFrameType::kOffered,
                     absl::InvalidArgumentError("an offer comes with one file descriptor"), "",
                     nullptr);
      }
      const absl::StatusOr<std::string> offer =
          broker_.desk().take_offer(*connection.session, std::move(frame.fd));
      return reply(connection, FdFrameType::kOffered, offer.status(), offer.ok() ? *offer : "",
                   nullptr);
    }
    case FdFrameType::kEnd:
      return end_in_order(connection);
    default:
      return reply(connection, FdFrameType::kGrant,
                   absl::InvalidArgumentError(absl::StrCat(
                       "frames of type ", static_cast<int>(frame.type), " are not known here")),
                   "", nullptr);
  }
}

void FdServer::hello(Connection& connection, const std::string& token) {
  const auto refuse = [&](const absl::Status& status) {
    reply(connection, FdFrameType::kWelcome, status, "", nullptr);
  };
  if (connection.session.has_value()) {
    return refuse(absl::FailedPreconditionError("this connection has a session already"));
  }
  absl::StatusOr<Broker::Welcome> welcome;
  Peer& peer = connection.peer;
  if (!token.empty()) {
    welcome = broker_.resume_session(token, peer.who, std::move(peer.pidfd));
  } else if (const absl::Status accepting = outbox_.accepting(); !accepting.ok()) {
    welcome = accepting;
  } else {
    welcome = broker_.open_session(peer.who, std::move(peer.pidfd));
  }
  if (!welcome.ok()) {  // And goes: the next hello comes with a connection that is looked at anew.
    refuse(welcome.status());
    return close(connection.id);
  }
  if (connection.hello_timer.has_value()) loop_.cancel(*connection.hello_timer);
  connection.hello_timer.reset();
  connection.session = welcome->session;
  (void)watch_process(*broker_.session(welcome->session));
  std::string payload = welcome->token;
  payload.append(reinterpret_cast<const char*>(&options_.incarnation), sizeof options_.incarnation);
  payload.push_back(options_.resumable ? 1 : 0);
  outbox_.post([this, id = connection.id, resumed = !token.empty(),
                payload = std::move(payload)](const absl::Status& recorded) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    reply(found->second, FdFrameType::kWelcome, recorded, payload, nullptr);
    // This daemon stops: the session is the next one's, and not lost when this connection ends.
    if (!recorded.ok() && resumed) found->second.session.reset();
  });
}

// Nothing more is read: the connection only has its last answer to carry.
void FdServer::end_in_order(Connection& connection) {
  loop_.unwatch(connection.socket);
  end(*std::exchange(connection.session, std::nullopt));
  outbox_.post([this, id = connection.id](const absl::Status& recorded) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    reply(found->second, FdFrameType::kEnded, recorded, "", nullptr);
    close(id);
  });
}

// Never waits: a client that does not read its answers has none to miss, and its own deadline.
void FdServer::reply(Connection& connection, FdFrameType type, const absl::Status& status,
                     const std::string& payload, const UniqueFd* fd) {
  const std::string text = status.ok() ? payload : std::string(status.message());
  const absl::Status sent = send_frame(connection.socket, type, status.code(), text, fd);
  if (sent.code() == absl::StatusCode::kResourceExhausted && fd != nullptr) {
    (void)send_frame(connection.socket, type, sent.code(), std::string(sent.message()));
  }
}

void FdServer::close(uint64_t id) {
  auto node = connections_.extract(id);
  if (node.empty()) return;
  Connection& connection = node.mapped();
  count_.remove(connection.tenant);
  loop_.unwatch(connection.socket);
  connection.socket.reset();
  if (connection.hello_timer.has_value()) loop_.cancel(*connection.hello_timer);
  if (connection.session.has_value()) end(*connection.session);
}

// Only the end of the process lets its memory serve others; without memory the session has ended.
void FdServer::end(SessionId id) {
  broker_.close_session(id);
  const Session* session = broker_.session(id);
  const bool lives = session != nullptr && session->process != nullptr &&
                     !has_exited(*session->process) && watch_process(*session).ok();
  if (lives) return;
  if (const auto watched = watched_.extract(id); !watched.empty()) loop_.unwatch(*watched.mapped());
  broker_.process_exited(id);
}

absl::Status FdServer::watch_process(const Session& session) {
  if (session.process == nullptr || watched_.count(session.id) != 0) return absl::OkStatus();
  CCO_RETURN_IF_ERROR(loop_.watch(*session.process, [this, id = session.id] { exited(id); }));
  watched_.emplace(session.id, session.process);
  return absl::OkStatus();
}

void FdServer::exited(SessionId session) {
  for (const auto& [id, connection] : connections_) {
    // A forked child may still hold the connection.
    if (connection.session == session) return close(id);
  }
  end(session);
}

}  // namespace cco::memd
