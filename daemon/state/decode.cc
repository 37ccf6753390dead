#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "cco/memd/state/v1/state.pb.h"
#include "client/base/status_macros.h"
#include "daemon/state/records.h"

namespace cco::memd {
namespace {

namespace v1 = ::cco::memd::state::v1;

constexpr uint32_t kMaxRanks = 1024;
// Address space, not memory: a slot is at most 4 TiB.
constexpr uint64_t kMaxBytes = uint64_t{1} << 42;

absl::Status contradiction(const std::string& what) {
  return absl::InternalError(
      absl::StrCat("the records contradict each other: ", what,
                   ". Nothing has been changed; move the state folder away to start with nothing"));
}

Identity identity(const v1::Process& process) {
  return {process.uid(), process.gid(), process.pid(), process.is_operator(), process.cgroup()};
}

Access access(bool may_write) { return may_write ? Access::kReadWrite : Access::kReadOnly; }

std::optional<int> find_gpu(const Gpus& gpus, const std::string& uuid) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid == uuid) return static_cast<int>(i);
  }
  return std::nullopt;
}

GpuDevice device(const v1::Gpu& record) {
  return {.uuid = record.uuid(),
          .pci_bus_id = record.pci_bus_id(),
          .name = record.name(),
          .arch = record.arch(),
          .total_bytes = record.total_bytes(),
          .granularity_bytes = record.granularity_bytes(),
          .preferred_slab_bytes = record.preferred_slab_bytes()};
}

// Those about less than `end`.
Reports decode_reports(const v1::Reports& record, uint32_t end) {
  Reports reports;
  const auto count = std::min(end, static_cast<uint32_t>(record.finding_of_size()));
  for (uint32_t key = 0; key < count; ++key) {
    const uint32_t number = record.finding_of(static_cast<int>(key));
    if (number == 0 || number > static_cast<uint32_t>(record.findings_size())) continue;
    const v1::Finding& finding = record.findings(static_cast<int>(number) - 1);
    reports.set(key, {finding.is_good(), finding.provider(), finding.detail()});
  }
  return reports;
}

void decode_reports(const v1::Rank& record, uint32_t size, Rank& rank) {
  constexpr auto kCount = static_cast<uint32_t>(kReportedTransports.size());
  rank.peers = decode_reports(record.peer_reports(), size);
  rank.transports = decode_reports(record.transport_reports(), size * kCount);
  for (const v1::PeerReport& old : record.peers()) {
    if (old.rank() < size) rank.peers.set(old.rank(), {old.reachable(), "", old.detail()});
  }
  for (const v1::TransportReport& old : record.transports()) {
    const auto name = absl::c_find(kReportedTransports, old.transport());
    if (old.peer() >= size || name == kReportedTransports.end()) continue;
    rank.transports.set(
        old.peer() * kCount + static_cast<uint32_t>(name - kReportedTransports.begin()),
        {old.usable(), old.provider(), old.detail()});
  }
}

// All records, parsed, by key.
struct Messages {
  v1::Daemon daemon;
  std::map<std::string, v1::Gpu> gpus;
  std::map<uint64_t, v1::Session> sessions;
  std::map<uint64_t, v1::Slab> slabs;
  std::map<uint64_t, v1::Lease> leases;
  std::map<uint64_t, v1::Group> groups;
  std::map<std::pair<uint64_t, uint32_t>, v1::Rank> ranks;
  std::map<std::pair<uint64_t, uint64_t>, v1::Window> windows;
  std::map<uint64_t, v1::Answer> answers;  // By sequence.
  std::map<uint64_t, v1::KeptWindow> kept_windows;
  std::map<uint64_t, v1::Attachment> attachments;
};

