// The producer's side of a user queue: a ring of packets that many threads of this GPU write.
#pragma once

#include "cco/device/abi_sdma.h"
#include "cco/device/deadline.h"
#include "cco/device/impl/sdma_packets.h"
#include "cco/device/lanes.h"
#include "cco/device/lsa.h"

namespace cco::device::impl {

/// Addresses of this process.
struct SdmaCopy {
  uint64_t destination;
  uint64_t source;
  uint64_t bytes;
};
/// Addresses of the words that rise by one; 0: none.
struct SdmaSignals {
  uint64_t remote;
  uint64_t local;
  CCO_DEVICE uint32_t count() const { return (remote != 0) + (local != 0); }
};

CCO_DEVICE WaitStatus gave_up(const Poll& poll) {
  return poll.aborted() ? WaitStatus::kPeerLost : WaitStatus::kTimedOut;
}

/// What is reserved is always committed, so reserving waits for room first and changes nothing if
/// there is none. Nobody waits for room that only a doorbell can make: who crosses the middle or
/// the end of the ring rings, so that less than half of it is committed and not rung, and no
/// submission is longer than half.
class SdmaProducer {
 public:
  CCO_DEVICE SdmaProducer(const cco_sdma_device& device, uint32_t peer, uint32_t queue)
      : queue_(
            global_pointer<const cco_sdma_queue>(device.queues)[peer * device.queue_count + queue]),
        packets_(device.packets),
        largest_copy_(device.largest_copy),
        landed_(device.landed + sizeof(uint64_t) * (peer * device.queue_count + queue)) {}

  /// Every member's copy, and `signals` after all of them, or after each if `per_copy`. One
  /// reservation and one doorbell, unless the packets need more than half of the ring. `rings`:
  /// else the engine may not know of them before a later submission.
  ///
  /// Callers   all of `group`, whose leader's `deadline` counts
  /// Ordering  release, system scope, of what the members stored before
  /// Blocking  until the ring has room, `deadline`, or a peer is lost
  /// Returns   one result for the group; kFailed if there is no room and the engine has stopped
  CCO_DEVICE WaitStatus post(const ActiveLanes& group, SdmaCopy copy, const SdmaSignals& signals,
                             bool per_copy, bool rings, const Deadline& deadline) const {
    const uint32_t own_signals = per_copy ? signals.count() : 0;
    const uint32_t group_signals = per_copy ? 0 : signals.count();
    const uint64_t most = queue_.ring_bytes / kSdmaUnitBytes / 2;
    Poll poll(deadline);
    while (true) {
      const uint64_t copies = (copy.bytes + largest_copy_ - 1) / largest_copy_;
      const uint64_t all = group.sum(copies + own_signals) + group_signals;
      if (all == 0) return WaitStatus::kArrived;
      const bool is_last = all <= most;
      const uint64_t share = most / group.count();
      const uint64_t mine = is_last ? copies + own_signals : (copies < share ? copies : share);
      const uint64_t before = group.exclusive_sum(mine);
      const uint64_t units = is_last ? all : group.sum(mine);

      uint64_t reserved = 0;
      if (group.is_leader()) reserved = reserve(units * kSdmaUnitBytes, poll);
      reserved = group.broadcast(reserved, 0);
      const auto failure = static_cast<WaitStatus>(reserved % kSdmaUnitBytes);
      if (failure != WaitStatus::kArrived) return failure;

      const uint64_t place = reserved + before * kSdmaUnitBytes;
      const uint64_t after = write_copies(place, &copy, is_last ? copies : mine);
      if (is_last && per_copy) write_signals(after, signals);
      const uint64_t end = reserved + units * kSdmaUnitBytes;
      if (is_last && group.is_leader()) {
        if (!per_copy) write_signals(end - group_signals * kSdmaUnitBytes, signals);
      }
      drain_stores();
      group.sync();
      bool submitted = true;
      if (group.is_leader()) submitted = submit(reserved, end, rings || !is_last, deadline);
      if (group.any(!submitted)) return WaitStatus::kPeerLost;
      if (is_last) return WaitStatus::kArrived;
    }
  }

  /// Rings for what is committed.
  ///
  /// Callers   one thread
  CCO_DEVICE WaitStatus ring(const Deadline& deadline) const {
    const uint64_t committed = load_acquire_device(word(queue_.committed_index));
    if (reached(load_relaxed_system(word(queue_.write_index)), committed)) {
      return WaitStatus::kArrived;
    }
    Poll poll(deadline);
    return post_unit(false, poll, deadline);
  }

  /// Waits until what is committed has landed. That the engine has read a packet says nothing about
  /// its copy, hence a fence.
  ///
  /// Callers   one thread
  /// Ordering  acquire, system scope, on kArrived
  CCO_DEVICE WaitStatus wait_landed(const Deadline& deadline) const {
    const uint64_t target = load_acquire_device(word(queue_.committed_index));
    const uint64_t* const landed = word(landed_);
    Poll poll(deadline);
    if (!reached(load_relaxed_system(landed), target)) {
      const WaitStatus posted = post_unit(true, poll, deadline);
      if (posted != WaitStatus::kArrived) return posted;
      for (uint32_t looks = 1; !reached(load_relaxed_system(landed), target); ++looks) {
        // The engine's own word is far away.
        if (looks % kLooksPerStopRead == 0 && stopped(load_relaxed_system(read_index()))) {
          return WaitStatus::kFailed;
        }
        if (!poll.again()) return gave_up(poll);
      }
    }
    acquire_system(landed);
    return WaitStatus::kArrived;
  }

