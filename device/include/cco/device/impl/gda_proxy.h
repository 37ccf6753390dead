// GDA over a ring of work items: see gda.h for what is posted.
#pragma once

#include "cco/device/impl/wait_result.h"
#include "cco/device/impl/work_ring.h"
#include "cco/device/lanes.h"

namespace cco::device::impl {

/// Posts an item for each lane. The signals of `item`, which only the last lane's carries, come
/// after the others' items.
CCO_DEVICE WaitResult post_to_ring(const ActiveLanes& group, const cco_work_ring& ring,
                                   const cco_work_item& item, uint32_t peer,
                                   const Deadline& deadline) {
  const bool last = group.rank() + 1 == group.count();
  Poll poll(deadline);
  bool refused = false;
  if (!last) refused = post_work(ring, item, poll) == 0;
  if (!group.any(refused) && last) refused = post_work(ring, item, poll) == 0;
  if (!group.any(refused)) return arrived();
  if (!group.any(poll.aborted())) return WaitResult{WaitStatus::kTimedOut, peer};
  return WaitResult{WaitStatus::kPeerLost,
                    CCO_ABORT_RANK(load_relaxed_system(deadline.abort_word))};
}

/// Waits until `target` items are done. The ring serves all peers, and so does its error.
CCO_DEVICE WaitResult wait_ring(const cco_work_ring& ring, uint64_t target, uint32_t peer,
                                const Deadline& deadline) {
  Poll poll(deadline);
  while (!work_completed(ring, target)) {
    if (!poll.again()) return gave_up(poll, deadline, peer);
  }
  const uint64_t error = work_error(ring);
  if (error == 0) return arrived();
  return WaitResult{WaitStatus::kFailed, CCO_WORK_ERROR_PEER(error)};
}

}  // namespace cco::device::impl
