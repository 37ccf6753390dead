#include "daemon/service/memd_service.h"

#include <sys/socket.h>

#include <functional>
#include <iterator>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

constexpr char kTokenKey[] = "cco-session-bin";
// Of one connection, beyond those that a session may have running: who has more does not read what
// it is answered.
constexpr uint32_t kMoreCalls = 768;
// Of one connection, before the last answer.
constexpr size_t kMaxUnreadBytes = 4 << 20;

// FNV-1a: tells what a client does by mistake, and is the same in the next daemon.
uint64_t fingerprint(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

// A request id that is used again must ask for the same thing; how long it waits may differ. Kept
// with the answer, so no longer than need be, whatever was sent.
template <typename Request>
std::string what_is_asked(Request request) {
  if constexpr (requires { request.clear_timeout_ms(); }) request.clear_timeout_ms();
  // The same memory, offered again to a daemon that knows nothing of the first offer.
  if constexpr (requires { request.clear_offer(); }) request.clear_offer();
  const std::string bytes = request.SerializeAsString();
  return absl::StrCat(request.GetTypeName(), " ", bytes.size(), " ", fingerprint(bytes));
}

template <typename Response>
absl::StatusOr<Response> empty_or(const absl::Status& status) {
  if (!status.ok()) return status;
  return Response();
}

}  // namespace

void MemdService::Call::count_in(std::shared_ptr<OpenCalls> of_connection) {
  of_connection_ = std::move(of_connection);
  ++of_connection_->count;
}

absl::Status MemdService::Call::check_unread() const {
  if (of_connection_ == nullptr || of_connection_->answer_bytes <= kMaxUnreadBytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("answers of ", of_connection_->answer_bytes,
                   " bytes wait to be read on this connection, and at most ", kMaxUnreadBytes,
                   " are kept: read them, and ask again"));
}

void MemdService::Call::count_answer(size_t bytes) {
  if (of_connection_ == nullptr) return;
  answer_bytes_ = bytes;
  of_connection_->answer_bytes += bytes;
}

void MemdService::Call::OnDone() {
  executor_.post([of_connection = std::move(of_connection_), bytes = answer_bytes_] {
    if (of_connection == nullptr) return;
    --of_connection->count;
    of_connection->answer_bytes -= bytes;
  });
  delete this;
}

absl::Status MemdService::connected(int fd, const Identity& who) {
  if (const auto last = connections_.find(fd); last != connections_.end()) forget(last);
  const TenantId tenant = broker_.tenants().find(who);
  absl::Status fits = count_.check(BorrowedFd(fd), who, tenant);
  if (!fits.ok()) {
    forget_closed();
    fits = count_.check(BorrowedFd(fd), who, tenant);
  }
  CCO_RETURN_IF_ERROR(fits);
  connections_[fd] = {who, tenant, inode_of(fd), ++last_connection_};
  count_.add(tenant);
  return absl::OkStatus();
}

void MemdService::forget_closed() {
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    if (inode_of(connection->first) != connection->second.inode) forget(connection);
  }
}

void MemdService::forget(std::map<int, RpcConnection>::iterator connection) {
  count_.remove(connection->second.tenant);
  connections_.erase(connection);
}

// gRPC itself keeps any number of answers, and a limit of its own binds only who has agreed to it.
// The descriptor is gRPC's, which may have closed it: see Memd::hang_up_if_silent().
void MemdService::hang_up_if_unread(int fd, const RpcConnection& connection) {
  const uint32_t limit = broker_.options().limits.calls_per_session + kMoreCalls;
  if (connection.open_calls->count > limit && inode_of(fd) == connection.inode)
    ::shutdown(fd, SHUT_RDWR);
}

std::map<int, MemdService::RpcConnection>::iterator MemdService::find_connection(
    const grpc::CallbackServerContext& context) {
  int fd = -1;
  if (!absl::SimpleAtoi(absl::StripPrefix(context.peer(), "fd:"), &fd)) return connections_.end();
  return connections_.find(fd);
}

FairQueue::Source MemdService::arrive(const grpc::CallbackServerContext& context,
                                      grpc::ServerUnaryReactor* reactor) {
  const auto connection = find_connection(context);
  if (connection == connections_.end()) return {};
  static_cast<Call*>(reactor)->count_in(connection->second.open_calls);
  hang_up_if_unread(connection->first, connection->second);
  return {uint64_t{connection->second.who.uid} + 1, connection->second.number};
}

