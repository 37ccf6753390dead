// One session with the daemon: both channels, opened together. Used by the library and by ccoctl.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cco/memd/v1/memd.grpc.pb.h"
#include "client/base/fd_frame.h"
#include "client/base/unique.h"
#include "client/src/deadline.h"
#include "client/src/fork_guard.h"
#include "client/src/gate.h"

namespace cco {

namespace v1 = ::cco::memd::v1;

/// Thread safe.
class Connection {
 public:
  ~Connection();

  /// Connects both channels and opens the session, all within `timeout`, which later bounds each
  /// exchange on the fd channel. FAILED_PRECONDITION: this process was forked from one that had a
  /// connection.
  static absl::StatusOr<std::unique_ptr<Connection>> open(const std::string& socket_path,
                                                          std::chrono::milliseconds timeout);

  /// $CCO_SOCKET, else /run/cco/memd.sock. INVALID_ARGUMENT: it is set and empty or too long.
  static absl::StatusOr<std::string> default_socket_path();

  template <typename Request, typename Response>
  using Method = grpc::Status (v1::MemdService::Stub::*)(grpc::ClientContext*, const Request&,
                                                         Response*);

  /// One call with the session's token. Ends within `timeout` plus a second of grace, in which the
  /// daemon's own DEADLINE_EXCEEDED, which knows more, may still come. The status carries the
  /// ErrorDetail, if the daemon sent one (see error_rank(), answered_by_daemon()).
  template <typename Request, typename Response>
  absl::Status call(Method<Request, Response> method, const Request& request, Response* response,
                    std::chrono::milliseconds timeout) {
    grpc::ClientContext context;
    prepare(&context, timeout);
    return finish((stub_.get()->*method)(&context, request, response), timeout);
  }

  /// Exchanges a ticket for its fd. RESOURCE_EXHAUSTED: this process is at its descriptor limit;
  /// the ticket is spent.
  absl::StatusOr<UniqueFd> redeem(const std::string& ticket);

  /// Hands an fd to the daemon; returns the offer that names it in CreateWindow.
  absl::StatusOr<std::string> offer(const UniqueFd& fd);

  uint64_t incarnation() const { return incarnation_; }
  const std::string& socket_path() const { return socket_path_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// In a forked child: gives up the inherited descriptors without a word to the daemon.
  /// Async-signal-safe.
  void abandon() noexcept;

 private:
  Connection() = default;
  void prepare(grpc::ClientContext* context, std::chrono::milliseconds timeout) const;
  absl::Status finish(const grpc::Status& status, std::chrono::milliseconds timeout) const;
  absl::Status open_fd_channel(const Deadline& deadline);
  absl::Status open_rpc_channel(const Deadline& deadline);
  absl::StatusOr<FdFrame> exchange(FdFrameType type, const std::string& payload, const UniqueFd* fd,
                                   FdFrameType expected, const Deadline& deadline);
  /// Inside fd_gate_, when a frame could not be sent: a daemon that hung up may have said why.
  absl::Status last_words(const absl::Status& sent);
  absl::Status not_answered(std::chrono::milliseconds timeout) const;

  std::string socket_path_;
  std::chrono::milliseconds timeout_{};
  uint64_t incarnation_ = 0;
  std::string token_;
  Gate fd_gate_;  // One exchange at a time on the fd channel.
  UniqueFd fd_channel_;
  // Inside fd_gate_: requests without an answer so far. Answers come in order, so late ones are
  // skipped by number.
  int awaited_answers_ = 0;
  // gRPC owns this descriptor and may close it; the inode tells whether the number still means our
  // socket.
  int rpc_fd_ = -1;
  uint64_t rpc_inode_ = 0;
  std::unique_ptr<v1::MemdService::Stub> stub_;
  std::unique_ptr<ForkRegistration> fork_registration_;
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
