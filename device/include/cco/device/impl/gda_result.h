// Results of posts and waits, and how a group agrees on one.
#pragma once

#include "cco/device/deadline.h"

namespace cco::device::impl {

CCO_DEVICE WaitResult arrived() { return WaitResult{WaitStatus::kArrived, kNoRank}; }

/// Of a poll that has given up on `rank`.
CCO_DEVICE WaitResult gave_up(const Poll& poll, const Deadline& deadline, uint32_t rank) {
  if (!poll.aborted()) return WaitResult{WaitStatus::kTimedOut, rank};
  return WaitResult{WaitStatus::kPeerLost,
                    CCO_ABORT_RANK(load_relaxed_system(deadline.abort_word))};
}

/// One result of what the threads bring: of the worst kind, with the lowest rank that has it. A
/// barrier of the group.
template <CCO_COOP C>
CCO_DEVICE WaitResult combine(C coop, const WaitResult& mine) {
  const bool good = mine.status == WaitStatus::kArrived;
  if (!coop.any(!good)) return arrived();
  constexpr uint32_t kNone = 0xffffffffu;
  const uint32_t worst = minimum(coop, good ? kNone : ~static_cast<uint32_t>(mine.status));
  const bool counts = ~static_cast<uint32_t>(mine.status) == worst;
  return WaitResult{static_cast<WaitStatus>(~worst), minimum(coop, counts ? mine.rank : kNoRank)};
}

}  // namespace cco::device::impl