bool parse(const Record& record, Messages* messages) {
  const auto take = [&](auto message, auto&& into) {
    if (!message.ParseFromString(record.body)) return false;
    into(std::move(message));
    return true;
  };
  switch (record.kind) {
    case RecordKind::kDaemon:
      return take(v1::Daemon(), [&](v1::Daemon m) { messages->daemon = std::move(m); });
    case RecordKind::kGpu:
      return take(v1::Gpu(), [&](v1::Gpu m) { messages->gpus[m.uuid()] = std::move(m); });
    case RecordKind::kSession:
      return take(v1::Session(), [&](v1::Session m) { messages->sessions[m.id()] = std::move(m); });
    case RecordKind::kSlab:
      return take(v1::Slab(), [&](v1::Slab m) { messages->slabs[m.id()] = std::move(m); });
    case RecordKind::kLease:
      return take(v1::Lease(), [&](v1::Lease m) { messages->leases[m.id()] = std::move(m); });
    case RecordKind::kGroup:
      return take(v1::Group(), [&](v1::Group m) { messages->groups[m.id()] = std::move(m); });
    case RecordKind::kRank:
      return take(v1::Rank(), [&](v1::Rank m) {
        messages->ranks[{m.group_id(), m.rank()}] = std::move(m);
      });
    case RecordKind::kWindow:
      return take(v1::Window(), [&](v1::Window m) {
        messages->windows[{m.group_id(), m.id()}] = std::move(m);
      });
    case RecordKind::kAnswer:
      return take(v1::Answer(),
                  [&](v1::Answer m) { messages->answers[m.sequence()] = std::move(m); });
    case RecordKind::kKeptWindow:
      return take(v1::KeptWindow(),
                  [&](v1::KeptWindow m) { messages->kept_windows[m.id()] = std::move(m); });
    case RecordKind::kAttachment:
      return take(v1::Attachment(),
                  [&](v1::Attachment m) { messages->attachments[m.id()] = std::move(m); });
  }
  return false;
}

class Decoder {
 public:
  Decoder(Messages messages, std::map<std::string, UniqueFd>* fds, const Gpus& gpus,
          NoticeBoard& notices)
      : messages_(std::move(messages)), fds_(*fds), gpus_(gpus), notices_(notices) {}

  absl::StatusOr<Decoded> run() {
    decode_daemon();
    decode_gpus();
    for (const auto& [id, record] : messages_.sessions) decode_session(record);
    for (const auto& [id, record] : messages_.slabs) decode_slab(record);
    for (const auto& [id, record] : messages_.leases) CCO_RETURN_IF_ERROR(decode_lease(record));
    for (const auto& [id, record] : messages_.groups) CCO_RETURN_IF_ERROR(decode_group(record));
    for (const auto& [key, record] : messages_.ranks) {
      if (messages_.groups.count(key.first) == 0) {
        return contradiction(absl::StrCat("rank ", key.second, " is of no group ", key.first));
      }
    }
    for (const auto& [key, record] : messages_.windows) {
      if (messages_.groups.count(key.first) == 0) {
        return contradiction(absl::StrCat("window ", key.second, " is of no group ", key.first));
      }
    }
    for (const auto& [id, record] : messages_.kept_windows) {
      CCO_RETURN_IF_ERROR(decode_kept_window(record));
    }
    for (const auto& [id, record] : messages_.attachments) {
      CCO_RETURN_IF_ERROR(decode_attachment(record));
    }
    decode_answers();
    drop_unused_slabs();
    return std::move(result_);
  }

 private:
  void decode_daemon() {
    const v1::Daemon& record = messages_.daemon;
    result_.facts = {record.driver(),
                     record.incarnation(),
                     {record.last_session_id(), record.last_slab_id(), record.last_group_id(),
                      record.last_window_id(), record.last_generation(), record.last_lease_id(),
                      record.last_attachment_id()}};
    result_.state.last_ids = result_.facts.last_ids;
  }

  void decode_gpus() {
    for (const auto& [uuid, record] : messages_.gpus) {
      std::optional<int> gpu = find_gpu(gpus_, uuid);
      const bool is_drained = record.state() == v1::Gpu::STATE_DRAINED;
      if (!gpu.has_value() && is_drained) {
        gpu = static_cast<int>(gpus_.size());
        gpus_.push_back(device(record));
        result_.closed.push_back(gpus_.back());
      }
      if (!gpu.has_value() || record.state() == v1::Gpu::STATE_SERVING) continue;
      result_.state.drains[*gpu] = {is_drained ? GpuService::kDrained : GpuService::kDraining,
                                    TimePoint(std::chrono::nanoseconds(record.deadline_ns()))};
    }
  }

