// Groups whose live ranks go on in a new one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/inode.h"
#include "tests/unit/daemon/explored_world.h"

namespace cco::memd {

bool World::shrink(size_t program, const Membership& as) {
  const Seat seat = seat_of(program, as);
  if (session(program) == nullptr || !seat) return false;
  const std::string what = absl::StrCat("shrink of ", as.group, ".", as.rank, " by ", program);
  std::vector<int> gpus;
  for (const Rank& rank : seat.group->ranks) {
    if (rank.state == MemberState::kLive) gpus.push_back(rank.gpu);
  }
  const auto look = [this, program, old = seat.group->id, gpus, tenant = seat.group->tenant,
                     lease = processes_[program].lease_of.at(as.group)](
                        const absl::StatusOr<ShrinkResult>& result) {
    check_refusal(result.status(), tenant, lease, gpus);
    if (result.ok()) shrunk(program, old, result->joined.group);
  };
  daemon_->pool.begin_batch(what);
  daemon_->broker.shrink(*session(program), {seat.group->id, seat.rank, Milliseconds(0)},
                         awaited<ShrinkResult>(what, look));
  return true;
}

// What there is before memory for new control regions comes, which is when it happens.
void World::look_at_shrinking() {
  shrinking_.clear();
  for (const auto& [id, group] : daemon_->broker.groups()) {
    if (group->shrink_call == nullptr || !group->shrink_call->is_doing()) continue;
    std::vector<OldWindow>& windows = shrinking_[id];
    for (const auto& [window_id, window] : group->windows) {
      OldWindow old{window.name, window.size_bytes, window.place.offset, window.keep, {}, {}, {}};
      for (const Grant& grant : window.grants) old.grants.push_back(grant.token);
      const SlabSet& set = group->slabs.at(window.place.slab_index);
      for (uint32_t rank = 0; rank < group->size(); ++rank) {
        const Rank& member = group->ranks[rank];
        if (member.state != MemberState::kLive) continue;
        if (window.users[rank]) old.users.insert(member.session);
        const UniqueFd* fd = daemon_->broker.slabs().fd(set.ids[rank]);
        old.inodes[{member.session, member.gpu}] = fd == nullptr ? 0 : inode_of(fd->get());
      }
      const bool moves = window.placement == Placement::kHeap && !old.users.empty();
      if (moves && !window.name.empty()) windows.push_back(std::move(old));
    }
  }
}

void World::shrunk(size_t program, GroupId old, GroupId now) {
  const auto& groups = daemon_->broker.groups();
  expect(groups.count(old) == 0, "a group goes on beside the one that its ranks are in now");
  const auto found = groups.find(now);
  const auto before = shrinking_.find(old);
  expect(found != groups.end() && before != shrinking_.end(), "a group shrinks into nothing");
  if (found == groups.end() || before == shrinking_.end()) return;
  const Group& group = *found->second;
  std::set<uint64_t> inodes;
  for (const auto& [index, set] : group.slabs) {
    for (const SlabId slab : set.ids) {
      const UniqueFd* fd = daemon_->broker.slabs().fd(slab);
      if (fd != nullptr) inodes.insert(inode_of(fd->get()));
    }
  }
  // What the process maps of the old group goes with that, but for what came along.
  auto& mapped = processes_[program].mapped;
  for (auto entry = mapped.begin(); entry != mapped.end();) {
    const bool is_old = entry->second == old, stays = inodes.count(entry->first) != 0;
    if (is_old && stays) entry->second = now;
    entry = is_old && !stays ? mapped.erase(entry) : std::next(entry);
  }
  expect(group.windows.size() == before->second.size(), "windows come along that may not");
  for (const OldWindow& window : before->second) check_window(window, group);
}

void World::check_window(const OldWindow& before, const Group& group) {
  const auto found =
      std::find_if(group.windows.begin(), group.windows.end(),
                   [&](const auto& entry) { return entry.second.name == before.name; });
  expect(found != group.windows.end(), "a window does not come along");
  if (found == group.windows.end()) return;
  const Window& window = found->second;
  expect(window.size_bytes == before.size_bytes && window.place.offset == before.offset &&
             window.keep == before.keep,
         "a window comes along as another");
  std::vector<std::string> grants;
  for (const Grant& grant : window.grants) grants.push_back(grant.token);
  expect(grants == before.grants, "a window comes along with other grants");
  const SlabSet& set = group.slabs.at(window.place.slab_index);
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const Rank& member = group.ranks[rank];
    const UniqueFd* fd = daemon_->broker.slabs().fd(set.ids[rank]);
    const auto inode = before.inodes.find({member.session, member.gpu});
    expect(inode != before.inodes.end() && fd != nullptr && inode_of(fd->get()) == inode->second,
           "a window comes along with other memory");
    expect(window.users[rank] == (before.users.count(member.session) != 0),
           "a window comes along for others than its users");
  }
}

}  // namespace cco::memd
