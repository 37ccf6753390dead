// The fd channel: opens sessions, hands out and takes in file descriptors, and notices when a
// client goes. Runs on the event loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "client/base/fd_frame.h"
#include "daemon/core/broker.h"
#include "daemon/sys/event_loop.h"
#include "daemon/sys/peer.h"

namespace cco::memd {

class FdServer {
 public:
  struct Options {
    int64_t operator_gid = -1;
    uint64_t incarnation = 0;
    uint32_t max_connections = 2048;
  };

  /// `listener` is borrowed; loop, broker and journal outlive this.
  FdServer(EventLoop& loop, Broker& broker, Journal& journal, Options options);
  ~FdServer();

  absl::Status serve(const UniqueFd& listener);

 private:
  struct Connection {
    UniqueFd socket;
    Peer peer;
    std::optional<SessionId> session;  // After kHello.
    std::optional<TimerId> hello_timer;
  };
  void accept_one(const UniqueFd& listener);
  void readable(uint64_t id);
  void handle(Connection& connection, FdFrame frame);
  void hello(Connection& connection);
  void reply(Connection& connection, FdFrameType type, const absl::Status& status,
             const std::string& payload, const UniqueFd* fd);
  void exited(uint64_t id);
  void close(uint64_t id);

  EventLoop& loop_;
  Broker& broker_;
  Journal& journal_;
  Options options_;
  UniqueFd spare_;  // Given up for a moment to refuse a client when no descriptor is left.
  BorrowedFd listener_{-1};
  std::map<uint64_t, Connection> connections_;
  // Sessions whose connection has ended and whose process has not.
  std::map<uint64_t, Connection> lingering_;
  uint64_t last_id_ = 0;
};

}  // namespace cco::memd
