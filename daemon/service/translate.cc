#include "daemon/service/translate.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cco/memd/v1/error.pb.h"
#include "client/base/status_macros.h"
#include "daemon/core/error.h"

namespace cco::memd {
namespace {

constexpr uint32_t kDefaultPage = 100, kMaxPage = 1000;
// Entries that name every rank of a group end a page before it is full.
constexpr size_t kMaxPageBytes = 1 << 20;
// gRPC refuses more than 8 KiB of metadata, which errors are, some characters as three bytes.
constexpr size_t kMaxErrorBytes = 2048;

const char* state_name(SessionState state) {
  switch (state) {
    case SessionState::kAttached:
      return "attached";
    case SessionState::kAway:
      return "away";
    case SessionState::kLost:
      return "lost";
  }
  return "";
}

absl::StatusOr<Placement> parse(v1::Placement placement) {
  switch (placement) {
    case v1::PLACEMENT_HEAP:
      return Placement::kHeap;
    case v1::PLACEMENT_CONTROL:
      return Placement::kControl;
    case v1::PLACEMENT_EXTERNAL:
      return Placement::kExternal;
    default:
      return absl::InvalidArgumentError(absl::StrCat("placement ", static_cast<int>(placement),
                                                     " is not one of HEAP, CONTROL, EXTERNAL"));
  }
}

v1::Placement render(Placement placement) {
  switch (placement) {
    case Placement::kHeap:
      return v1::PLACEMENT_HEAP;
    case Placement::kControl:
      return v1::PLACEMENT_CONTROL;
    case Placement::kExternal:
      return v1::PLACEMENT_EXTERNAL;
  }
  return v1::PLACEMENT_UNSPECIFIED;
}

v1::MemberState render(MemberState state) {
  switch (state) {
    case MemberState::kLive:
      return v1::MEMBER_STATE_LIVE;
    case MemberState::kLost:
      return v1::MEMBER_STATE_LOST;
    case MemberState::kLeft:
      return v1::MEMBER_STATE_LEFT;
  }
  return v1::MEMBER_STATE_UNSPECIFIED;
}

v1::GroupInfo render_group(const Group& group, const Broker& broker) {
  v1::GroupInfo info;
  info.set_group_id(number(group.id));
  info.set_name(group.name);
  info.set_uid(group.ranks[0].who.uid);
  info.set_tenant(broker.tenants().name(group.tenant));
  info.set_size(group.size());
  info.set_slot_bytes(group.heap.slot_bytes());
  info.set_window_count(static_cast<uint32_t>(group.windows.size()));
  info.set_epoch(group.epoch);
  info.set_lease_id(number(group.lease));
  info.set_state(group.abort_reason.empty() ? "running"
                                            : absl::StrCat("aborted: ", group.abort_reason));
  uint64_t bytes = 0;
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    bytes += broker.slab_bytes(group, rank);
    v1::Member* member = info.add_members();
    member->set_rank(rank);
    member->set_gpu_uuid(broker.slabs().gpus()[group.ranks[rank].gpu].uuid);
    member->set_pid(group.ranks[rank].who.pid);
    member->set_state(render(group.ranks[rank].state));
  }
  info.set_slab_bytes(bytes);
  for (const auto& [key, call] : group.window_calls) info.add_pending(call->describe());
  for (const auto& [sequence, call] : group.barrier_calls) info.add_pending(call->describe());
  if (group.shrink_call != nullptr && !group.shrink_call->is_idle()) {
    info.add_pending(group.shrink_call->describe());
  }
  return info;
}

v1::GroupInfo render_forming(const Broker::Forming& forming, const Broker& broker) {
  v1::GroupInfo info;
  info.set_name(forming.name);
  info.set_tenant(broker.tenants().name(forming.tenant));
  info.set_size(forming.call->size());
  info.set_state("forming");
  for (uint32_t rank = 0; rank < forming.call->size(); ++rank) {
    if (!forming.call->has(rank)) continue;
    if (info.members().empty()) info.set_uid(forming.call->args(rank).who.uid);
    v1::Member* member = info.add_members();
    member->set_rank(rank);
    member->set_gpu_uuid(broker.slabs().gpus()[forming.call->args(rank).gpu].uuid);
    member->set_pid(forming.call->args(rank).who.pid);
    member->set_state(v1::MEMBER_STATE_LIVE);
  }
  info.add_pending(forming.call->describe());
  return info;
}

v1::TenantInfo render_tenant(TenantId id, const Broker& broker) {
  const Tenant& terms = broker.tenants().terms(id);
  v1::TenantInfo info;
  info.set_name(broker.tenants().name(id));
  info.mutable_uids()->Add(terms.uids.begin(), terms.uids.end());
  info.mutable_gids()->Add(terms.gids.begin(), terms.gids.end());
  info.set_cgroup(terms.cgroup);
  info.set_priority(terms.priority);
  info.set_external_memory(terms.external_memory);
  const auto add = [&](const char* name, uint64_t value, uint64_t used) {
    v1::QuotaInfo* quota = info.add_quotas();
    quota->set_name(name);
    quota->set_value(value);
    quota->set_used(used);
    return quota;
  };
  const Broker::TenantUse use = broker.use_of(id);
  add("sessions", broker.sessions().quota(id), use.sessions);
  add("groups", terms.quotas.groups, use.groups);
  add("windows", terms.quotas.windows, use.windows);
  for (size_t gpu = 0; gpu < use.bytes.size(); ++gpu) {
    add("bytes_per_gpu", terms.quotas.bytes_per_gpu, use.bytes[gpu])
        ->set_gpu_uuid(broker.slabs().gpus()[gpu].uuid);
  }
  return info;
}

// In the order of their ids.
std::set<TenantId> visible_tenants(const Broker& broker, const Session& caller) {
  std::set<TenantId> visible{caller.tenant};
  if (!caller.who.is_operator) return visible;
  for (size_t i = 0; i < broker.tenants().named().size(); ++i) visible.insert(Tenants::id(i));
  for (const auto& [id, session] : broker.sessions().all()) visible.insert(session.tenant);
  for (const auto& [id, group] : broker.groups()) visible.insert(group->tenant);
  for (const auto& [id, kept] : broker.kept_windows().all()) visible.insert(kept.tenant);
  return visible;
}

std::string explain_pair(const Group& group, uint32_t rank, uint32_t peer, bool* reachable,
                         const Broker& broker) {
  *reachable = true;
  if (rank == peer) return "its own memory";
  for (uint32_t either : {rank, peer}) {
    if (group.ranks[either].state == MemberState::kLive) continue;
    *reachable = false;
    return absl::StrCat("rank ", either,
                        group.ranks[either].state == MemberState::kLost ? " is lost" : " has left");
  }
  if (rank / group.lsa_size != peer / group.lsa_size) {
    *reachable = false;
    return absl::StrCat("on another node: this group's nodes have ", group.lsa_size,
                        group.lsa_size == 1 ? " rank" : " ranks");
  }
  const Reports::Finding* report = group.ranks[rank].peers.find(peer);
  if (report == nullptr) {
    *reachable = false;
    return "not tried yet";
  }
  *reachable = report->is_good;
  const bool same_gpu = group.ranks[rank].gpu == group.ranks[peer].gpu;
  return absl::StrCat(same_gpu ? "same GPU " : "peer GPU ",
                      broker.slabs().gpus()[group.ranks[peer].gpu].uuid, ": ", report->detail);
}

void render_pair(const Group& group, uint32_t rank, uint32_t peer, const Broker& broker,
                 v1::PairInfo* pair) {
  bool reachable = false;
  pair->set_detail(explain_pair(group, rank, peer, &reachable, broker));
  pair->set_rank(rank);
  pair->set_peer(peer);
  pair->set_transport(reachable ? "lsa" : "none");
  constexpr auto kCount = static_cast<uint32_t>(kReportedTransports.size());
  for (uint32_t index = 0; index < kCount; ++index) {
    const Reports::Finding* report = group.ranks[rank].transports.find(peer * kCount + index);
    if (report == nullptr) continue;
    v1::TransportReport* rendered = pair->add_transports();
    rendered->set_peer(peer);
    rendered->set_transport(kReportedTransports[index]);
    rendered->set_usable(report->is_good);
    rendered->set_provider(report->provider);
    rendered->set_detail(report->detail);
  }
}

}  // namespace

