// gRPC handlers. Each hands its request to the core's thread, where it is authenticated, parsed,
// acted on and rendered.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cco/memd/v1/memd.grpc.pb.h"
#include "client/base/inode.h"
#include "daemon/core/broker.h"
#include "daemon/ports/outbox.h"
#include "daemon/service/connection_count.h"
#include "daemon/service/fair_queue.h"
#include "daemon/service/translate.h"

namespace cco::memd {

class MemdService : public v1::MemdService::CallbackService {
 public:
  /// Both outlive this.
  MemdService(Broker& broker, Executor& executor, Outbox& outbox, NodeFacts facts)
      : broker_(broker),
        executor_(executor),
        queue_(executor),
        outbox_(outbox),
        facts_(std::move(facts)),
        count_(broker, {"RPC socket", kReserve}) {}

  /// Who connected on the descriptor that gRPC will call "fd:<fd>". On the core's thread, before
  /// gRPC gets it. RESOURCE_EXHAUSTED: gRPC is not to get it, as there are too many.
  absl::Status connected(int fd, const Identity& who);
  /// Whether a session's call has come on the connection that was last given that descriptor.
  bool has_called(int fd) const { return connections_.at(fd).has_called; }

  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext*, const v1::GetNodeRequest*,
                                    v1::GetNodeResponse*) override;
  grpc::ServerUnaryReactor* JoinGroup(grpc::CallbackServerContext*, const v1::JoinGroupRequest*,
                                      v1::JoinGroupResponse*) override;
  grpc::ServerUnaryReactor* ShrinkGroup(grpc::CallbackServerContext*, const v1::ShrinkGroupRequest*,
                                        v1::ShrinkGroupResponse*) override;
  grpc::ServerUnaryReactor* OpenWindow(grpc::CallbackServerContext*, const v1::OpenWindowRequest*,
                                       v1::OpenWindowResponse*) override;
  grpc::ServerUnaryReactor* LeaveGroup(grpc::CallbackServerContext*, const v1::LeaveGroupRequest*,
                                       v1::LeaveGroupResponse*) override;
  grpc::ServerUnaryReactor* AbortGroup(grpc::CallbackServerContext*, const v1::AbortGroupRequest*,
                                       v1::AbortGroupResponse*) override;
  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext*, const v1::BarrierRequest*,
                                    v1::BarrierResponse*) override;
  grpc::ServerUnaryReactor* CreateWindow(grpc::CallbackServerContext*,
                                         const v1::CreateWindowRequest*,
                                         v1::CreateWindowResponse*) override;
  grpc::ServerUnaryReactor* DestroyWindow(grpc::CallbackServerContext*,
                                          const v1::DestroyWindowRequest*,
                                          v1::DestroyWindowResponse*) override;
  grpc::ServerUnaryReactor* ExportSlabs(grpc::CallbackServerContext*, const v1::ExportSlabsRequest*,
                                        v1::ExportSlabsResponse*) override;
  grpc::ServerUnaryReactor* ReportPeers(grpc::CallbackServerContext*, const v1::ReportPeersRequest*,
                                        v1::ReportPeersResponse*) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext*,
                                         const v1::ListSessionsRequest*,
                                         v1::ListSessionsResponse*) override;
  grpc::ServerUnaryReactor* ListGroups(grpc::CallbackServerContext*, const v1::ListGroupsRequest*,
                                       v1::ListGroupsResponse*) override;
  grpc::ServerUnaryReactor* ListWindows(grpc::CallbackServerContext*, const v1::ListWindowsRequest*,
                                        v1::ListWindowsResponse*) override;
  grpc::ServerUnaryReactor* ListTenants(grpc::CallbackServerContext*, const v1::ListTenantsRequest*,
                                        v1::ListTenantsResponse*) override;
  grpc::ServerUnaryReactor* CreateLease(grpc::CallbackServerContext*, const v1::CreateLeaseRequest*,
                                        v1::CreateLeaseResponse*) override;
  grpc::ServerUnaryReactor* ListLeases(grpc::CallbackServerContext*, const v1::ListLeasesRequest*,
                                       v1::ListLeasesResponse*) override;
  grpc::ServerUnaryReactor* EndLease(grpc::CallbackServerContext*, const v1::EndLeaseRequest*,
                                     v1::EndLeaseResponse*) override;
  grpc::ServerUnaryReactor* DrainGpu(grpc::CallbackServerContext*, const v1::DrainGpuRequest*,
                                     v1::DrainGpuResponse*) override;
  grpc::ServerUnaryReactor* UndrainGpu(grpc::CallbackServerContext*, const v1::UndrainGpuRequest*,
                                       v1::UndrainGpuResponse*) override;
  grpc::ServerUnaryReactor* ReportTransports(grpc::CallbackServerContext*,
                                             const v1::ReportTransportsRequest*,
                                             v1::ReportTransportsResponse*) override;
  grpc::ServerUnaryReactor* ExplainGroup(grpc::CallbackServerContext*,
                                         const v1::ExplainGroupRequest*,
                                         v1::ExplainGroupResponse*) override;
  grpc::ServerUnaryReactor* ListKept(grpc::CallbackServerContext*, const v1::ListKeptRequest*,
                                     v1::ListKeptResponse*) override;
  grpc::ServerUnaryReactor* EvictKept(grpc::CallbackServerContext*, const v1::EvictKeptRequest*,
                                      v1::EvictKeptResponse*) override;
  grpc::ServerUnaryReactor* GrantWindow(grpc::CallbackServerContext*, const v1::GrantWindowRequest*,
                                        v1::GrantWindowResponse*) override;
  grpc::ServerUnaryReactor* RevokeGrant(grpc::CallbackServerContext*, const v1::RevokeGrantRequest*,
                                        v1::RevokeGrantResponse*) override;
  grpc::ServerUnaryReactor* AttachWindow(grpc::CallbackServerContext*,
                                         const v1::AttachWindowRequest*,
                                         v1::AttachWindowResponse*) override;
  grpc::ServerUnaryReactor* DetachWindow(grpc::CallbackServerContext*,
                                         const v1::DetachWindowRequest*,
                                         v1::DetachWindowResponse*) override;

 protected:
  /// Of one connection, shared with its calls. The core's thread's.
  struct OpenCalls {
    uint32_t count = 0;
    size_t answer_bytes = 0;  // Of what is only shown: that is what can be long.
  };
  /// One call, until its answer has been taken, or nobody is there to take it.
  class Call : public grpc::ServerUnaryReactor {
   public:
    explicit Call(Executor& executor) : executor_(executor) {}
    void OnDone() override;
    void count_in(std::shared_ptr<OpenCalls> of_connection);
    /// RESOURCE_EXHAUSTED: the connection is to read what it has been answered before it is shown
    /// more.
    absl::Status check_unread() const;
    void count_answer(size_t bytes);

   private:
    Executor& executor_;
    std::shared_ptr<OpenCalls> of_connection_;
    size_t answer_bytes_ = 0;
  };
  virtual grpc::ServerUnaryReactor* open_call(grpc::CallbackServerContext*) {
    return new Call(executor_);
  }
  /// Where it comes from, on the core's thread; zeros: from no connection that is known.
  virtual FairQueue::Source arrive(const grpc::CallbackServerContext& context,
                                   grpc::ServerUnaryReactor* reactor);
  /// Whose call it is. UNAUTHENTICATED: nobody's who may make any.
  virtual absl::StatusOr<Session*> caller(const grpc::CallbackServerContext& context);

 private:
  /// Less than the fd channel's: who was let in there comes here next.
  static constexpr uint64_t kReserve = 8;
  /// What an answer does: see Outbox.
  enum class Answers { kShow, kPromise };
  /// Runs `act(session, request)` -> absl::StatusOr<Response> on the core's thread. Changes
  /// nothing.
  template <typename Request, typename Response, typename Act>
  grpc::ServerUnaryReactor* look(grpc::CallbackServerContext* context, const Request* request,
                                 Response* response, Act act, Answers answers = Answers::kShow);

  /// Runs `act(session, request, reply)` on the core's thread, once for each request id; `reply`
  /// takes an absl::StatusOr<Response>, now or later.
  template <typename Request, typename Response, typename Act>
  grpc::ServerUnaryReactor* mutate(grpc::CallbackServerContext* context, const Request* request,
                                   Response* response, Act act);

  /// Runs `act` on the core's thread, in its turn: calls of one connection do not hold up others'.
  void in_turn(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
               Executor::Task act);

  Broker& broker_;
  Executor& executor_;
  FairQueue queue_;
  Outbox& outbox_;
  NodeFacts facts_;
  struct RpcConnection {
    Identity who;
    TenantId tenant{};
    uint64_t inode = 0;
    uint64_t number = 0;  // Descriptors are reused while calls of earlier ones still wait.
    bool has_called = false;
    std::shared_ptr<OpenCalls> open_calls = std::make_shared<OpenCalls>();
  };
  /// gRPC closes connections without a word, and their descriptors' numbers may serve anew.
  void forget_closed();
  void forget(std::map<int, RpcConnection>::iterator connection);
  /// Ends a connection that calls and does not read.
  void hang_up_if_unread(int fd, const RpcConnection& connection);
  std::map<int, RpcConnection>::iterator find_connection(
      const grpc::CallbackServerContext& context);

  std::map<int, RpcConnection> connections_;
  ConnectionCount count_;
  uint64_t last_connection_ = 0;
};

}  // namespace cco::memd
