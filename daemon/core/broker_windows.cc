// Broker: windows, and the slabs they need.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
constexpr uint64_t kExternalAlignment = 16;

const char* placement_name(Placement placement) {
  switch (placement) {
    case Placement::kHeap:
      return "heap";
    case Placement::kControl:
      return "control region";
    case Placement::kExternal:
      return "external memory";
  }
  return "";
}

WindowResult result_of(const Window& window) {
  return {window.id,
          window.generation,
          window.place.offset,
          window.place.slab_index,
          window.descriptor_offset,
          window.peer_offsets,
          window.found};
}

std::string describe(const WindowRequest& request) {
  return absl::StrCat(request.size_bytes, " bytes of ", placement_name(request.placement),
                      " at alignment ", request.alignment, ", keep_ms ", request.keep.count(),
                      " with wait_for_memory_ms ", request.wait_for_memory.count());
}

}  // namespace

absl::Status Broker::check_window(Group& group, const WindowRequest& request) const {
  const auto invalid = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  const uint64_t room = group.heap.slot_bytes() - group.heap.control_bytes();
  if (request.size_bytes == 0) return invalid("the window's size is 0 bytes; it takes at least 1");
  if (request.size_bytes > room) {
    return invalid("the window's size is ", request.size_bytes,
                   " bytes; a slot of this group has room for ", room,
                   ". Form the group with larger slot_bytes");
  }
  if ((request.alignment & (request.alignment - 1)) != 0 || request.alignment < kWindowAlignment ||
      request.alignment > kMaxAlignment) {
    return invalid("alignment_bytes is ", request.alignment, "; it takes a power of two from ",
                   kWindowAlignment, " to ", kMaxAlignment);
  }
  CCO_RETURN_IF_ERROR(check_name("window", request.name));
  CCO_RETURN_IF_ERROR(check_keep(group, request));
  if (request.placement == Placement::kExternal) {
    if (!tenants().terms(group.tenant).external_memory) {
      return absl::PermissionDeniedError(absl::StrCat(
          "tenant '", tenants().name(group.tenant),
          "' may not register memory of its own: external_memory is false in cco-memd's "
          "configuration. Make the window from the heap"));
    }
    const uint64_t granularity = group.heap.granularity_bytes();
    if (request.allocation_bytes == 0 || request.allocation_bytes % granularity != 0) {
      return invalid("allocation_bytes is ", request.allocation_bytes,
                     "; it takes a multiple of the granularity, ", granularity);
    }
    if (request.allocation_offset > request.allocation_bytes ||
        request.size_bytes > request.allocation_bytes - request.allocation_offset) {
      return invalid("the window of ", request.size_bytes, " bytes at allocation_offset ",
                     request.allocation_offset, " does not lie inside the allocation of ",
                     request.allocation_bytes, " bytes");
    }
    if (request.allocation_offset % kExternalAlignment != 0) {
      return invalid("allocation_offset is ", request.allocation_offset,
                     "; it takes a multiple of ", kExternalAlignment);
    }
  }
  for (const auto& [id, window] : group.windows) {
    if (!request.name.empty() && window.name == request.name) {
      return absl::AlreadyExistsError(
          absl::StrCat("group ", number(group.id), " has a window '", request.name, "' (window ",
                       number(id), "); destroy it on every rank, or take another name"));
    }
  }
  return absl::OkStatus();
}