void MemdService::in_turn(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                          Executor::Task act) {
  executor_.post([this, context, reactor, act = std::move(act)]() mutable {
    const FairQueue::Source source = arrive(*context, reactor);
    const uint32_t limit = broker_.options().limits.calls_per_session;
    if (queue_.waiting(source) >= limit) {
      return reactor->Finish(to_grpc(
          over_limit("calls_per_session", limit,
                     absl::StrCat("this connection has ", limit, " calls waiting for a turn"))));
    }
    queue_.add(source, std::move(act));
  });
}

absl::StatusOr<Session*> MemdService::caller(const grpc::CallbackServerContext& context) {
  const auto connection = find_connection(context);
  const auto tokens = context.client_metadata().equal_range(kTokenKey);
  if (connection == connections_.end() || std::distance(tokens.first, tokens.second) != 1) {
    return absl::UnauthenticatedError(
        "the call carries no session token, or several: attach on the fd channel first");
  }
  const grpc::string_ref token = tokens.first->second;
  absl::StatusOr<Session*> session =
      broker_.authenticate(std::string(token.data(), token.size()), connection->second.who);
  connection->second.has_called |= session.ok();
  return session;
}

template <typename Request, typename Response, typename Act>
grpc::ServerUnaryReactor* MemdService::look(grpc::CallbackServerContext* context,
                                            const Request* request, Response* response, Act act,
                                            Answers answers) {
  grpc::ServerUnaryReactor* reactor = open_call(context);
  in_turn(context, reactor, [this, context, request, response, reactor, act, answers] {
    const absl::StatusOr<Session*> session = caller(*context);
    if (!session.ok()) return reactor->Finish(to_grpc(session.status()));
    auto* const call = dynamic_cast<Call*>(reactor);  // A test's is another.
    const absl::Status unread = call == nullptr ? absl::OkStatus() : call->check_unread();
    if (!unread.ok()) return reactor->Finish(to_grpc(unread));
    absl::StatusOr<Response> result = act(**session, *request);
    if (result.ok()) *response = *std::move(result);
    if (call != nullptr) call->count_answer(response->ByteSizeLong());
    if (answers == Answers::kShow) {
      return outbox_.post_view(
          [reactor, status = to_grpc(result.status())] { reactor->Finish(status); });
    }
    outbox_.post([reactor, status = result.status()](const absl::Status& recorded) {
      reactor->Finish(to_grpc(recorded.ok() ? status : recorded));
    });
  });
  return reactor;
}

template <typename Request, typename Response, typename Act>
grpc::ServerUnaryReactor* MemdService::mutate(grpc::CallbackServerContext* context,
                                              const Request* request, Response* response, Act act) {
  grpc::ServerUnaryReactor* reactor = open_call(context);
  in_turn(context, reactor, [this, context, request, response, reactor, act] {
    const absl::StatusOr<Session*> found = caller(*context);
    if (!found.ok()) return reactor->Finish(to_grpc(found.status()));
    Session& session = **found;
    const std::string& id = request->request_id();
    if (id.size() != kSecretBytes) {
      return reactor->Finish(to_grpc(absl::InvalidArgumentError(absl::StrCat(
          "request_id has ", id.size(), " bytes; it takes ", kSecretBytes, " random ones"))));
    }
    if (const absl::Status status = outbox_.accepting(); !status.ok()) {
      return reactor->Finish(to_grpc(status));
    }
    const uint32_t limit = broker_.options().limits.calls_per_session;
    if (session.running_calls >= limit) {
      return reactor->Finish(to_grpc(
          over_limit("calls_per_session", limit,
                     absl::StrCat("this process has ", session.running_calls, " calls running"))));
    }
    ++session.running_calls;
    const auto finish = [this, session_id = session.id, response, reactor](const Outcome& outcome) {
      // It runs until its answer leaves: so long a retry may ask for that.
      outbox_.post([this, session_id, response, reactor, outcome](const absl::Status& recorded) {
        if (Session* session = broker_.session(session_id); session != nullptr)
          --session->running_calls;
        const absl::Status& status = recorded.ok() ? outcome.status : recorded;
        if (status.ok()) CCO_ASSERT(response->ParseFromString(outcome.response));
        reactor->Finish(to_grpc(status));
      });
    };
    if (!session.requests->begin(id, what_is_asked(*request), finish)) return;
    // The session may be gone, and its log with it, when the answer comes: then its waiters must
    // still be told.
    std::shared_ptr<RequestLog> log = session.requests;
    act(session, *request,
        [this, log, id, session_id = session.id](absl::StatusOr<Response> result) {
          broker_.note_answer(session_id, id);
          const auto forgotten = log->end(
              id, {shortened(result.status()), result.ok() ? result->SerializeAsString() : ""});
          if (forgotten.has_value()) broker_.note_answer(session_id, *forgotten);
        });
  });
  return reactor;
}