  UniqueFd take_fd(const std::string& name) {
    const auto found = fds_.find(name);
    if (found == fds_.end()) return UniqueFd();
    result_.vault_names.insert(name);
    UniqueFd fd = std::move(found->second);
    fds_.erase(found);
    return fd;
  }

  void decode_session(const v1::Session& record) {
    Session session;
    session.id = SessionId{record.id()};
    session.token = record.token();
    session.who = identity(record.process());
    if (UniqueFd process = take_fd(vault_name(session.id)); process) {
      session.process = std::make_shared<UniqueFd>(std::move(process));
    }
    session.since = TimePoint(std::chrono::nanoseconds(record.since_ns()));
    if (record.is_lost()) session.state = SessionState::kLost;
    result_.state.sessions.push_back(std::move(session));
  }

  void decode_slab(const v1::Slab& record) {
    const SlabId id{record.id()};
    const std::optional<int> gpu = find_gpu(gpus_, record.gpu_uuid());
    UniqueFd fd = take_fd(vault_name(id));
    if (!gpu.has_value() || !fd) {
      result_.losses.push_back(absl::StrCat(
          "slab ", record.id(), " of ", record.size_bytes(), " bytes on ", record.gpu_uuid(), ": ",
          gpu.has_value() ? "its descriptor is gone" : "the GPU is gone"));
      result_.changes.slabs.insert(id);
      return;
    }
    result_.state.slabs.emplace(id, SlabTable::Slab{*gpu,
                                                    record.is_external(),
                                                    record.size_bytes(),
                                                    SlabState::kLive,
                                                    SlabMemory{GpuMemory(), std::move(fd)},
                                                    {TenantId{}, LeaseId{record.lease_id()}}});
  }

  absl::Status decode_lease(const v1::Lease& record) {
    Lease lease;
    lease.id = LeaseId{record.id()};
    lease.token = record.token();
    lease.bytes_per_gpu = record.bytes_per_gpu();
    lease.tenant = record.tenant();
    lease.cgroup = record.cgroup();
    lease.expires = TimePoint(std::chrono::nanoseconds(record.expires_ns()));
    if (record.id() == 0 || record.bytes_per_gpu() == 0 || record.bytes_per_gpu() > kMaxBytes ||
        record.token().empty() || record.gpu_uuids().empty()) {
      return contradiction(absl::StrCat("lease ", record.id(), " keeps nothing for anybody"));
    }
    for (const std::string& uuid : record.gpu_uuids()) {
      const std::optional<int> gpu = find_gpu(gpus_, uuid);
      if (!gpu.has_value()) {
        result_.losses.push_back(
            absl::StrCat("lease ", record.id(), ": its GPU ", uuid, " is gone"));
        result_.changes.leases.insert(lease.id);
        return absl::OkStatus();
      }
      lease.gpus.push_back(*gpu);
    }
    std::sort(lease.gpus.begin(), lease.gpus.end());  // The next driver may count otherwise.
    result_.state.leases.push_back(std::move(lease));
    return absl::OkStatus();
  }

  absl::Status decode_group(const v1::Group& record) {
    const auto wrong = [&](const std::string& what) {
      return contradiction(absl::StrCat("group ", record.id(), " ", what));
    };
    const uint64_t granularity = record.granularity_bytes(), slot = record.slot_bytes(),
                   control = record.control_bytes();
    const bool has_layout = granularity != 0 && (granularity & (granularity - 1)) == 0 &&
                            slot <= kMaxBytes && slot % granularity == 0 &&
                            control % granularity == 0 && control > kSelfTestBytes &&
                            slot > control;
    if (!has_layout || record.size() == 0 || record.size() > kMaxRanks) {
      return wrong("has no possible layout");
    }
    auto group = std::make_unique<Group>(GroupId{record.id()}, Heap(slot, control, granularity));
    group->generation = record.generation();
    group->name = record.name();
    group->unique_id = record.unique_id();
    group->lsa_size = record.lsa_size();
    group->epoch = record.epoch();
    group->abort_word = record.abort_word();
    group->abort_reason = record.abort_reason();
    if (record.has_abort_rank()) group->abort_rank = record.abort_rank();
    group->next_slab_index = record.next_slab_index();
    group->lease = LeaseId{record.lease_id()};
    bool has_gpus = true;
    for (uint32_t rank = 0; rank < record.size(); ++rank) {
      const auto member = messages_.ranks.find({record.id(), rank});
      if (member == messages_.ranks.end()) return wrong(absl::StrCat("has no rank ", rank));
      CCO_RETURN_IF_ERROR(decode_rank(*group, member->second, record.size(), &has_gpus));
    }
    if (!has_gpus) {
      forget(*group, record);
      return absl::OkStatus();
    }
    for (const v1::SlabSet& set : record.slabs()) {
      if (!decode_slabs(*group, set)) {
        return wrong(absl::StrCat("has no place for its slab ", set.index()));
      }
    }
    for (auto window = messages_.windows.lower_bound({record.id(), 0});
         window != messages_.windows.end() && window->first.first == record.id(); ++window) {
      if (!decode_window(*group, window->second)) {
        return wrong(absl::StrCat("has no place for its window ", window->first.second));
      }
    }
    result_.state.groups.push_back(std::move(group));
    return absl::OkStatus();
  }

