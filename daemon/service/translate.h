// Between protobuf and the core's types: the only reader and writer of messages.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cco/memd/v1/memd.pb.h"
#include "daemon/core/broker.h"

namespace cco::memd {

namespace v1 = ::cco::memd::v1;

template <typename Duration>
uint64_t milliseconds(Duration duration) {
  return static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(duration).count());
}

/// With a message of bounded length, though it may quote a client's text of any.
absl::Status shortened(const absl::Status& status);
/// Shortened.
grpc::Status to_grpc(const absl::Status& status);

absl::StatusOr<JoinRequest> parse(const v1::JoinGroupRequest& request);
BarrierRequest parse(const v1::BarrierRequest& request);
absl::StatusOr<GrantRequest> parse(const v1::GrantWindowRequest& request);
GrantRequest parse(const v1::RevokeGrantRequest& request);
absl::StatusOr<WindowRequest> parse(const v1::CreateWindowRequest& request);
LeaseRequest parse(const v1::CreateLeaseRequest& request);

/// A client's text for people: no more than `most_bytes` in whole characters (half a one could not
/// be sent on), without control characters (which steer terminals).
std::string printable(std::string text, size_t most_bytes);

v1::JoinGroupResponse render(const JoinResult& result, uint32_t rank);
v1::ShrinkGroupResponse render(const ShrinkResult& result);
v1::CreateWindowResponse render(const WindowResult& result);
v1::ExportSlabsResponse render(const Broker::SlabTickets& tickets, const Broker& broker);
v1::AttachWindowResponse render(const Attachment& attachment, const Broker& broker);
/// Whom the window is granted to, and how often it is attached to.
void render_sharing(const Group& group, const Window& window, const Broker& broker,
                    v1::WindowInfo* info);

/// A page of a listing: `page_size` of 1..1000 (0: 100), and where it starts. INVALID_ARGUMENT.
struct Page {
  uint32_t size;
  uint64_t after;  // Id of the last item of the page before.
};
absl::StatusOr<Page> parse_page(uint32_t page_size, const std::string& token);

struct NodeFacts {
  std::string version;
  std::string driver;
  std::string driver_version;
  TimePoint started;
  // As GetNodeResponse has it.
  std::function<std::string()> driver_change = [] { return std::string(); };
};
v1::Gpu render_gpu(int index, const Broker& broker, const Session& caller);
v1::GetNodeResponse render_node(const Broker& broker, const NodeFacts& facts,
                                const Session& caller);
absl::StatusOr<v1::ListSessionsResponse> render_sessions(const v1::ListSessionsRequest& request,
                                                         Broker& broker, const Session& caller);
absl::StatusOr<v1::ListGroupsResponse> render_groups(const v1::ListGroupsRequest& request,
                                                     const Broker& broker, const Session& caller);
absl::StatusOr<v1::ListWindowsResponse> render_windows(const v1::ListWindowsRequest& request,
                                                       const Broker& broker, const Session& caller);
absl::StatusOr<v1::ListTenantsResponse> render_tenants(const v1::ListTenantsRequest& request,
                                                       const Broker& broker, const Session& caller);
absl::StatusOr<v1::ListLeasesResponse> render_leases(const v1::ListLeasesRequest& request,
                                                     const Broker& broker, const Session& caller);
absl::StatusOr<v1::ListKeptResponse> render_kept(const v1::ListKeptRequest& request,
                                                 const Broker& broker, const Session& caller);
absl::StatusOr<v1::ExplainGroupResponse> render_explanation(const v1::ExplainGroupRequest& request,
                                                            const Broker& broker,
                                                            const Session& caller);

}  // namespace cco::memd
