#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cco/memd/state/v1/state.pb.h"
#include "daemon/state/records.h"

namespace cco::memd {
namespace {

namespace v1 = ::cco::memd::state::v1;

void fill(const Identity& who, v1::Process* process) {
  process->set_uid(who.uid);
  process->set_gid(who.gid);
  process->set_pid(who.pid);
  process->set_is_operator(who.is_operator);
  process->set_cgroup(who.cgroup);
}

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

v1::Rank::State state_of(MemberState state) {
  switch (state) {
    case MemberState::kLive:
      return v1::Rank::STATE_LIVE;
    case MemberState::kLost:
      return v1::Rank::STATE_LOST;
    case MemberState::kLeft:
      return v1::Rank::STATE_LEFT;
  }
  return v1::Rank::STATE_UNSPECIFIED;
}

v1::Window::Placement placement_of(Placement placement) {
  switch (placement) {
    case Placement::kHeap:
      return v1::Window::PLACEMENT_HEAP;
    case Placement::kControl:
      return v1::Window::PLACEMENT_CONTROL;
    case Placement::kExternal:
      return v1::Window::PLACEMENT_EXTERNAL;
  }
  return v1::Window::PLACEMENT_UNSPECIFIED;
}

void fill(const Reports& from, v1::Reports* to) {
  std::map<const Reports::Finding*, uint32_t> numbers;
  for (uint32_t key = 0; key < from.end(); ++key) {
    const Reports::Finding* finding = from.find(key);
    uint32_t number = 0;
    if (finding != nullptr) {
      const auto [entry, is_new] =
          numbers.emplace(finding, static_cast<uint32_t>(numbers.size()) + 1);
      number = entry->second;
      if (is_new) {
        v1::Finding* added = to->add_findings();
        added->set_is_good(finding->is_good);
        added->set_provider(finding->provider);
        added->set_detail(finding->detail);
      }
    }
    to->add_finding_of(number);
  }
}

void fill(uint32_t index, const SlabSet& from, v1::SlabSet* to) {
  to->set_index(index);
  for (const SlabId id : from.ids) to->add_slab_ids(number(id));
  to->mutable_offsets()->Add(from.offsets.begin(), from.offsets.end());
  to->mutable_sizes()->Add(from.sizes.begin(), from.sizes.end());
  to->set_is_external(from.is_external);
  to->set_reserved_offset(from.reserved_offset);
  to->set_reserved_bytes(from.reserved_bytes);
  to->set_is_kept(from.is_kept);
}

}  // namespace

std::string record_key(SessionId id) { return absl::StrCat(number(id)); }
std::string record_key(SlabId id) { return absl::StrCat(number(id)); }
std::string record_key(LeaseId id) { return absl::StrCat(number(id)); }
std::string record_key(WindowId kept) { return absl::StrCat(number(kept)); }
std::string record_key(AttachmentId id) { return absl::StrCat(number(id)); }
std::string record_key(GroupId id) { return absl::StrCat(number(id)); }
std::string record_key(GroupId group, uint32_t rank) {
  return absl::StrCat(number(group), "/", rank);
}
std::string record_key(GroupId group, WindowId window) {
  return absl::StrCat(number(group), "/", number(window));
}
std::string record_key(SessionId session, const std::string& request_id) {
  return absl::StrCat(number(session), "/", absl::BytesToHexString(request_id));
}
std::string vault_name(SessionId id) { return absl::StrCat("session-", number(id)); }
std::string vault_name(SlabId id) { return absl::StrCat("slab-", number(id)); }
std::string vault_name(GroupId group, uint32_t rank) {
  return absl::StrCat("notice-", number(group), "-", rank);
}

std::string encode(const DaemonFacts& facts) {
  v1::Daemon record;
  record.set_driver(facts.driver);
  record.set_incarnation(facts.incarnation);
  record.set_last_session_id(facts.last_ids.session);
  record.set_last_slab_id(facts.last_ids.slab);
  record.set_last_group_id(facts.last_ids.group);
  record.set_last_window_id(facts.last_ids.window);
  record.set_last_generation(facts.last_ids.generation);
  record.set_last_lease_id(facts.last_ids.lease);
  record.set_last_attachment_id(facts.last_ids.attachment);
  return record.SerializeAsString();
}

std::string encode(const GpuDevice& gpu, const GpuDrain* drain) {
  v1::Gpu record;
  record.set_uuid(gpu.uuid);
  record.set_pci_bus_id(gpu.pci_bus_id);
  record.set_name(gpu.name);
  record.set_arch(gpu.arch);
  record.set_total_bytes(gpu.total_bytes);
  record.set_granularity_bytes(gpu.granularity_bytes);
  record.set_preferred_slab_bytes(gpu.preferred_slab_bytes);
  record.set_state(v1::Gpu::STATE_SERVING);
  if (drain == nullptr) return record.SerializeAsString();
  const bool is_drained = drain->service == GpuService::kDrained;
  record.set_state(is_drained ? v1::Gpu::STATE_DRAINED : v1::Gpu::STATE_DRAINING);
  record.set_deadline_ns(nanoseconds(drain->deadline));
  return record.SerializeAsString();
}

std::string encode(const Session& session) {
  v1::Session record;
  record.set_id(number(session.id));
  record.set_token(session.token);
  fill(session.who, record.mutable_process());
  record.set_since_ns(nanoseconds(session.since));
  record.set_is_lost(session.state == SessionState::kLost);
  return record.SerializeAsString();
}

std::string encode(SlabId id, const SlabTable::Slab& slab, const Gpus& gpus) {
  v1::Slab record;
  record.set_id(number(id));
  record.set_gpu_uuid(gpus[static_cast<size_t>(slab.gpu)].uuid);
  record.set_size_bytes(slab.size_bytes);
  record.set_is_external(slab.is_external);
  record.set_lease_id(number(slab.payer.lease));
  return record.SerializeAsString();
}

std::string encode(const Lease& lease, const Gpus& gpus) {
  v1::Lease record;
  record.set_id(number(lease.id));
  record.set_token(lease.token);
  for (const int gpu : lease.gpus) record.add_gpu_uuids(gpus[static_cast<size_t>(gpu)].uuid);
  record.set_bytes_per_gpu(lease.bytes_per_gpu);
  record.set_tenant(lease.tenant);
  record.set_cgroup(lease.cgroup);
  record.set_expires_ns(nanoseconds(lease.expires));
  return record.SerializeAsString();
}

std::string encode(const Group& group) {
  v1::Group record;
  record.set_id(number(group.id));
  record.set_generation(group.generation);
  record.set_uid(group.ranks[0].who.uid);
  record.set_name(group.name);
  record.set_unique_id(group.unique_id);
  record.set_size(group.size());
  record.set_lsa_size(group.lsa_size);
  record.set_slot_bytes(group.heap.slot_bytes());
  record.set_control_bytes(group.heap.control_bytes());
  record.set_granularity_bytes(group.heap.granularity_bytes());
  record.set_epoch(group.epoch);
  record.set_abort_word(group.abort_word);
  record.set_abort_reason(group.abort_reason);
  if (group.abort_rank.has_value()) record.set_abort_rank(*group.abort_rank);
  for (const auto& [index, set] : group.slabs) fill(index, set, record.add_slabs());
  record.set_next_slab_index(group.next_slab_index);
  record.set_lease_id(number(group.lease));
  return record.SerializeAsString();
}

std::string encode(const Group& group, uint32_t rank, const Gpus& gpus) {
  const Rank& member = group.ranks[rank];
  v1::Rank record;
  record.set_group_id(number(group.id));
  record.set_rank(rank);
  record.set_session_id(number(member.session));
  fill(member.who, record.mutable_process());
  record.set_gpu_uuid(gpus[static_cast<size_t>(member.gpu)].uuid);
  record.set_state(state_of(member.state));
  record.set_may_map(member.may_map);
  if (member.peers.end() > 0) fill(member.peers, record.mutable_peer_reports());
  if (member.transports.end() > 0) fill(member.transports, record.mutable_transport_reports());
  return record.SerializeAsString();
}

std::string encode(const Group& group, const Window& window) {
  v1::Window record;
  record.set_group_id(number(group.id));
  record.set_id(number(window.id));
  record.set_name(window.name);
  record.set_generation(window.generation);
  record.set_size_bytes(window.size_bytes);
  record.set_placement(placement_of(window.placement));
  record.set_slab_index(window.place.slab_index);
  record.set_offset(window.place.offset);
  record.set_descriptor_offset(window.descriptor_offset);
  record.mutable_peer_offsets()->Add(window.peer_offsets.begin(), window.peer_offsets.end());
  for (const bool uses : window.users) record.add_users(uses);
  record.set_keep_ms(static_cast<uint64_t>(window.keep.count()));
  for (const Grant& from : window.grants) {
    v1::Grant* to = record.add_grants();
    to->set_token(from.token);
    to->set_tenant(from.tenant);
    to->set_may_write(from.access == Access::kReadWrite);
  }
  return record.SerializeAsString();
}

std::string encode(const KeptWindow& window) {
  v1::KeptWindow record;
  record.set_id(number(window.id));
  fill(window.owner, record.mutable_owner());
  record.set_group_name(window.group);
  record.set_name(window.name);
  record.set_size_bytes(window.size_bytes);
  for (const SlabId id : window.slabs) record.add_slab_ids(number(id));
  record.set_offset(window.offset);
  record.set_slab_bytes(window.slab_bytes);
  record.set_keep_ms(static_cast<uint64_t>(window.keep.count()));
  record.set_expires_ns(nanoseconds(window.expires));
  return record.SerializeAsString();
}

std::string encode(const Attachment& attachment) {
  v1::Attachment record;
  record.set_id(number(attachment.id));
  record.set_session_id(number(attachment.session));
  fill(attachment.owner, record.mutable_owner());
  record.set_may_write(attachment.access == Access::kReadWrite);
  record.set_size_bytes(attachment.size_bytes);
  for (const SlabId id : attachment.slabs) record.add_slab_ids(number(id));
  return record.SerializeAsString();
}

std::string encode(SessionId session, const std::string& request_id,
                   const RequestLog::Entry& answer, uint64_t sequence) {
  v1::Answer record;
  record.set_session_id(number(session));
  record.set_request_id(request_id);
  record.set_request(answer.request);
  record.set_sequence(sequence);
  record.set_code(static_cast<int32_t>(answer.outcome.status.code()));
  record.set_message(std::string(answer.outcome.status.message()));
  answer.outcome.status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    (*record.mutable_details())[std::string(url)] = std::string(payload);
  });
  record.set_response(answer.outcome.response);
  return record.SerializeAsString();
}

}  // namespace cco::memd