grpc::ServerUnaryReactor* MemdService::GetNode(grpc::CallbackServerContext* context,
                                               const v1::GetNodeRequest* request,
                                               v1::GetNodeResponse* response) {
  return look(context, request, response,
              [this](Session& session, const auto&) -> absl::StatusOr<v1::GetNodeResponse> {
                return render_node(broker_, facts_, session);
              });
}

grpc::ServerUnaryReactor* MemdService::JoinGroup(grpc::CallbackServerContext* context,
                                                 const v1::JoinGroupRequest* request,
                                                 v1::JoinGroupResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const v1::JoinGroupRequest& request, auto reply) {
                  absl::StatusOr<JoinRequest> join = parse(request);
                  if (!join.ok()) return reply(join.status());
                  broker_.join(
                      session, *std::move(join),
                      [reply, rank = request.rank()](absl::StatusOr<JoinResult> result) mutable {
                        if (!result.ok()) return reply(result.status());
                        reply(render(*result, rank));
                      });
                });
}

grpc::ServerUnaryReactor* MemdService::ShrinkGroup(grpc::CallbackServerContext* context,
                                                   const v1::ShrinkGroupRequest* request,
                                                   v1::ShrinkGroupResponse* response) {
  return mutate(
      context, request, response, [this](Session& session, const auto& request, auto reply) {
        broker_.shrink(
            session,
            {GroupId{request.group_id()}, request.rank(), Milliseconds(request.timeout_ms())},
            [reply](absl::StatusOr<ShrinkResult> result) mutable {
              if (!result.ok()) return reply(result.status());
              reply(render(*result));
            });
      });
}

grpc::ServerUnaryReactor* MemdService::OpenWindow(grpc::CallbackServerContext* context,
                                                  const v1::OpenWindowRequest* request,
                                                  v1::OpenWindowResponse* response) {
  return look(
      context, request, response,
      [this](Session& session, const auto& request) -> absl::StatusOr<v1::OpenWindowResponse> {
        CCO_ASSIGN_OR_RETURN(const Broker::OpenedWindow opened,
                             broker_.open_window(session, GroupId{request.group_id()},
                                                 request.rank(), request.name()));
        v1::OpenWindowResponse response;
        *response.mutable_window() = render(opened.window);
        response.set_size_bytes(opened.size_bytes);
        response.set_keep_ms(static_cast<uint64_t>(opened.keep.count()));
        return response;
      },
      Answers::kPromise);  // The caller uses what it finds.
}

grpc::ServerUnaryReactor* MemdService::LeaveGroup(grpc::CallbackServerContext* context,
                                                  const v1::LeaveGroupRequest* request,
                                                  v1::LeaveGroupResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  reply(empty_or<v1::LeaveGroupResponse>(
                      broker_.leave(session, GroupId{request.group_id()}, request.rank())));
                });
}

grpc::ServerUnaryReactor* MemdService::AbortGroup(grpc::CallbackServerContext* context,
                                                  const v1::AbortGroupRequest* request,
                                                  v1::AbortGroupResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  reply(empty_or<v1::AbortGroupResponse>(
                      broker_.abort(session, GroupId{request.group_id()}, request.rank())));
                });
}

grpc::ServerUnaryReactor* MemdService::Barrier(grpc::CallbackServerContext* context,
                                               const v1::BarrierRequest* request,
                                               v1::BarrierResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  broker_.barrier(session, parse(request),
                                  [reply](absl::StatusOr<BarrierResult> result) mutable {
                                    if (!result.ok()) return reply(result.status());
                                    v1::BarrierResponse response;
                                    response.set_epoch(result->epoch);
                                    reply(std::move(response));
                                  });
                });
}

grpc::ServerUnaryReactor* MemdService::CreateWindow(grpc::CallbackServerContext* context,
                                                    const v1::CreateWindowRequest* request,
                                                    v1::CreateWindowResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  absl::StatusOr<WindowRequest> window = parse(request);
                  if (!window.ok()) return reply(window.status());
                  broker_.create_window(session, *std::move(window),
                                        [reply](absl::StatusOr<WindowResult> result) mutable {
                                          if (!result.ok()) return reply(result.status());
                                          reply(render(*result));
                                        });
                });
}

grpc::ServerUnaryReactor* MemdService::DestroyWindow(grpc::CallbackServerContext* context,
                                                     const v1::DestroyWindowRequest* request,
                                                     v1::DestroyWindowResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  reply(empty_or<v1::DestroyWindowResponse>(
                      broker_.destroy_window(session, GroupId{request.group_id()}, request.rank(),
                                             WindowId{request.window_id()}, request.generation())));
                });
}

