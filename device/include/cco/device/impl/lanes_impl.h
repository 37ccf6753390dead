// Bodies of lanes.h.
#pragma once

#include "cco/device/lanes.h"

namespace cco::device {

#if CCO_GPU

CCO_DEVICE ActiveLanes ActiveLanes::here() { return ActiveLanes(active_lanes()); }
CCO_DEVICE ActiveLanes ActiveLanes::alone() { return ActiveLanes(LaneMask{1} << lane_index()); }
CCO_DEVICE uint32_t ActiveLanes::count() const { return count_lanes(mask_); }
CCO_DEVICE uint32_t ActiveLanes::rank() const {
  return count_lanes(mask_ & ((LaneMask{1} << lane_index()) - 1));
}
CCO_DEVICE void ActiveLanes::sync() const { sync_lanes(mask_); }
CCO_DEVICE bool ActiveLanes::any(bool mine) const { return any_lane(mask_, mine); }
CCO_DEVICE ActiveLanes ActiveLanes::matching(uint64_t key) const {
  sync();
  return ActiveLanes(matching_lanes(mask_, key));
}
CCO_DEVICE uint32_t ActiveLanes::lane_of(uint32_t rank) const {
  LaneMask rest = mask_;
  for (uint32_t i = 0; i < rank; ++i) rest &= rest - 1;
  return lowest_lane(rest);
}
CCO_DEVICE uint64_t ActiveLanes::broadcast(uint64_t mine, uint32_t rank) const {
  sync();
  return value_of_lane(mask_, mine, lane_of(rank));
}
CCO_DEVICE uint64_t ActiveLanes::add_up(uint64_t mine, uint32_t end) const {
  if (!any(mine != broadcast(mine, 0))) return mine * end;
  uint64_t sum = 0;
  uint32_t rank = 0;
  for (LaneMask rest = mask_; rest != 0; rest &= rest - 1, ++rank) {
    const uint64_t value = value_of_lane(mask_, mine, lowest_lane(rest));
    if (rank < end) sum += value;
  }
  return sum;
}

#else

CCO_DEVICE ActiveLanes ActiveLanes::here() {
  const host::Thread& self = cco_host_thread;
  if (self.block == nullptr) return alone();
  auto [group, rank] = self.warp().gather(self.lane(), host::call_site());
  return ActiveLanes(std::move(group), rank);
}
inline ActiveLanes ActiveLanes::alone() { return ActiveLanes(nullptr, 0); }
inline uint32_t ActiveLanes::count() const {
  return group_ == nullptr ? 1 : static_cast<uint32_t>(group_->members.size());
}
inline uint32_t ActiveLanes::rank() const { return rank_; }
inline void ActiveLanes::sync() const { any(false); }
inline bool ActiveLanes::any(bool mine) const {
  const host::Thread& self = cco_host_thread;
  return group_ == nullptr ? mine : self.warp().any_at(group_->barrier, self.lane(), mine);
}
inline uint32_t ActiveLanes::tell(uint64_t mine) const {
  host::LaneGroup::Member& self = group_->members[rank_];
  const uint32_t where = self.exchanges++ % 2;
  self.told[where] = mine;
  sync();
  return where;
}
inline ActiveLanes ActiveLanes::matching(uint64_t key) const {
  if (group_ == nullptr) return *this;
  const uint32_t where = tell(key);
  uint32_t first = count(), size = 0, my_rank = 0;
  for (uint32_t rank = 0; rank < count(); ++rank) {
    if (told(rank, where) != key) continue;
    if (first == count()) first = rank;
    if (rank == rank_) my_rank = size;
    ++size;
  }
  // The first of each key makes the group; the others take a share of it while it stands here.
  std::shared_ptr<host::LaneGroup> made;
  if (first == rank_) made = std::make_shared<host::LaneGroup>(size);
  const uint32_t made_where = tell(reinterpret_cast<uint64_t>(&made));
  const auto group =
      *reinterpret_cast<const std::shared_ptr<host::LaneGroup>*>(told(first, made_where));
  sync();
  return ActiveLanes(group, my_rank);
}
inline uint64_t ActiveLanes::broadcast(uint64_t mine, uint32_t rank) const {
  return group_ == nullptr ? mine : told(rank, tell(mine));
}
inline uint64_t ActiveLanes::add_up(uint64_t mine, uint32_t end) const {
  if (group_ == nullptr) return mine * end;
  const uint32_t where = tell(mine);
  uint64_t sum = 0;
  for (uint32_t rank = 0; rank < end; ++rank) sum += told(rank, where);
  return sum;
}

#endif

template <typename F>
CCO_DEVICE void ActiveLanes::for_each_key(uint64_t key, F act, bool one_key) const {
  const ActiveLanes group = one_key ? *this : matching(key);
  one_key = one_key || !any(group.count() != count());
  const uint64_t turn = one_key ? 0 : group.broadcast(rank(), 0);
  const uint32_t turns = one_key ? 1 : count();
  for (uint32_t now = 0; now < turns; ++now) {
    if (!one_key && !any(turn == now)) continue;
    if (turn == now) act(group);  // The only place where it is expanded.
    if (!one_key) sync();
  }
}

}  // namespace cco::device