absl::Status shortened(const absl::Status& status) {
  if (status.message().size() <= kMaxErrorBytes) return status;
  absl::Status shorter(status.code(), printable(std::string(status.message()), kMaxErrorBytes));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { shorter.SetPayload(url, payload); });
  return shorter;
}

grpc::Status to_grpc(const absl::Status& error) {
  const absl::Status status = shortened(error);
  if (status.ok()) return grpc::Status::OK;
  v1::ErrorDetail detail;
  if (const auto rank = rank_of(status); rank.has_value()) detail.set_rank_plus_one(*rank + 1);
  detail.set_retryable(retryable(status));
  detail.set_until_changed(absl::IsUnavailable(status) && !retryable(status));
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      detail.SerializeAsString());
}

absl::StatusOr<JoinRequest> parse(const v1::JoinGroupRequest& request) {
  JoinRequest join;
  join.unique_id = request.unique_id();
  join.name = request.name();
  join.rank = request.rank();
  join.size = request.size();
  join.gpu_uuid = request.gpu_uuid();
  join.slot_bytes = request.slot_bytes();
  join.lsa_size = request.lsa_size();
  join.lease = request.lease();
  join.timeout = Milliseconds(request.timeout_ms());
  return join;
}

absl::StatusOr<WindowRequest> parse(const v1::CreateWindowRequest& request) {
  CCO_ASSIGN_OR_RETURN(Placement placement, parse(request.placement()));
  WindowRequest window;
  window.group = GroupId{request.group_id()};
  window.rank = request.rank();
  window.name = request.name();
  window.sequence = request.sequence();
  window.size_bytes = request.size_bytes();
  if (request.alignment_bytes() != 0) window.alignment = request.alignment_bytes();
  window.placement = placement;
  window.timeout = Milliseconds(request.timeout_ms());
  window.offer = request.offer();
  window.allocation_bytes = request.allocation_bytes();
  window.allocation_offset = request.allocation_offset();
  window.wait_for_memory = Milliseconds(request.wait_for_memory_ms());
  window.keep = Milliseconds(std::min<uint64_t>(request.keep_ms(), INT64_MAX));
  return window;
}