void Broker::create_window(Session& session, WindowRequest request, Reply<WindowResult> reply) {
  // First, so that an offer is used up whatever becomes of the call.
  absl::StatusOr<UniqueFd> offered = absl::InvalidArgumentError("there is no offer");
  if (request.placement == Placement::kExternal) {
    offered = desk_.claim_offer(session.id, request.offer);
  }
  const absl::StatusOr<Member> member = find_member(session, request.group, request.rank);
  if (!member.ok()) return reply(member.status());
  if (absl::Status status = check_collective(*member); !status.ok()) return reply(status);
  const absl::StatusOr<Milliseconds> timeout = check_timeout(request.timeout);
  if (!timeout.ok()) return reply(timeout.status());
  Group& group = *member->group;
  if (absl::Status status = check_window(group, request); !status.ok()) return reply(status);
  if (request.placement == Placement::kExternal) {
    if (!offered.ok()) return reply(offered.status());
    request.external_fd = std::make_shared<UniqueFd>(*std::move(offered));
  }
  const std::string what = request.name.empty() ? absl::StrCat("unnamed window #", request.sequence)
                                                : absl::StrCat("window '", request.name, "'");
  const std::string key = what;
  std::unique_ptr<WindowCall>& call = group.window_calls[key];
  if (call == nullptr) {
    call = std::make_unique<WindowCall>(
        executor_, what, group.size(),
        [this, id = group.id, key] { forget_if_idle(id, &Group::window_calls, key); },
        [this, id = group.id](uint32_t rank) { return describe_missing(id, rank); });
  }
  const uint32_t rank = request.rank;
  if (call->has(rank)) {
    return reply(absl::AlreadyExistsError(
        absl::StrCat(what, ": rank ", rank, " waits in this call already, from another thread")));
  }
  if (call->is_doing()) {
    return reply(absl::UnavailableError(
        absl::StrCat(what, ": an earlier attempt is still ending; try again")));
  }
  call->arrive(rank, std::move(request), *timeout, std::move(reply));
  if (call->complete()) place_window(group, key);
}

void Broker::fail_window(Group& group, const std::string& key, const absl::Status& status) {
  const auto found = group.window_calls.find(key);
  const std::unique_ptr<WindowCall> call = std::move(found->second);
  group.window_calls.erase(found);
  call->fail(status);
}

void Broker::place_window(Group& group, const std::string& key) {
  WindowCall& call = *group.window_calls.at(key);
  const auto same = [](const WindowRequest& a, const WindowRequest& b) {
    return a.size_bytes == b.size_bytes && a.placement == b.placement && a.keep == b.keep &&
           (a.placement == Placement::kExternal || a.alignment == b.alignment) &&
           a.wait_for_memory == b.wait_for_memory;
  };
  if (const auto rank = call.first_different(same); rank.has_value()) {
    return fail_window(
        group, key,
        about_rank(absl::InvalidArgumentError(absl::StrCat(
                       call.what(), ": rank ", *rank, " asks for ", describe(call.args(*rank)),
                       ", rank 0 for ", describe(call.args(0)))),
                   *rank));
  }
  const WindowRequest& request = call.args(0);
  if (request.keep.count() != 0) return place_kept(group, key);
  if (absl::Status status = check_another_window(group, call.what(), false); !status.ok()) {
    return fail_window(group, key, status);
  }
  Window window;
  window.name = request.name;
  window.size_bytes = request.size_bytes;
  window.placement = request.placement;
  switch (request.placement) {
    case Placement::kExternal:
      return import_external(group, key);
    case Placement::kControl: {
      const absl::StatusOr<uint64_t> offset =
          group.heap.allocate_control(request.size_bytes, request.alignment);
      if (!offset.ok()) return fail_window(group, key, offset.status());
      window.place = {0, *offset};
      return finish_window(group, key, std::move(window));
    }
    case Placement::kHeap: {
      const auto place = group.heap.allocate(request.size_bytes, request.alignment);
      if (!place.has_value()) return grow_heap(group, key);
      window.place = *place;
      return finish_window(group, key, std::move(window));
    }
  }
}

WindowCall* Broker::resume(GroupId id, const std::string& key) {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return nullptr;
  WindowCall& call = *group->second->window_calls.at(key);
  if (call.complete()) return &call;
  fail_window(*group->second, key,
              about_rank(absl::AbortedError(
                             absl::StrCat(call.what(), ": ", rank_list(call.missing()),
                                          " gave up while memory was being found; try again")),
                         call.missing().front()));
  return nullptr;
}

