// One session with the daemon: both channels, opened together. Used by the library and by ccoctl.
//
// A daemon whose state outlives it says so when the session opens. If such a daemon dies or stops,
// the session comes back to the next one by its token, and calls are repeated under their request
// ids, all within their own time-outs. Otherwise the end of the connection is the session's end.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cco/memd/v1/memd.grpc.pb.h"
#include "client/base/fd_frame.h"
#include "client/base/unique.h"
#include "client/src/backoff.h"
#include "client/src/deadline.h"
#include "client/src/fd_channel.h"
#include "client/src/gate.h"
#include "client/src/rpc_channel.h"

namespace cco {

/// Thread safe.
class Connection {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Connects both channels and opens the session, all within `timeout`, which later bounds each
  /// exchange on the fd channel. FAILED_PRECONDITION: this process was forked from one that had a
  /// connection.
  static absl::StatusOr<std::unique_ptr<Connection>> open(const std::string& socket_path,
                                                          Milliseconds timeout);

  /// $CCO_SOCKET, else /run/cco/memd.sock. INVALID_ARGUMENT: it is set and empty or too long.
  static absl::StatusOr<std::string> default_socket_path();

  template <typename Request, typename Response>
  using Method = grpc::Status (v1::MemdService::Stub::*)(grpc::ClientContext*, const Request&,
                                                         Response*);

  /// One call with the session's token. Ends within `timeout` plus a second of grace, in which the
  /// daemon's own DEADLINE_EXCEEDED, which knows more, may still come. The status carries the
  /// ErrorDetail, if the daemon sent one (see error_rank(), answered_by_daemon()).
  /// UNAVAILABLE: the daemon has gone; if it may come back, it has not within the call's time, or
  /// without this session.
  template <typename Request, typename Response>
  absl::Status call(Method<Request, Response> method, const Request& request, Response* response,
                    Milliseconds timeout) {
    return carry_out([&](v1::MemdService::Stub& stub, grpc::ClientContext* context,
                         Milliseconds) { return (stub.*method)(context, request, response); },
                     timeout, timeout);
  }

  /// One try at a call, of whose time-out `left` remains.
  using Attempt = absl::FunctionRef<grpc::Status(v1::MemdService::Stub&,
                                                 grpc::ClientContext* context, Milliseconds left)>;
  /// The same for any attempt. `away`: the most that a daemon may take to come back.
  absl::Status carry_out(Attempt attempt, Milliseconds timeout, Milliseconds away);

  /// Exchanges a ticket for its fd. RESOURCE_EXHAUSTED: this process is at its descriptor limit;
  /// the ticket is spent.
  absl::StatusOr<UniqueFd> redeem(const std::string& ticket);

  /// Hands an fd to the daemon; returns the offer that names it in CreateWindow.
  absl::StatusOr<std::string> offer(const UniqueFd& fd);

  /// For steps that use tickets or offers, which end with the daemon that issued them: `step` is
  /// begun again if it failed for that and the session came back in between, until `deadline`.
  absl::Status repeat_if_resumed(const Deadline& deadline, absl::FunctionRef<absl::Status()> step);

  /// Ends the session. If the daemon's state outlives it, that takes until the daemon has recorded
  /// the end, or `away`, within which a next daemon may come: one that has not heard of it would
  /// keep the session as long as this process lives. Every later call fails.
  void end(Milliseconds away);

  uint64_t incarnation() const { return incarnation_; }
  const std::string& socket_path() const { return socket_path_; }
  Milliseconds timeout() const { return timeout_; }

 private:
  /// What a call uses until it ends, whatever becomes of the connection meanwhile.
  struct Link {
    std::shared_ptr<FdChannel> fd;    // Co-owned by exchanges in progress.
    std::shared_ptr<RpcChannel> rpc;  // Co-owned by calls in progress.
    uint64_t number = 0;              // Of changes so far.
  };

  static constexpr Milliseconds kGrace{1000};

  Connection() = default;
  absl::Status finish(const grpc::Status& status, Milliseconds timeout) const;
  absl::StatusOr<FdFrame> exchange(FdFrameType type, const std::string& payload, const UniqueFd* fd,
                                   FdFrameType expected);
  /// UNAVAILABLE: the session has gone for good.
  absl::StatusOr<Link> link() const;

  bool is_lost(const absl::Status& outcome, const Link& used) const;
  /// Returns once `used` has been replaced by a link to a daemon that knows this session. `last`:
  /// what was wrong with `used`, for the text if that takes too long.
  absl::Status come_back(const Link& used, absl::Status last, Backoff* backoff,
                         const Deadline& deadline);
  // Inside resume_gate_.
  absl::Status reconnect(const Deadline& deadline);
  absl::StatusOr<std::shared_ptr<FdChannel>> resume_session(const Deadline& deadline);
  absl::Status end_session(const std::string& reason);
  absl::Status not_back(const absl::Status& last) const;

  std::string socket_path_;
  Milliseconds timeout_{};
  uint64_t incarnation_ = 0;
  std::string token_;
  bool resumable_ = false;

  mutable std::mutex mutex_;
  Link link_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // Once the daemon no longer knows the session.

  Gate resume_gate_;  // One thread comes back for all.
  // Inside resume_gate_: it has said hello and waits for the answer. Kept when its thread's time is
  // over: a daemon that finds it closed would take this session for lost.
  std::shared_ptr<FdChannel> arriving_;
};

/// The rank an error is about, or -1.
int error_rank(const absl::Status& status);
/// A status that says which rank it is about.
absl::Status with_error_rank(absl::Status status, int rank);

/// "context: message", with the rank kept.
absl::Status with_context(const std::string& context, const absl::Status& status);

/// Whether the daemon itself decided this. False: nothing is known of the outcome, the call may
/// have been carried out.
bool answered_by_daemon(const absl::Status& status);

/// 16 random bytes for a mutation's request_id.
std::string new_request_id();

}  // namespace cco