BarrierRequest parse(const v1::BarrierRequest& request) {
  return {.group = GroupId{request.group_id()},
          .rank = request.rank(),
          .sequence = request.sequence(),
          .timeout = Milliseconds(request.timeout_ms()),
          .problem = printable(request.problem(), request.problem().size())};
}

std::string printable(std::string text, size_t most_bytes) {
  if (text.size() > most_bytes) {
    while (most_bytes > 0 && (text[most_bytes] & 0xc0) == 0x80) --most_bytes;
    text.resize(most_bytes);
  }
  std::replace_if(text.begin(), text.end(), absl::ascii_iscntrl, ' ');
  return text;
}

v1::JoinGroupResponse render(const JoinResult& result, uint32_t rank) {
  v1::JoinGroupResponse response;
  response.set_group_id(number(result.group));
  response.set_generation(result.generation);
  response.set_slot_bytes(result.slot_bytes);
  response.set_control_bytes(result.control_bytes);
  response.set_lsa_rank(rank % result.lsa_size);
  response.set_lsa_size(result.lsa_size);
  response.set_lsa_first(rank - rank % result.lsa_size);
  for (size_t i = 0; i < result.gpu_uuids.size(); ++i) {
    v1::Member* member = response.add_members();
    member->set_rank(static_cast<uint32_t>(i));
    member->set_gpu_uuid(result.gpu_uuids[i]);
    member->set_pid(result.pids[i]);
    member->set_state(v1::MEMBER_STATE_LIVE);
  }
  return response;
}

v1::ShrinkGroupResponse render(const ShrinkResult& result) {
  v1::ShrinkGroupResponse response;
  *response.mutable_group() = render(result.joined, result.rank);
  response.set_rank(result.rank);
  return response;
}

v1::CreateWindowResponse render(const WindowResult& result) {
  v1::CreateWindowResponse response;
  response.set_window_id(number(result.window));
  response.set_generation(result.generation);
  response.set_offset(result.offset);
  response.set_slab_index(result.slab_index);
  response.set_descriptor_offset(result.descriptor_offset);
  for (uint64_t offset : result.peer_offsets) response.add_peer_offsets(offset);
  response.set_found(result.found);
  return response;
}