// Adds a slab for the window of `key`: of the preferred size if the memory is there, else as small
// as will do.
void Broker::grow_heap(Group& group, const std::string& key) {
  WindowCall& call = *group.window_calls.at(key);
  const WindowRequest& request = call.args(0);
  const uint64_t granularity = group.heap.granularity_bytes();
  const uint64_t slack = request.alignment > granularity ? request.alignment : 0;
  const uint64_t least = round_up(request.size_bytes + slack, granularity);
  uint64_t preferred = options_.slab_bytes;
  std::vector<int> gpus;
  for (const Rank& rank : group.ranks) {
    gpus.push_back(rank.gpu);
    if (options_.slab_bytes == 0)
      preferred = std::max(preferred, slabs_.gpus()[rank.gpu].preferred_slab_bytes);
  }
  if (absl::Status status = check_another_slab(group, call.what()); !status.ok()) {
    return fail_window(group, key, status);
  }
  uint64_t size = std::max(least, round_up(preferred, granularity));
  absl::StatusOr<uint64_t> offset = group.heap.reserve(size);
  if (!offset.ok()) {
    size = least;
    offset = group.heap.reserve(size);
  }
  if (!offset.ok()) return fail_window(group, key, offset.status());
  call.set_doing(absl::StrCat("the allocation of slabs of ", size, " bytes"));
  const auto ask = [this, payer = Payer{group.tenant, group.lease}, id = group.id, gpus](
                       uint64_t size, TimePoint deadline, SlabTable::Done done) {
    Allocation wanted;
    wanted.payer = payer;
    wanted.group = id;
    wanted.gpus = gpus;
    wanted.size_bytes = size;
    wanted.deadline = deadline;
    wanted.done = std::move(done);
    create_slabs(std::move(wanted));
  };
  const auto finish = [this, id = group.id, key, range = HeapRange{*offset, size}](uint64_t size) {
    return [=, this](absl::StatusOr<std::vector<SlabId>> slabs) {
      finish_growth(id, key, range, size, std::move(slabs));
    };
  };
  const TimePoint deadline = may_wait_until(call);
  if (size == least) return ask(size, deadline, finish(size));
  ask(size, TimePoint(), [=](absl::StatusOr<std::vector<SlabId>> slabs) {
    if (absl::IsResourceExhausted(slabs.status())) return ask(least, deadline, finish(least));
    finish(size)(std::move(slabs));
  });
}

TimePoint Broker::may_wait_until(const WindowCall& call) const {
  const Milliseconds wait = call.args(0).wait_for_memory;
  if (wait.count() == 0) return TimePoint();
  // Before the first rank's time is over, so that all are told the same.
  return std::min(executor_.now() + wait, call.first_deadline() - Milliseconds(1));
}

void Broker::finish_growth(GroupId id, const std::string& key, HeapRange range, uint64_t size,
                           absl::StatusOr<std::vector<SlabId>> slabs) {
  WindowCall* call = resume(id, key);
  const auto found = groups_.find(id);
  if (call == nullptr || !slabs.ok()) {
    for (SlabId slab : slabs.ok() ? *slabs : std::vector<SlabId>())
      slabs_.set_state(slab, SlabState::kFreed);
    if (found != groups_.end()) found->second->heap.unreserve(range.offset, range.size_bytes);
    if (call != nullptr) fail_window(*found->second, key, slabs.status());
    return;
  }
  Group& group = *found->second;
  group.heap.unreserve(range.offset + size, range.size_bytes - size);
  const uint32_t index = group.next_slab_index++;
  group.slabs.emplace(
      index, SlabSet{*std::move(slabs), std::vector<uint64_t>(group.size(), range.offset),
                     std::vector<uint64_t>(group.size(), size), false, range.offset, size});
  group.heap.add_slab(index, range.offset, size);
  const WindowRequest& request = call->args(0);
  Window window;
  window.name = request.name;
  window.size_bytes = request.size_bytes;
  window.placement = Placement::kHeap;
  window.place = *group.heap.allocate(request.size_bytes, request.alignment);
  finish_window(group, key, std::move(window));
}

