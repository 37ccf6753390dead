// Bounded waiting: every wait takes a Deadline and returns one WaitResult for the whole group.
#pragma once

#include "cco/device/abi.h"
#include "cco/device/atomic.h"
#include "cco/device/coop.h"
#include "cco/device/team.h"

namespace cco::device {

enum class WaitStatus : uint32_t {
  kArrived = 0,
  kTimedOut = 1,  ///< Observed by this wait alone; nothing has changed, so retrying is safe.
  kPeerLost = 2,  ///< The group's abort word is set and stays set: no retry will succeed.
  kRefused = 3,   ///< An argument is out of range: nothing was posted, nothing has moved.
  kFailed = 4,    ///< The transport reports an error for this peer; later operations fail too.
};

struct WaitResult {
  WaitStatus status;
  /// World rank. kTimedOut: the lowest one that was missing, kNoRank if the wait names nobody.
  /// kPeerLost: the one that was lost, called for the abort, or whose GPU was drained. kRefused,
  /// kFailed: the peer of the operation, if it has one. kArrived: kNoRank.
  uint32_t rank;

  /// For result buffers: 0 is "arrived", else the status below and the rank above.
  CCO_HOST_DEVICE uint64_t encode() const {
    return status == WaitStatus::kArrived ? 0
                                          : uint64_t{rank} << 32 | static_cast<uint32_t>(status);
  }
  static CCO_HOST_DEVICE WaitResult decode(uint64_t word) {
    if (word == 0) return WaitResult{WaitStatus::kArrived, kNoRank};
    return WaitResult{static_cast<WaitStatus>(word & 0xffffffffu),
                      static_cast<uint32_t>(word >> 32)};
  }
};

/// `nanoseconds` in ticks of a clock of `clock_khz`; no intermediate overflows up to 1 GHz.
CCO_HOST_DEVICE uint64_t ticks_of(uint64_t nanoseconds, uint32_t clock_khz) {
  constexpr uint64_t kPerMillisecond = 1000000;
  return nanoseconds / kPerMillisecond * clock_khz +
         nanoseconds % kPerMillisecond * clock_khz / kPerMillisecond;
}

/// A point in time on this device's clock, and the word that ends all waits of the group early.
/// Copyable; made once, it may bound any number of waits of the thread that made it.
struct Deadline {
  uint64_t at_ticks;           ///< ~0: never.
  const uint64_t* abort_word;  ///< In host memory, hence read seldom.

  /// Units     nanoseconds from now; ~0 never expires, and the wait still ends when a peer is lost
  static CCO_DEVICE Deadline after(const DeviceComm& comm, uint64_t nanoseconds) {
    CCO_DEVICE_CHECK(comm.clock_khz != 0, "communicator without a clock rate, clock_khz",
                     comm.clock_khz, 0);
    const uint64_t now = ticks();
    const uint64_t later = now + ticks_of(nanoseconds, comm.clock_khz);
    const bool never = nanoseconds == ~uint64_t{0} || later < now;
    return Deadline{never ? ~uint64_t{0} : later, global_pointer<const uint64_t>(comm.abort_word)};
  }
};

/// One thread's wait: look, and while again() look again. On the fast path it costs nothing.
class Poll {
 public:
  explicit CCO_DEVICE Poll(const Deadline& deadline) : deadline_(deadline) {}

  /// Call after each look that failed. False: give up, and aborted() says why.
  CCO_DEVICE bool again() {
    pause();
    if (++looks_ % kPollsPerClockRead != 0) return true;
    const bool expired = deadline_.at_ticks != ~uint64_t{0} && ticks() >= deadline_.at_ticks;
    if (expired || looks_ / kPollsPerClockRead % kClockReadsPerAbortRead == 0) {
      aborted_ = deadline_.abort_word != nullptr && load_relaxed_system(deadline_.abort_word) != 0;
    }
    return !expired && !aborted_;
  }
  CCO_DEVICE bool aborted() const { return aborted_; }

 private:
  const Deadline deadline_;
  uint32_t looks_ = 0;
  bool aborted_ = false;
};

/// Turns what each thread saw into one result for the group. `missing` is the world rank this
/// thread did not hear from (kNoRank if it waits for nobody by name).
///
/// Callers   all threads of `coop`, converged
/// Ordering  a barrier of the group: what one thread acquired, all have
template <CCO_COOP C>
CCO_DEVICE WaitResult agree(C coop, bool arrived, bool aborted, uint32_t missing,
                            const Deadline& deadline) {
  if (!coop.any(!arrived)) return WaitResult{WaitStatus::kArrived, kNoRank};
  if (coop.any(aborted)) {
    // The word is final, so every thread reads the same.
    return WaitResult{WaitStatus::kPeerLost,
                      CCO_ABORT_RANK(load_relaxed_system(deadline.abort_word))};
  }
  return WaitResult{WaitStatus::kTimedOut, minimum(coop, arrived ? kNoRank : missing)};
}

}  // namespace cco::device
