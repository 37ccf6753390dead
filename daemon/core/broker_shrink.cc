// Broker: the live ranks of a group go on in a new one, with the same memory.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

// Teams of equal size stay teams. Others cannot, and the ranks, which are all of one node, are one.
uint32_t lsa_size_of(const Group& old, const std::vector<uint32_t>& survivors) {
  std::map<uint32_t, uint32_t> by_team;
  for (const uint32_t rank : survivors) ++by_team[rank / old.lsa_size];
  const uint32_t first = by_team.begin()->second;
  for (const auto& [team, count] : by_team) {
    if (count != first) return static_cast<uint32_t>(survivors.size());
  }
  return first;
}

template <typename Value>
std::vector<Value> of(const std::vector<Value>& all, const std::vector<uint32_t>& survivors) {
  std::vector<Value> theirs;
  for (const uint32_t rank : survivors) theirs.push_back(all[rank]);
  return theirs;
}

bool comes_along(const Window& window, const std::vector<uint32_t>& survivors) {
  if (window.name.empty() || window.placement != Placement::kHeap) return false;
  return std::any_of(survivors.begin(), survivors.end(),
                     [&](uint32_t rank) { return window.users[rank]; });
}

}  // namespace

void Broker::shrink(Session& session, ShrinkRequest request, Reply<ShrinkResult> reply) {
  const absl::StatusOr<Member> member = find_member(session, request.group, request.rank);
  if (!member.ok()) return reply(member.status());
  const absl::StatusOr<Milliseconds> timeout = check_timeout(request.timeout);
  if (!timeout.ok()) return reply(timeout.status());
  Group& group = *member->group;
  std::unique_ptr<ShrinkCall>& call = group.shrink_call;
  if (call == nullptr) {
    call = std::make_unique<ShrinkCall>(
        executor_, absl::StrCat("shrinking group ", number(group.id)), group.size(), [] {});
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
      if (!group.ranks[rank].may_map) call->excuse(rank);
    }
  }
  const uint32_t rank = request.rank;
  if (call->has(rank)) {
    return reply(absl::AlreadyExistsError(absl::StrCat(
        call->what(), ": rank ", rank, " waits in this call already, from another thread")));
  }
  if (call->is_doing()) {
    return reply(absl::UnavailableError(
        absl::StrCat(call->what(), ": an earlier attempt is still ending; try again")));
  }
  call->arrive(rank, std::move(request), *timeout, std::move(reply));
  shrink_if_complete(group);
}

// A lost rank is waited for until its process has exited: until then it may write into what the
// survivors have, and what is kept of that must not be found by others.
void Broker::excuse_from_shrink(Group& group, uint32_t rank) {
  if (group.shrink_call == nullptr) return;
  group.shrink_call->drop(rank, absl::AbortedError(absl::StrCat(group.shrink_call->what(),
                                                                ": this rank has gone meanwhile")));
  if (group.ranks[rank].may_map) return;
  group.shrink_call->excuse(rank);
  // Soon: it may end the group, and whoever calls is not done with it.
  executor_.post([this, id = group.id] {
    const auto found = groups_.find(id);
    if (found != groups_.end()) shrink_if_complete(*found->second);
  });
}

void Broker::shrink_if_complete(Group& group) {
  if (group.shrink_call == nullptr) return;
  ShrinkCall& call = *group.shrink_call;
  if (call.is_doing() || call.empty() || !call.complete()) return;
  const std::vector<uint32_t> survivors = call.waiting();
  const absl::Status status = check_kept(group.tenant, uint64_t{2} * survivors.size(), call.what());
  if (!status.ok()) return end_shrink(group, status);
  call.set_doing("the allocation of control regions");
  Allocation wanted;
  wanted.payer = {group.tenant, group.lease};
  wanted.group = group.id;
  wanted.gpus = of(group.gpus(), survivors);
  wanted.size_bytes = group.heap.control_bytes();
  wanted.kind = MemoryKind::kControl;
  wanted.done = [this, id = group.id, survivors](absl::StatusOr<std::vector<SlabId>> control) {
    finish_shrink(id, survivors, std::move(control));
  };
  create_slabs(std::move(wanted));
}

void Broker::end_shrink(Group& group, const absl::Status& status) {
  const std::unique_ptr<ShrinkCall> call = std::move(group.shrink_call);
  call->fail(status);
}

void Broker::finish_shrink(GroupId id, const std::vector<uint32_t>& survivors,
                           absl::StatusOr<std::vector<SlabId>> control) {
  const auto found = groups_.find(id);
  const auto free_control = [&] {
    for (const SlabId slab : control.ok() ? *control : std::vector<SlabId>()) {
      slabs_.set_state(slab, SlabState::kFreed);
    }
  };
  if (found == groups_.end()) return free_control();
  Group& old = *found->second;
  if (!control.ok()) return end_shrink(old, control.status());
  if (old.shrink_call->waiting() != survivors) {
    free_control();
    return end_shrink(old, absl::AbortedError(absl::StrCat(
                               old.shrink_call->what(),
                               ": a rank has gone while memory was being allocated; try again")));
  }
  absl::Status serving;  // A drain may have begun meanwhile.
  for (const uint32_t rank : survivors) serving.Update(check_serving(old.ranks[rank].gpu));
  if (!serving.ok()) {
    free_control();
    return end_shrink(old, serving);
  }
  absl::StatusOr<std::unique_ptr<Group>> made = make_survivors(old, survivors, *control);
  if (!made.ok()) {
    free_control();
    return end_shrink(old, made.status());
  }
  const std::unique_ptr<ShrinkCall> call = std::move(old.shrink_call);
  Group& group = *groups_.emplace((*made)->id, *std::move(made)).first->second;
  hand_over(old, survivors, group);
  const JoinResult joined = join_result(group);
  call->finish([&](uint32_t rank) {
    const auto place = std::find(survivors.begin(), survivors.end(), rank);
    return ShrinkResult{joined, static_cast<uint32_t>(place - survivors.begin())};
  });
}