  absl::Status decode_rank(Group& group, const v1::Rank& record, uint32_t size, bool* has_gpus) {
    Rank rank;
    rank.session = SessionId{record.session_id()};
    rank.who = identity(record.process());
    const std::optional<int> gpu = find_gpu(gpus_, record.gpu_uuid());
    *has_gpus &= gpu.has_value();
    rank.gpu = gpu.value_or(0);
    rank.state = record.state() == v1::Rank::STATE_LIVE   ? MemberState::kLive
                 : record.state() == v1::Rank::STATE_LOST ? MemberState::kLost
                                                          : MemberState::kLeft;
    rank.may_map = record.may_map();
    if (rank.may_map && messages_.sessions.count(record.session_id()) == 0) {
      return contradiction(absl::StrCat("rank ", record.rank(), " of group ", record.group_id(),
                                        " is of no session ", record.session_id()));
    }
    UniqueFd page = take_fd(vault_name(group.id, record.rank()));
    if (page) {
      CCO_ASSIGN_OR_RETURN(rank.notice, notices_.adopt_page(std::move(page)));
    } else {  // Nobody will see it.
      lose(group, record.rank(), "the descriptor of its notice page is gone");
      CCO_ASSIGN_OR_RETURN(rank.notice, notices_.create_page(size));
    }
    decode_reports(record, size, rank);
    group.ranks.push_back(std::move(rank));
    return absl::OkStatus();
  }

  bool decode_slabs(Group& group, const v1::SlabSet& record) {
    const int ranks = static_cast<int>(group.size());
    if (record.slab_ids_size() != ranks || record.offsets_size() != ranks ||
        record.sizes_size() != ranks || record.index() >= group.next_slab_index) {
      return false;
    }
    SlabSet set;
    set.offsets.assign(record.offsets().begin(), record.offsets().end());
    set.sizes.assign(record.sizes().begin(), record.sizes().end());
    set.is_external = record.is_external();
    set.reserved_offset = record.reserved_offset();
    set.reserved_bytes = record.reserved_bytes();
    set.is_kept = record.is_kept();
    for (int rank = 0; rank < ranks; ++rank) {
      SlabId id{record.slab_ids(rank)};
      if (id != SlabId{} && !used_slabs_.insert(id).second) return false;  // Of two owners.
      if (id != SlabId{} && result_.state.slabs.count(id) == 0) {
        if (messages_.slabs.count(number(id)) == 0) return false;
        lose(group, static_cast<uint32_t>(rank), "the descriptor of its memory is gone");
        id = SlabId{};
      }
      set.ids.push_back(id);
    }
    if (record.index() != 0) {
      if (!group.heap.take_reserved(set.reserved_offset, set.reserved_bytes)) return false;
      if (!set.is_external && !set.is_kept) {
        group.heap.add_slab(record.index(), set.reserved_offset, set.reserved_bytes);
      }
    }
    return group.slabs.emplace(record.index(), std::move(set)).second;
  }

