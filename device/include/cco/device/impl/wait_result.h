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

/// Of what the threads bring: the worst kind, with the lowest rank that has it. A barrier.
template <CCO_COOP C>
CCO_DEVICE_CALL WaitResult worst(C coop, uint64_t encoded) {
  constexpr uint32_t kNone = 0xffffffffu;
  const WaitResult mine = WaitResult::decode(encoded);
  const bool good = mine.status == WaitStatus::kArrived;
  const uint32_t first = minimum(coop, good ? kNone : ~static_cast<uint32_t>(mine.status));
  const bool counts = !good && ~static_cast<uint32_t>(mine.status) == first;
  return WaitResult{static_cast<WaitStatus>(~first), minimum(coop, counts ? mine.rank : kNoRank)};
}

/// One result for the group. A barrier.
template <CCO_COOP C>
CCO_DEVICE WaitResult combine(C coop, const WaitResult& mine) {
  return coop.any(mine.status != WaitStatus::kArrived) ? worst(coop, mine.encode()) : arrived();
}

}  // namespace cco::device::impl