// Places every rank's allocation so that the windows inside lie at one offset, if their offsets in
// the allocations agree modulo the granularity; otherwise side by side as they are.
void Broker::import_external(Group& group, const std::string& key) {
  WindowCall& call = *group.window_calls.at(key);
  if (absl::Status status = check_another_slab(group, call.what()); !status.ok()) {
    return fail_window(group, key, status);
  }
  const uint64_t granularity = group.heap.granularity_bytes();
  uint64_t highest = 0;  // Of the offsets, rounded down.
  bool aligned = true;
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const uint64_t offset = call.args(rank).allocation_offset;
    highest = std::max(highest, offset / granularity * granularity);
    aligned &= offset % granularity == call.args(0).allocation_offset % granularity;
  }
  SlabSet set;
  set.is_external = true;
  std::vector<SlabTable::Import> imports;
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const WindowRequest& request = call.args(rank);
    const uint64_t lead =
        aligned ? highest - request.allocation_offset / granularity * granularity : 0;
    set.offsets.push_back(lead);
    set.sizes.push_back(request.allocation_bytes);
    set.reserved_bytes = std::max(set.reserved_bytes, lead + request.allocation_bytes);
    imports.push_back(
        {group.ranks[rank].gpu, std::move(*request.external_fd), request.allocation_bytes});
  }
  const absl::StatusOr<uint64_t> base = group.heap.reserve(set.reserved_bytes);
  if (!base.ok()) return fail_window(group, key, base.status());
  set.reserved_offset = *base;
  for (uint64_t& offset : set.offsets) offset += *base;
  call.set_doing("the import of external memory");
  slabs_.adopt(std::move(imports), [this, id = group.id, key, set = std::move(set)](
                                       absl::StatusOr<std::vector<SlabId>> ids) mutable {
    finish_own_slabs(id, key, std::move(set), std::move(ids));
  });
}

void Broker::finish_own_slabs(GroupId id, const std::string& key, SlabSet set,
                              absl::StatusOr<std::vector<SlabId>> ids) {
  WindowCall* call = resume(id, key);
  const auto found = groups_.find(id);
  if (call == nullptr || !ids.ok()) {
    for (SlabId slab : ids.ok() ? *ids : std::vector<SlabId>())
      slabs_.set_state(slab, SlabState::kFreed);
    if (found != groups_.end())
      found->second->heap.unreserve(set.reserved_offset, set.reserved_bytes);
    if (call != nullptr) fail_window(*found->second, key, ids.status());
    return;
  }
  Group& group = *found->second;
  set.ids = *std::move(ids);
  Window window;
  window.name = call->args(0).name;
  window.size_bytes = call->args(0).size_bytes;
  window.placement = call->args(0).placement;
  window.keep = call->args(0).keep;
  for (uint32_t rank = 0; set.is_external && rank < group.size(); ++rank) {
    window.peer_offsets.push_back(set.offsets[rank] + call->args(rank).allocation_offset);
  }
  window.place = {group.next_slab_index++,
                  set.is_external ? window.peer_offsets[0] : set.reserved_offset};
  group.slabs.emplace(window.place.slab_index, std::move(set));
  finish_window(group, key, std::move(window));
}

void Broker::finish_window(Group& group, const std::string& key, Window window) {
  window.id = WindowId{++last_window_id_};
  window.generation = ++last_generation_;
  window.users.assign(group.size(), true);
  const absl::StatusOr<uint64_t> descriptor =
      group.heap.allocate_control(group.descriptor_bytes(), kWindowAlignment);
  window.descriptor_offset = descriptor.ok() ? *descriptor : 0;
  changes_.windows.emplace(group.id, window.id);
  changes_.groups.insert(group.id);  // Its slabs may be new.
  const auto [entry, inserted] = group.windows.emplace(window.id, std::move(window));
  Window& placed = entry->second;
  if (!descriptor.ok()) {
    if (!placed.found) placed.keep = Milliseconds(0);  // Nobody has put anything there.
    for (uint32_t rank = 0; rank < group.size(); ++rank) placed.users[rank] = rank == 0;
    give_up(group, placed, 0);
    return fail_window(group, key, descriptor.status());
  }
  const auto found = group.window_calls.find(key);
  const std::unique_ptr<WindowCall> call = std::move(found->second);
  group.window_calls.erase(found);
  const WindowResult result = result_of(placed);
  call->finish([&](uint32_t) { return result; });
}

void Broker::give_up(Group& group, Window& window, uint32_t rank) {
  window.users[rank] = false;
  changes_.windows.emplace(group.id, window.id);
  if (window.is_used() || (window.keep.count() != 0 && group.is_touched_by_lost())) return;
  switch (window.placement) {
    case Placement::kHeap:
      if (group.slabs.at(window.place.slab_index).is_kept) {
        keep_window(group, window);
      } else {
        group.heap.release(window.place, window.size_bytes);
      }
      break;
    case Placement::kControl:
      group.heap.release_control(window.place.offset, window.size_bytes);
      break;
    case Placement::kExternal: {
      const auto set = group.slabs.find(window.place.slab_index);
      for (SlabId id : set->second.ids) {
        if (id != SlabId{}) slabs_.set_state(id, SlabState::kFreed);
      }
      group.heap.unreserve(set->second.reserved_offset, set->second.reserved_bytes);
      group.slabs.erase(set);
      changes_.groups.insert(group.id);
      break;
    }
  }
  if (window.descriptor_offset != 0)
    group.heap.release_control(window.descriptor_offset, group.descriptor_bytes());
  group.windows.erase(window.id);
}

