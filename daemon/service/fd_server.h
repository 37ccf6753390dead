// The fd channel: opens sessions, hands out and takes in file descriptors, and notices when a
// client goes. Runs on the event loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "client/base/fd_frame.h"
#include "daemon/core/broker.h"
#include "daemon/ports/outbox.h"
#include "daemon/service/connection_count.h"
#include "daemon/sys/acceptor.h"
#include "daemon/sys/event_loop.h"
#include "daemon/sys/peer.h"

namespace cco::memd {

class FdServer {
 public:
  struct Options {
    int64_t operator_gid = -1;
    uint64_t incarnation = 0;
    bool resumable = false;  // Sessions outlive the daemon.
  };

  /// All outlive this.
  FdServer(EventLoop& loop, Broker& broker, Outbox& outbox, Journal& journal, Options options);
  ~FdServer();

  /// Also waits for the sessions that the broker has already. `listener` outlives this.
  absl::Status serve(const UniqueFd& listener);

 private:
  struct Connection {
    uint64_t id = 0;
    UniqueFd socket;
    Peer peer;  // Its pidfd goes to the session.
    TenantId tenant{};
    std::optional<SessionId> session;  // After kHello.
    std::optional<TimerId> hello_timer;
  };
  void accept_one(const UniqueFd& listener);
  void readable(uint64_t id);
  void handle(Connection& connection, FdFrame frame);
  void hello(Connection& connection, const std::string& token);
  void end_in_order(Connection& connection);
  void reply(Connection& connection, FdFrameType type, const absl::Status& status,
             const std::string& payload, const UniqueFd* fd);
  void close(uint64_t id);
  void end(SessionId session);
  /// Once for each session that has a pidfd.
  absl::Status watch_process(const Session& session);
  void exited(SessionId session);

  EventLoop& loop_;
  Broker& broker_;
  Outbox& outbox_;
  Journal& journal_;
  Options options_;
  ConnectionCount count_;
  Acceptor acceptor_;
  BorrowedFd listener_{-1};
  std::map<uint64_t, Connection> connections_;
  std::map<SessionId, std::shared_ptr<const UniqueFd>> watched_;  // Processes.
  uint64_t last_id_ = 0;
};

}  // namespace cco::memd