absl::StatusOr<std::unique_ptr<Group>> Broker::make_survivors(
    const Group& old, const std::vector<uint32_t>& survivors, std::vector<SlabId> control) {
  const uint32_t size = static_cast<uint32_t>(survivors.size());
  const Heap& heap = old.heap;
  auto group = std::make_unique<Group>(
      GroupId{++last_group_id_},
      Heap(heap.slot_bytes(), heap.control_bytes(), heap.granularity_bytes()));
  group->generation = ++last_generation_;
  group->tenant = old.tenant;
  group->lease = old.lease;
  group->name = old.name;
  group->unique_id = old.unique_id;
  group->lsa_size = lsa_size_of(old, survivors);
  group->next_slab_index = old.next_slab_index;
  for (const uint32_t rank : survivors) {
    const Rank& member = old.ranks[rank];
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<NoticePage> page, notices_.create_page(size));
    group->ranks.push_back({member.session,
                            member.who,
                            member.gpu,
                            MemberState::kLive,
                            true,
                            std::move(page),
                            {},
                            {}});
  }
  group->slabs.emplace(0, control_set(std::move(control), heap.control_bytes()));
  for (const auto& [index, set] : old.slabs) {
    if (index == 0 || set.is_external) continue;
    const bool is_needed =
        !set.is_kept ||
        std::any_of(old.windows.begin(), old.windows.end(), [&, i = index](const auto& entry) {
          return entry.second.place.slab_index == i && comes_along(entry.second, survivors);
        });
    if (!is_needed) continue;
    SlabSet theirs = set;
    theirs.revoked.clear();
    theirs.ids = of(set.ids, survivors);
    theirs.offsets = of(set.offsets, survivors);
    theirs.sizes = of(set.sizes, survivors);
    const auto gone = std::find(theirs.ids.begin(), theirs.ids.end(), SlabId{});
    if (gone != theirs.ids.end()) {
      const uint32_t rank = survivors[static_cast<size_t>(gone - theirs.ids.begin())];
      return about_rank(absl::FailedPreconditionError(
                            absl::StrCat("shrinking group ", number(old.id), ": memory of rank ",
                                         rank, " is gone. Leave the group, and form a new one")),
                        rank);
    }
    CCO_ASSERT(group->heap.take_reserved(set.reserved_offset, set.reserved_bytes));
    if (!set.is_kept) group->heap.add_slab(index, set.reserved_offset, set.reserved_bytes);
    group->slabs.emplace(index, std::move(theirs));
  }
  CCO_RETURN_IF_ERROR(bring_windows(old, survivors, group.get()));
  return group;
}

absl::Status Broker::bring_windows(const Group& old, const std::vector<uint32_t>& survivors,
                                   Group* group) {
  for (const auto& [id, window] : old.windows) {
    if (!comes_along(window, survivors)) continue;
    Window theirs = window;
    theirs.id = WindowId{++last_window_id_};
    theirs.generation = ++last_generation_;
    theirs.users = of(window.users, survivors);
    CCO_ASSIGN_OR_RETURN(theirs.descriptor_offset,
                         group->heap.allocate_control(group->descriptor_bytes(), kWindowAlignment));
    const bool is_kept = group->slabs.at(theirs.place.slab_index).is_kept;
    CCO_ASSERT(is_kept || group->heap.take(theirs.place, theirs.size_bytes));
    group->windows.emplace(theirs.id, std::move(theirs));
  }
  return absl::OkStatus();
}

// What came along is the new group's; what is left goes as if the survivors had left the old one.
void Broker::hand_over(Group& old, const std::vector<uint32_t>& survivors, Group& group) {
  for (const auto& [index, theirs] : group.slabs) {
    if (index == 0) continue;
    SlabSet& set = old.slabs.at(index);
    for (const uint32_t rank : survivors) set.ids[rank] = SlabId{};
    set.is_kept = false;
  }
  for (auto window = old.windows.begin(); window != old.windows.end();) {
    const bool moves = comes_along(window->second, survivors);
    if (moves) changes_.windows.emplace(old.id, window->first);
    window = moves ? old.windows.erase(window) : std::next(window);
  }
  if (old.abort_reason.empty()) {
    old.abort_reason = absl::StrCat("it goes on as group ", number(group.id));
    old.abort_rank = survivors[0];
  }
  end_calls(old);
  journal_.record(Severity::kInfo, "group_shrunk",
                  absl::StrCat("group=", number(old.id), " ranks=", old.size(),
                               " into=", number(group.id), " survivors=", group.size()));
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    tell_pressure(group, group.ranks[rank]);
    Session& session = *sessions_.find(group.ranks[rank].session);
    desk_.forget({session.id, old.id, survivors[rank]});
    session.ranks.erase({old.id, survivors[rank]});
    session.ranks.emplace(group.id, rank);
    changes_.ranks.emplace(group.id, rank);
    set_out(old, survivors[rank], MemberState::kLeft);
  }
  changes_.groups.insert(group.id);
  for (const auto& [id, window] : group.windows) changes_.windows.emplace(group.id, id);
  retire(old);
}

}  // namespace cco::memd
