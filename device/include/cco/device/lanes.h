// Threads of one warp that make a call together: what a call of ThreadCoop needs to act once for
// all that make it at the same time.
#pragma once

#include "cco/device/platform.h"

#if CCO_HOST
#include <memory>
#include <utility>
#endif

namespace cco::device {

/// Copyable. It holds while its members stay together: between one call of it and the next each of
/// them executes the same statements, apart from branches that have ended by then.
///
/// Callers   all members, for every call except count(), rank() and is_leader()
/// Ordering  here() none; every other call that says nothing else is a barrier of the members that
///           orders their memory
/// Blocking  until all members are there
class ActiveLanes {
 public:
  /// Those that execute this statement together: on GPUs all that are active in it; on the host all
  /// that come to it before the rest of the warp waits or has left. It never promises that threads
  /// which could be together are.
  static CCO_DEVICE ActiveLanes here();

  /// The caller alone, whatever the others do. Where that is known when compiled: OneLane.
  static CCO_DEVICE ActiveLanes alone();

  CCO_DEVICE uint32_t count() const;
  /// In order of lanes, from 0.
  CCO_DEVICE uint32_t rank() const;
  CCO_DEVICE bool is_leader() const { return rank() == 0; }

  CCO_DEVICE void sync() const;
  CCO_DEVICE bool any(bool mine) const;

  /// Those members that have my key.
  CCO_DEVICE ActiveLanes matching(uint64_t key) const;

  /// The value of the member of that rank, which is the same for all.
  CCO_DEVICE uint64_t broadcast(uint64_t mine, uint32_t rank) const;

  /// Of the members before me; modulo 2^64.
  CCO_DEVICE uint64_t exclusive_sum(uint64_t mine) const { return add_up(mine, rank()); }
  CCO_DEVICE uint64_t sum(uint64_t mine) const { return add_up(mine, count()); }

  /// Calls `act(group)` in every member, where the group has one key, and one group after the
  /// other: no member of one spins while a member of another holds what it waits for. (Lanes of an
  /// AMD wave that leave a loop early wait for those that are still in it.) `one_key`: the caller,
  /// alike in all members, knows that all keys are the same.
  template <typename F>
  CCO_DEVICE void for_each_key(uint64_t key, F act, bool one_key = false) const;

 private:
  /// Of the members of rank below `end`, which differs from member to member.
  CCO_DEVICE uint64_t add_up(uint64_t mine, uint32_t end) const;

#if CCO_GPU
  explicit CCO_DEVICE ActiveLanes(LaneMask mask) : mask_(mask) {}
  CCO_DEVICE uint32_t lane_of(uint32_t rank) const;

  LaneMask mask_;
#else
  ActiveLanes(std::shared_ptr<host::LaneGroup> group, uint32_t rank)
      : group_(std::move(group)), rank_(rank) {}
  /// Tells the members a value; returns where theirs lie.
  uint32_t tell(uint64_t mine) const;
  uint64_t told(uint32_t rank, uint32_t where) const { return group_->members[rank].told[where]; }

  std::shared_ptr<host::LaneGroup> group_;  ///< Null: the caller alone.
  uint32_t rank_;
#endif
};

/// The caller alone, known when compiled: what ActiveLanes tells and does costs nothing.
struct OneLane {
  CCO_DEVICE uint32_t count() const { return 1; }
  CCO_DEVICE uint32_t rank() const { return 0; }
  CCO_DEVICE bool is_leader() const { return true; }
  CCO_DEVICE void sync() const {}
  CCO_DEVICE bool any(bool mine) const { return mine; }
  CCO_DEVICE uint64_t broadcast(uint64_t mine, uint32_t) const { return mine; }
  CCO_DEVICE uint64_t exclusive_sum(uint64_t) const { return 0; }
  CCO_DEVICE uint64_t sum(uint64_t mine) const { return mine; }
};

}  // namespace cco::device

#include "cco/device/impl/lanes_impl.h"