absl::StatusOr<Page> parse_page(uint32_t page_size, const std::string& token) {
  if (page_size > kMaxPage) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size is ", page_size, "; it takes 1 to ", kMaxPage));
  }
  Page page{page_size == 0 ? kDefaultPage : page_size, 0};
  if (!token.empty() && !absl::SimpleAtoi(token, &page.after)) {
    return absl::InvalidArgumentError("page_token is not one that an earlier answer gave");
  }
  return page;
}

absl::StatusOr<v1::ListSessionsResponse> render_sessions(const v1::ListSessionsRequest& request,
                                                         Broker& broker, const Session& caller) {
  CCO_ASSIGN_OR_RETURN(const Page page, parse_page(request.page_size(), request.page_token()));
  v1::ListSessionsResponse response;
  const auto& all = broker.sessions().all();
  for (auto entry = all.upper_bound(SessionId{page.after}); entry != all.end(); ++entry) {
    const Session& session = entry->second;
    if (!broker.may_see(caller, session.tenant)) continue;
    if (response.sessions_size() == static_cast<int>(page.size)) {
      response.set_next_page_token(absl::StrCat(response.sessions(page.size - 1).session_id()));
      break;
    }
    v1::SessionInfo* info = response.add_sessions();
    info->set_session_id(number(session.id));
    info->set_uid(session.who.uid);
    info->set_tenant(broker.tenants().name(session.tenant));
    info->set_gid(session.who.gid);
    info->set_pid(session.who.pid);
    info->set_age_ms(milliseconds(broker.now() - session.since));
    info->set_rank_count(static_cast<uint32_t>(session.ranks.size()));
    info->set_ticket_count(broker.desk().count(session.id));
    info->set_attachment_count(static_cast<uint32_t>(session.attachments.size()));
    info->set_state(broker.is_stalled(session) ? "stalled" : state_name(session.state));
    uint64_t bytes = 0;
    uint32_t windows = 0;
    for (const auto& [group_id, rank] : session.ranks) {
      const Group& group = *broker.groups().at(group_id);
      bytes += broker.slab_bytes(group, rank);
      for (const auto& [id, window] : group.windows) windows += window.users[rank] ? 1 : 0;
    }
    info->set_slab_bytes(bytes);
    info->set_window_count(windows);
  }
  return response;
}

absl::StatusOr<v1::ListGroupsResponse> render_groups(const v1::ListGroupsRequest& request,
                                                     const Broker& broker, const Session& caller) {
  CCO_ASSIGN_OR_RETURN(const Page page, parse_page(request.page_size(), request.page_token()));
  v1::ListGroupsResponse response;
  if (page.after == 0) {  // Those that form have no id yet: all of them come with the first page.
    for (const auto& [key, forming] : broker.forming()) {
      if (broker.may_see(caller, forming.tenant))
        *response.add_groups() = render_forming(forming, broker);
    }
  }
  uint32_t count = 0;
  size_t bytes = 0;
  for (auto entry = broker.groups().upper_bound(GroupId{page.after});
       entry != broker.groups().end(); ++entry) {
    if (!broker.may_see(caller, entry->second->tenant)) continue;
    if (count++ == page.size || bytes >= kMaxPageBytes) {
      response.set_next_page_token(
          absl::StrCat(response.groups(response.groups_size() - 1).group_id()));
      break;
    }
    v1::GroupInfo* info = response.add_groups();
    *info = render_group(*entry->second, broker);
    bytes += info->ByteSizeLong();
  }
  return response;
}

absl::StatusOr<v1::ListWindowsResponse> render_windows(const v1::ListWindowsRequest& request,
                                                       const Broker& broker,
                                                       const Session& caller) {
  CCO_ASSIGN_OR_RETURN(const Page page, parse_page(request.page_size(), request.page_token()));
  // Window ids are unique over all groups, so that they order the whole listing.
  std::vector<std::pair<const Window*, const Group*>> found;
  for (const auto& [id, group] : broker.groups()) {
    if ((request.group_id() != 0 && number(id) != request.group_id()) ||
        !broker.may_see(caller, group->tenant))
      continue;
    for (auto entry = group->windows.upper_bound(WindowId{page.after});
         entry != group->windows.end(); ++entry) {
      found.emplace_back(&entry->second, group.get());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first->id < b.first->id; });
  v1::ListWindowsResponse response;
  for (const auto& [window, group] : found) {
    if (response.windows_size() == static_cast<int>(page.size)) {
      response.set_next_page_token(absl::StrCat(response.windows(page.size - 1).window_id()));
      break;
    }
    v1::WindowInfo* info = response.add_windows();
    info->set_group_id(number(group->id));
    info->set_window_id(number(window->id));
    info->set_name(window->name);
    info->set_offset(window->place.offset);
    info->set_size_bytes(window->size_bytes);
    info->set_generation(window->generation);
    info->set_placement(render(window->placement));
    info->set_slab_index(window->place.slab_index);
    info->set_user_count(
        static_cast<uint32_t>(std::count(window->users.begin(), window->users.end(), true)));
    info->set_keep_ms(milliseconds(window->keep));
    render_sharing(*group, *window, broker, info);
  }
  return response;
}