  static bool decode_window(Group& group, const v1::Window& record) {
    Window window;
    window.id = WindowId{record.id()};
    window.name = record.name();
    window.generation = record.generation();
    window.size_bytes = record.size_bytes();
    window.place = {record.slab_index(), record.offset()};
    window.descriptor_offset = record.descriptor_offset();
    window.peer_offsets.assign(record.peer_offsets().begin(), record.peer_offsets().end());
    window.users.assign(record.users().begin(), record.users().end());
    window.keep = Milliseconds(record.keep_ms());
    for (const v1::Grant& grant : record.grants()) {
      window.grants.push_back({grant.token(), grant.tenant(), access(grant.may_write())});
    }
    const bool is_kept = window.keep.count() != 0;
    if (window.users.size() != group.size() || window.size_bytes == 0) return false;
    if (!window.is_used() && !is_kept) return false;
    const auto set = group.slabs.find(record.slab_index());
    if (set == group.slabs.end() || set->second.is_kept != is_kept) return false;
    if (!group.heap.take_control(window.descriptor_offset, group.descriptor_bytes())) return false;
    switch (record.placement()) {
      case v1::Window::PLACEMENT_HEAP:
        window.placement = Placement::kHeap;
        if (is_kept && window.place.offset != set->second.reserved_offset) return false;
        if (!is_kept && !group.heap.take(window.place, window.size_bytes)) return false;
        break;
      case v1::Window::PLACEMENT_CONTROL:
        window.placement = Placement::kControl;
        if (!group.heap.take_control(window.place.offset, window.size_bytes)) return false;
        break;
      case v1::Window::PLACEMENT_EXTERNAL:
        window.placement = Placement::kExternal;
        if (window.peer_offsets.size() != group.size() || !set->second.is_external) {
          return false;
        }
        break;
      default:
        return false;
    }
    return group.windows.emplace(window.id, std::move(window)).second;
  }

  // Whole, or not at all.
  absl::Status decode_kept_window(const v1::KeptWindow& record) {
    const auto wrong = [&](const std::string& what) {
      return contradiction(absl::StrCat("kept window ", record.id(), " ", what));
    };
    KeptWindow window;
    window.id = WindowId{record.id()};
    window.owner = identity(record.owner());
    window.group = record.group_name();
    window.name = record.name();
    window.size_bytes = record.size_bytes();
    window.offset = record.offset();
    window.slab_bytes = record.slab_bytes();
    window.keep = Milliseconds(record.keep_ms());
    window.expires = TimePoint(std::chrono::nanoseconds(record.expires_ns()));
    if (record.slab_ids().empty() || window.size_bytes == 0 || window.keep.count() <= 0) {
      return wrong("has no size");
    }
    bool is_whole = true;
    for (const uint64_t number : record.slab_ids()) {
      if (messages_.slabs.count(number) == 0) return wrong(absl::StrCat("has no slab ", number));
      if (!used_slabs_.insert(SlabId{number}).second) {
        return wrong(absl::StrCat("has slab ", number, " of another owner"));
      }
      const auto slab = result_.state.slabs.find(SlabId{number});
      is_whole &= slab != result_.state.slabs.end();
      if (!is_whole) continue;
      if (slab->second.size_bytes != window.slab_bytes || slab->second.is_external) {
        return wrong(absl::StrCat("does not fit slab ", number));
      }
      window.slabs.push_back(slab->first);
      window.gpus.push_back(slab->second.gpu);
    }
    if (is_whole) {
      result_.state.kept_windows.push_back(std::move(window));
      return absl::OkStatus();
    }
    for (const uint64_t number : record.slab_ids()) used_slabs_.erase(SlabId{number});
    result_.changes.kept_windows.insert(window.id);
    result_.losses.push_back(absl::StrCat("kept window '", window.name, "' of group '",
                                          window.group, "': a part of its memory is gone"));
    return absl::OkStatus();
  }