absl::StatusOr<Broker::OpenedWindow> Broker::open_window(Session& session, GroupId group_id,
                                                         uint32_t rank, const std::string& name) {
  CCO_ASSIGN_OR_RETURN(Member member, find_member(session, group_id, rank));
  for (const auto& [id, window] : member.group->windows) {
    if (!name.empty() && window.name == name && window.placement == Placement::kHeap &&
        window.users[rank]) {
      OpenedWindow opened{result_of(window), window.size_bytes, window.keep};
      opened.window.found = true;  // Its contents are of the group that was shrunk.
      return opened;
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "rank ", rank, " of group ", number(group_id), " has no heap window '", name,
      "': none of that name has come along, or it has been destroyed. Make it (CreateWindow)"));
}

absl::StatusOr<Window*> Broker::find_window(const Member& member, uint32_t rank, WindowId id,
                                            uint64_t generation) {
  const auto found = member.group->windows.find(id);
  if (found == member.group->windows.end()) {
    return absl::NotFoundError(absl::StrCat("group ", number(member.group->id), " has no window ",
                                            number(id),
                                            ": it never had, or every rank has destroyed it"));
  }
  if (found->second.generation != generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("window ", number(id), " is of generation ", found->second.generation,
                     ", not ", generation, ": the handle is of an older window"));
  }
  if (!found->second.users[rank]) {
    return absl::NotFoundError(
        absl::StrCat("rank ", rank, " has destroyed window ", number(id), " before"));
  }
  return &found->second;
}

absl::Status Broker::destroy_window(Session& session, GroupId group_id, uint32_t rank, WindowId id,
                                    uint64_t generation) {
  CCO_ASSIGN_OR_RETURN(const Member member, find_member(session, group_id, rank));
  CCO_ASSIGN_OR_RETURN(Window * window, find_window(member, rank, id, generation));
  give_up(*member.group, *window, rank);
  return absl::OkStatus();
}

absl::StatusOr<Broker::SlabTickets> Broker::export_slab(Session& session, GroupId group_id,
                                                        uint32_t rank, uint32_t slab_index) {
  CCO_ASSIGN_OR_RETURN(Member member, find_member(session, group_id, rank));
  const auto set = member.group->slabs.find(slab_index);
  if (set == member.group->slabs.end()) {
    return absl::NotFoundError(
        absl::StrCat("group ", number(group_id), " has no slab ", slab_index));
  }
  const ExportDesk::Holder holder{session.id, group_id, rank};
  SlabTickets tickets;
  for (uint32_t owner = 0; owner < member.group->size(); ++owner) {
    if (set->second.ids[owner] == SlabId{}) {
      return about_rank(absl::AbortedError(absl::StrCat("slab ", slab_index, " of rank ", owner,
                                                        " has been freed")),
                        owner);
    }
    CCO_ASSIGN_OR_RETURN(std::string ticket, desk_.issue(holder, set->second.ids[owner]));
    tickets.slabs.push_back(
        {std::move(ticket), set->second.sizes[owner], set->second.offsets[owner]});
  }
  if (slab_index == 0) {
    CCO_ASSIGN_OR_RETURN(tickets.notice, desk_.issue(holder, member.rank->notice));
  }
  return tickets;
}

uint32_t Broker::window_count() const {
  size_t count = 0;
  for (const auto& [id, group] : groups_) count += group->windows.size();
  return static_cast<uint32_t>(count);
}

uint64_t Broker::slab_bytes(const Group& group, uint32_t rank) const {
  uint64_t bytes = 0;
  for (const auto& [index, set] : group.slabs) {
    if (!set.is_external && set.ids[rank] != SlabId{}) bytes += set.sizes[rank];
  }
  return bytes;
}

}  // namespace cco::memd