absl::StatusOr<v1::ListKeptResponse> render_kept(const v1::ListKeptRequest& request,
                                                 const Broker& broker, const Session& caller) {
  CCO_ASSIGN_OR_RETURN(const Page page, parse_page(request.page_size(), request.page_token()));
  v1::ListKeptResponse response;
  const auto& all = broker.kept_windows().all();
  size_t bytes = 0;
  for (auto entry = all.upper_bound(WindowId{page.after}); entry != all.end(); ++entry) {
    const KeptWindow& kept = entry->second;
    if (!broker.may_see(caller, kept.tenant)) continue;
    if (response.windows_size() == static_cast<int>(page.size) || bytes >= kMaxPageBytes) {
      response.set_next_page_token(
          absl::StrCat(response.windows(response.windows_size() - 1).window_id()));
      break;
    }
    v1::KeptWindowInfo* info = response.add_windows();
    info->set_window_id(number(kept.id));
    info->set_tenant(broker.tenants().name(kept.tenant));
    info->set_group_name(kept.group);
    info->set_name(kept.name);
    info->set_size_bytes(kept.size_bytes);
    for (const int gpu : kept.gpus) info->add_gpu_uuids(broker.slabs().gpus()[gpu].uuid);
    info->set_slab_bytes(kept.all_bytes());
    info->set_keep_ms(milliseconds(kept.keep));
    info->set_expires_in_ms(milliseconds(std::max(kept.expires - broker.now(), {})));
    bytes += info->ByteSizeLong();
  }
  return response;
}

absl::StatusOr<v1::ListTenantsResponse> render_tenants(const v1::ListTenantsRequest& request,
                                                       const Broker& broker,
                                                       const Session& caller) {
  CCO_ASSIGN_OR_RETURN(const Page page, parse_page(request.page_size(), request.page_token()));
  v1::ListTenantsResponse response;
  const std::set<TenantId> visible = visible_tenants(broker, caller);
  TenantId last{};
  for (auto id = visible.upper_bound(TenantId{page.after}); id != visible.end(); ++id) {
    if (response.tenants_size() == static_cast<int>(page.size)) {
      response.set_next_page_token(absl::StrCat(number(last)));
      break;
    }
    *response.add_tenants() = render_tenant(*id, broker);
    last = *id;
  }
  return response;
}

absl::StatusOr<v1::ExplainGroupResponse> render_explanation(const v1::ExplainGroupRequest& request,
                                                            const Broker& broker,
                                                            const Session& caller) {
  const auto found = broker.groups().find(GroupId{request.group_id()});
  if (found == broker.groups().end() || !broker.may_see(caller, found->second->tenant)) {
    return absl::NotFoundError(absl::StrCat("no group ", request.group_id(),
                                            " that this user may see; `ccoctl groups` lists them"));
  }
  CCO_ASSIGN_OR_RETURN(const Page page, parse_page(request.page_size(), request.page_token()));
  const Group& group = *found->second;
  v1::ExplainGroupResponse response;
  if (page.after == 0) *response.mutable_group() = render_group(group, broker);
  const uint64_t count = uint64_t{group.size()} * group.size();
  uint64_t next = page.after;  // A token is the number of the next pair.
  for (; next < count && response.pairs_size() < static_cast<int>(page.size); ++next) {
    render_pair(group, static_cast<uint32_t>(next / group.size()),
                static_cast<uint32_t>(next % group.size()), broker, response.add_pairs());
  }
  if (next < count) response.set_next_page_token(absl::StrCat(next));
  return response;
}

}  // namespace cco::memd