grpc::ServerUnaryReactor* MemdService::ExportSlabs(grpc::CallbackServerContext* context,
                                                   const v1::ExportSlabsRequest* request,
                                                   v1::ExportSlabsResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  const AttachmentId attachment{request.attachment_id()};
                  const absl::StatusOr<Broker::SlabTickets> tickets =
                      attachment != AttachmentId{}
                          ? broker_.export_attachment(session, attachment)
                          : broker_.export_slab(session, GroupId{request.group_id()},
                                                request.rank(), request.slab_index());
                  if (!tickets.ok()) return reply(tickets.status());
                  reply(render(*tickets, broker_));
                });
}

grpc::ServerUnaryReactor* MemdService::ReportPeers(grpc::CallbackServerContext* context,
                                                   const v1::ReportPeersRequest* request,
                                                   v1::ReportPeersResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  constexpr size_t kMaxDetailBytes = 255;
                  std::vector<PeerReport> peers;
                  for (const v1::PeerReport& peer : request.peers()) {
                    peers.push_back(
                        {peer.rank(), peer.reachable(), printable(peer.detail(), kMaxDetailBytes)});
                  }
                  reply(empty_or<v1::ReportPeersResponse>(broker_.report_peers(
                      session, GroupId{request.group_id()}, request.rank(), std::move(peers))));
                });
}

grpc::ServerUnaryReactor* MemdService::ReportTransports(grpc::CallbackServerContext* context,
                                                        const v1::ReportTransportsRequest* request,
                                                        v1::ReportTransportsResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  constexpr size_t kMaxDetailBytes = 511;
                  constexpr size_t kMaxProviderBytes = 31;
                  std::vector<TransportReport> reports;
                  for (const v1::TransportReport& report : request.reports()) {
                    reports.push_back({report.peer(), report.transport(), report.usable(),
                                       printable(report.provider(), kMaxProviderBytes),
                                       printable(report.detail(), kMaxDetailBytes)});
                  }
                  reply(empty_or<v1::ReportTransportsResponse>(broker_.report_transports(
                      session, GroupId{request.group_id()}, request.rank(), std::move(reports))));
                });
}

grpc::ServerUnaryReactor* MemdService::ListSessions(grpc::CallbackServerContext* context,
                                                    const v1::ListSessionsRequest* request,
                                                    v1::ListSessionsResponse* response) {
  return look(context, request, response, [this](Session& session, const auto& request) {
    return render_sessions(request, broker_, session);
  });
}

grpc::ServerUnaryReactor* MemdService::ListGroups(grpc::CallbackServerContext* context,
                                                  const v1::ListGroupsRequest* request,
                                                  v1::ListGroupsResponse* response) {
  return look(context, request, response, [this](Session& session, const auto& request) {
    return render_groups(request, broker_, session);
  });
}

grpc::ServerUnaryReactor* MemdService::ListWindows(grpc::CallbackServerContext* context,
                                                   const v1::ListWindowsRequest* request,
                                                   v1::ListWindowsResponse* response) {
  return look(context, request, response, [this](Session& session, const auto& request) {
    return render_windows(request, broker_, session);
  });
}

grpc::ServerUnaryReactor* MemdService::ListTenants(grpc::CallbackServerContext* context,
                                                   const v1::ListTenantsRequest* request,
                                                   v1::ListTenantsResponse* response) {
  return look(context, request, response, [this](Session& session, const auto& request) {
    return render_tenants(request, broker_, session);
  });
}

grpc::ServerUnaryReactor* MemdService::CreateLease(grpc::CallbackServerContext* context,
                                                   const v1::CreateLeaseRequest* request,
                                                   v1::CreateLeaseResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  const auto lease = broker_.create_lease(session, parse(request));
                  if (!lease.ok()) return reply(lease.status());
                  v1::CreateLeaseResponse response;
                  response.set_lease_id(number(lease->id));
                  response.set_token(lease->token);
                  reply(std::move(response));
                });
}

grpc::ServerUnaryReactor* MemdService::ListLeases(grpc::CallbackServerContext* context,
                                                  const v1::ListLeasesRequest* request,
                                                  v1::ListLeasesResponse* response) {
  return look(context, request, response, [this](Session& session, const auto& request) {
    return render_leases(request, broker_, session);
  });
}

grpc::ServerUnaryReactor* MemdService::EndLease(grpc::CallbackServerContext* context,
                                                const v1::EndLeaseRequest* request,
                                                v1::EndLeaseResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  reply(empty_or<v1::EndLeaseResponse>(
                      broker_.end_lease(session, LeaseId{request.lease_id()})));
                });
}