 private:
  static constexpr uint32_t kLooksPerStopRead = 256;

  static CCO_DEVICE uint64_t* word(uint64_t address) { return global_pointer<uint64_t>(address); }
  static CCO_DEVICE bool stopped(uint64_t read) { return read == CCO_SDMA_STOPPED; }
  CCO_DEVICE const uint64_t* read_index() const { return word(queue_.read_index); }

  /// Signed: a producer may hold old values, and then `read` may be the larger.
  CCO_DEVICE bool has_room(uint64_t end, uint64_t read) const {
    return static_cast<int64_t>(end - read) <= static_cast<int64_t>(queue_.ring_bytes);
  }

  /// Where `bytes` may be written; or, which is no multiple of a unit, the WaitStatus.
  CCO_DEVICE uint64_t reserve(uint64_t bytes, Poll& poll) const {
    uint64_t* const reserved = word(queue_.reserved_index);
    uint64_t* const seen = word(queue_.seen_index);
    while (true) {
      const uint64_t begin = load_relaxed_device(reserved);
      bool free = has_room(begin + bytes, load_relaxed_device(seen));
      if (free) {
        acquire_device(seen);
      } else {
        // The engine's own word is far away, hence only now, and for all.
        const uint64_t read = load_acquire_system(read_index());
        if (stopped(read)) return static_cast<uint64_t>(WaitStatus::kFailed);
        free = has_room(begin + bytes, read);
        if (free) store_release_device(seen, read);
      }
      if (free) {
        if (compare_exchange_relaxed_device(reserved, begin, begin + bytes) == begin) return begin;
      } else if (!poll.again()) {
        return static_cast<uint64_t>(gave_up(poll));
      }
    }
  }

  CCO_DEVICE void write_unit(uint64_t index, const SdmaUnit& unit) const {
    Vector16* const place =
        global_pointer<Vector16>(queue_.ring + (index & (queue_.ring_bytes - 1)));
    CCO_UNROLL for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t* const from = unit.dwords + 4 * i;
      place[i] = Vector16{from[0], from[1], from[2], from[3]};
    }
  }

  /// Takes `count` chunks off `copy`; returns the index behind them.
  CCO_DEVICE uint64_t write_copies(uint64_t index, SdmaCopy* copy, uint64_t count) const {
    for (uint64_t i = 0; i < count && copy->bytes != 0; ++i, index += kSdmaUnitBytes) {
      const uint64_t bytes = copy->bytes < largest_copy_ ? copy->bytes : largest_copy_;
      write_unit(index, sdma_copy(packets_, copy->destination, copy->source, bytes));
      copy->destination += bytes;
      copy->source += bytes;
      copy->bytes -= bytes;
    }
    return index;
  }

  CCO_DEVICE void write_signals(uint64_t index, const SdmaSignals& signals) const {
    if (signals.remote != 0) {
      write_unit(index, sdma_add(packets_, signals.remote, 1));
      index += kSdmaUnitBytes;
    }
    if (signals.local != 0) write_unit(index, sdma_add(packets_, signals.local, 1));
  }

  /// One unit, rung: a fence, or else a NOP.
  CCO_DEVICE WaitStatus post_unit(bool is_fence, Poll& poll, const Deadline& deadline) const {
    const uint64_t reserved = reserve(kSdmaUnitBytes, poll);
    if (reserved % kSdmaUnitBytes != 0) return static_cast<WaitStatus>(reserved % kSdmaUnitBytes);
    const uint64_t end = reserved + kSdmaUnitBytes;
    write_unit(reserved, is_fence ? sdma_fence(packets_, landed_, end) : sdma_nop());
    return submit(reserved, end, true, deadline) ? WaitStatus::kArrived : WaitStatus::kPeerLost;
  }

  /// Commits what has been written, once all before it is committed. Those who reserved it are
  /// writing and wait for nobody but one another, so this ends without a deadline, but not if one
  /// of them was given up.
  CCO_DEVICE bool submit(uint64_t begin, uint64_t end, bool rings, const Deadline& deadline) const {
    uint64_t* const committed = word(queue_.committed_index);
    Poll turn(Deadline{~uint64_t{0}, deadline.abort_word});
    while (load_relaxed_device(committed) != begin) {
      if (!turn.again()) return false;
    }
    acquire_device(committed);
    const uint64_t half = queue_.ring_bytes / 2;
    if (rings || begin / half != end / half) {
      store_release_system(word(queue_.write_index), end);
      store_release_system(word(queue_.doorbell), end);
    }
    store_release_device(committed, end);
    return true;
  }

  const cco_sdma_queue queue_;
  const uint32_t packets_;
  const uint64_t largest_copy_;
  const uint64_t landed_;  // Address of the index up to which this queue's copies have landed.
};

}  // namespace cco::device::impl