  // After all others who own slabs: what is left is the attachments' alone.
  absl::Status decode_attachment(const v1::Attachment& record) {
    if (messages_.sessions.count(record.session_id()) == 0) {
      return contradiction(
          absl::StrCat("attachment ", record.id(), " is of no session ", record.session_id()));
    }
    Attachment attachment;
    attachment.id = AttachmentId{record.id()};
    attachment.session = SessionId{record.session_id()};
    attachment.owner = identity(record.owner());
    attachment.access = access(record.may_write());
    attachment.size_bytes = record.size_bytes();
    for (const uint64_t number : record.slab_ids()) {
      const bool is_there = result_.state.slabs.count(SlabId{number}) != 0;
      attachment.slabs.push_back(is_there ? SlabId{number} : SlabId{});
      if (is_there) used_slabs_.insert(SlabId{number});
    }
    result_.state.attachments.push_back(std::move(attachment));
    return absl::OkStatus();
  }

  void decode_answers() {
    for (const auto& [sequence, record] : messages_.answers) {
      absl::Status status(static_cast<absl::StatusCode>(record.code()), record.message());
      for (const auto& [url, payload] : record.details()) {
        status.SetPayload(url, absl::Cord(payload));
      }
      result_.answers.push_back({SessionId{record.session_id()},
                                 record.request_id(),
                                 record.request(),
                                 {std::move(status), record.response()}});
      result_.last_answer = sequence;
    }
  }

  // Memory of this rank cannot be handed out any more; what is mapped stays.
  void lose(Group& group, uint32_t rank, const std::string& why) {
    if (result_.changes.groups.insert(group.id).second) {
      result_.losses.push_back(
          absl::StrCat("group ", number(group.id), ": of rank ", rank, " ", why));
    }
    if (group.abort_word != 0) return;
    group.abort_word = CCO_ABORT_WORD(CCO_ABORT_PEER_LOST, rank);
    group.abort_rank = rank;
    group.abort_reason = absl::StrCat("cco-memd and what kept its descriptors have both ended; ",
                                      "of rank ", rank, " ", why);
  }

  void forget(const Group& group, const v1::Group& record) {
    result_.losses.push_back(absl::StrCat("group ", record.id(), " of ", record.size(),
                                          " ranks: one of its GPUs is gone"));
    result_.changes.groups.insert(group.id);
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
      result_.changes.ranks.emplace(group.id, rank);
      result_.vault_names.erase(vault_name(group.id, rank));
    }
    for (auto window = messages_.windows.lower_bound({record.id(), 0});
         window != messages_.windows.end() && window->first.first == record.id(); ++window) {
      result_.changes.windows.emplace(group.id, WindowId{window->first.second});
    }
  }

  void drop_unused_slabs() {
    for (auto slab = result_.state.slabs.begin(); slab != result_.state.slabs.end();) {
      if (used_slabs_.count(slab->first) != 0) {
        ++slab;
        continue;
      }
      result_.changes.slabs.insert(slab->first);
      result_.vault_names.erase(vault_name(slab->first));
      slab = result_.state.slabs.erase(slab);
    }
  }

  const Messages messages_;
  std::map<std::string, UniqueFd>& fds_;
  Gpus gpus_;
  NoticeBoard& notices_;
  std::set<SlabId> used_slabs_;
  Decoded result_;
};

absl::StatusOr<Messages> parse(const std::vector<Record>& records) {
  Messages messages;
  for (const Record& record : records) {
    if (!parse(record, &messages)) {
      return contradiction(absl::StrCat("record ", record.key, " of kind ",
                                        static_cast<int>(record.kind), " cannot be read"));
    }
  }
  return messages;
}

}  // namespace

absl::StatusOr<RecordedGpus> decode_gpus(const std::vector<Record>& records) {
  CCO_ASSIGN_OR_RETURN(const Messages messages, parse(records));
  RecordedGpus gpus;
  gpus.driver = messages.daemon.driver();
  for (const auto& [uuid, record] : messages.gpus) {
    const bool is_drained = record.state() == v1::Gpu::STATE_DRAINED;
    gpus.any_drained |= is_drained;
    if (!is_drained) gpus.visible.push_back(uuid);
  }
  return gpus;
}

absl::StatusOr<Decoded> decode(const std::vector<Record>& records,
                               std::map<std::string, UniqueFd>* fds, const Gpus& gpus,
                               NoticeBoard& notices) {
  CCO_ASSIGN_OR_RETURN(Messages messages, parse(records));
  return Decoder(std::move(messages), fds, gpus, notices).run();
}

}  // namespace cco::memd