grpc::ServerUnaryReactor* MemdService::DrainGpu(grpc::CallbackServerContext* context,
                                                const v1::DrainGpuRequest* request,
                                                v1::DrainGpuResponse* response) {
  return mutate(
      context, request, response, [this](Session& session, const auto& request, auto reply) {
        const auto gpus = broker_.drain(session, printable(request.gpu_uuid(), kMaxNameBytes),
                                        Milliseconds(request.deadline_ms()));
        if (!gpus.ok()) return reply(gpus.status());
        v1::DrainGpuResponse response;
        for (const int gpu : *gpus) *response.add_gpus() = render_gpu(gpu, broker_, session);
        reply(std::move(response));
      });
}

grpc::ServerUnaryReactor* MemdService::UndrainGpu(grpc::CallbackServerContext* context,
                                                  const v1::UndrainGpuRequest* request,
                                                  v1::UndrainGpuResponse* response) {
  return mutate(
      context, request, response, [this](Session& session, const auto& request, auto reply) {
        const auto gpus = broker_.undrain(session, printable(request.gpu_uuid(), kMaxNameBytes));
        if (!gpus.ok()) return reply(gpus.status());
        v1::UndrainGpuResponse response;
        for (const int gpu : *gpus) *response.add_gpus() = render_gpu(gpu, broker_, session);
        reply(std::move(response));
      });
}

grpc::ServerUnaryReactor* MemdService::ExplainGroup(grpc::CallbackServerContext* context,
                                                    const v1::ExplainGroupRequest* request,
                                                    v1::ExplainGroupResponse* response) {
  return look(context, request, response, [this](Session& session, const auto& request) {
    return render_explanation(request, broker_, session);
  });
}

grpc::ServerUnaryReactor* MemdService::ListKept(grpc::CallbackServerContext* context,
                                                const v1::ListKeptRequest* request,
                                                v1::ListKeptResponse* response) {
  return look(context, request, response, [this](Session& session, const auto& request) {
    return render_kept(request, broker_, session);
  });
}

grpc::ServerUnaryReactor* MemdService::EvictKept(grpc::CallbackServerContext* context,
                                                 const v1::EvictKeptRequest* request,
                                                 v1::EvictKeptResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  const absl::StatusOr<Broker::Evicted> evicted =
                      broker_.evict_kept(session, WindowId{request.window_id()});
                  if (!evicted.ok()) return reply(evicted.status());
                  v1::EvictKeptResponse response;
                  response.set_freed_bytes(evicted->freed);
                  response.set_held_bytes(evicted->held);
                  reply(std::move(response));
                });
}

grpc::ServerUnaryReactor* MemdService::GrantWindow(grpc::CallbackServerContext* context,
                                                   const v1::GrantWindowRequest* request,
                                                   v1::GrantWindowResponse* response) {
  return mutate(
      context, request, response, [this](Session& session, const auto& request, auto reply) {
        const absl::StatusOr<GrantRequest> parsed = parse(request);
        if (!parsed.ok()) return reply(parsed.status());
        const absl::StatusOr<Broker::NewGrant> grant = broker_.grant_window(session, *parsed);
        if (!grant.ok()) return reply(grant.status());
        v1::GrantWindowResponse response;
        response.set_token(grant->token);
        response.set_is_enforced(grant->is_enforced);
        reply(std::move(response));
      });
}

grpc::ServerUnaryReactor* MemdService::RevokeGrant(grpc::CallbackServerContext* context,
                                                   const v1::RevokeGrantRequest* request,
                                                   v1::RevokeGrantResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  reply(empty_or<v1::RevokeGrantResponse>(
                      broker_.revoke_grant(session, parse(request), request.token())));
                });
}

grpc::ServerUnaryReactor* MemdService::AttachWindow(grpc::CallbackServerContext* context,
                                                    const v1::AttachWindowRequest* request,
                                                    v1::AttachWindowResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  const absl::StatusOr<const Attachment*> attachment =
                      broker_.attach_window(session, request.token());
                  if (!attachment.ok()) return reply(attachment.status());
                  reply(render(**attachment, broker_));
                });
}

grpc::ServerUnaryReactor* MemdService::DetachWindow(grpc::CallbackServerContext* context,
                                                    const v1::DetachWindowRequest* request,
                                                    v1::DetachWindowResponse* response) {
  return mutate(context, request, response,
                [this](Session& session, const auto& request, auto reply) {
                  reply(empty_or<v1::DetachWindowResponse>(
                      broker_.detach_window(session, AttachmentId{request.attachment_id()})));
                });
}

}  // namespace cco::memd
