// GDA over a ring of work items: see gda.h for what is posted.
#pragma once

#include "cco/device/impl/wait_result.h"
#include "cco/device/impl/work_ring.h"
#include "cco/device/lanes.h"

namespace cco::device::impl {

/// Waits for `count` positions, from `*first` on.
CCO_DEVICE WaitResult wait_for_slots(const cco_work_ring& ring, WorkGuess& guess, uint32_t count,
                                     uint64_t* first, uint32_t peer, const Deadline& deadline) {
  Poll poll(deadline);
  while (!reserve_work(ring, guess, count, first)) {
    if (!poll.again()) return gave_up(poll, deadline, peer);
  }
  return arrived();
}

/// Posts an item for each lane, in their order, by one reservation as long as all fit into the
/// ring. `Group`: ActiveLanes or OneLane.
template <typename Group>
CCO_DEVICE WaitResult post_to_ring(const Group& group, const cco_work_ring& ring, WorkGuess& guess,
                                   const cco_work_item& item, uint32_t peer,
                                   const Deadline& deadline) {
  const uint32_t count = group.count();
  const uint32_t rank = group.rank();
  for (uint32_t begin = 0, end; begin < count; begin = end) {
    end = count - begin < ring.depth ? count : begin + ring.depth;
    uint64_t first = 0;
    WaitResult room = arrived();
    if (group.is_leader()) {
      room = wait_for_slots(ring, guess, end - begin, &first, peer, deadline);
    }
    room = WaitResult::decode(group.broadcast(room.encode(), 0));
    if (room.status != WaitStatus::kArrived) return room;
    first = group.broadcast(first, 0);
    if (count != 1) publish_system();  // The leader has; what the others stored is theirs to.
    if (begin <= rank && rank < end) write_work(ring, first + (rank - begin), item);
  }
  return arrived();
}

/// Waits until `target` items are done. The ring serves all peers, and so does its error.
CCO_DEVICE WaitResult wait_ring(const cco_work_ring& ring, WorkGuess& guess, uint64_t target,
                                uint32_t peer, const Deadline& deadline) {
  Poll poll(deadline);
  uint64_t completed = 0;
  while (!work_completed(ring, target, &completed)) {
    if (!poll.again()) return gave_up(poll, deadline, peer);
  }
  guess.completed = completed;
  if ((completed & CCO_WORK_FAILED) == 0) return arrived();
  return WaitResult{WaitStatus::kFailed, CCO_WORK_ERROR_PEER(work_error(ring))};
}

}  // namespace cco::device::impl
