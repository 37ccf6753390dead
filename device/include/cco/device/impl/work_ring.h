// The producer's side of a ring of work items (abi_work.h). See gda.h and sdma.h for what is
// posted.
#pragma once

#include "cco/device/abi_work.h"
#include "cco/device/deadline.h"
#include "cco/device/lsa.h"

namespace cco::device::impl {

/// What one producer remembers of a ring, so that a post needs to load nothing first. Being old or
/// wrong it costs an attempt, and never claims more than is.
struct WorkGuess {
  uint64_t next = 0;  ///< The position that comes next, if nobody else has posted.
  /// As the ring's word of that name was. At first: no room, so look.
  uint64_t completed = ~uint64_t{0} << 32;
};

/// Words 0..7 of the item at `position`. `item.header` is made by CCO_WORK_HEADER with sequence 0.
struct WorkWords {
  uint64_t word[8];
};
CCO_HOST_DEVICE WorkWords encode_work(const cco_work_item& item, uint64_t position,
                                      uint32_t depth) {
  const uint64_t lap = CCO_WORK_LAP(position, depth);
  const uint64_t delta_top = (item.signal_delta >> 63) * (uint64_t{CCO_WORK_DELTA_TOP} << 40);
  const auto marked = [lap](uint64_t word) { return (word & ~CCO_WORK_TOP) | lap; };
  return WorkWords{{item.header | delta_top | static_cast<uint32_t>(position + 1),
                    marked(item.bytes), marked(item.remote_generation), marked(item.remote_offset),
                    marked(item.local_generation), marked(item.local_offset),
                    marked(item.signal_index), marked(item.signal_delta)}};
}

/// After a release at system scope.
CCO_DEVICE void write_work(const cco_work_ring& ring, uint64_t position,
                           const cco_work_item& item) {
  CCO_DEVICE_CHECK(((item.bytes | item.remote_generation | item.remote_offset |
                     item.local_generation | item.local_offset | item.signal_index) &
                    CCO_WORK_TOP) == 0,
                   "a word of a work item that leaves no room for its mark, position", position,
                   ring.depth);
  const WorkWords words = encode_work(item, position, ring.depth);
  uint64_t* const slot =
      global_pointer<uint64_t>(ring.items + (position & (ring.depth - 1)) * sizeof(cco_work_item));
  // The header last: on the host it is what releases the others.
  CCO_UNROLL for (int i = 6; i >= 0; i -= 2) {
    store_pair_published_system(slot + i, words.word[i], words.word[i + 1]);
  }
}

/// Whether `position` has a slot, i.e. the item that was in it before is done. Modulo 2^63, for the
/// top bit of `completed` means something else; and signed, for the position may be an old guess
/// and `completed` the larger.
CCO_DEVICE bool has_slot(const cco_work_ring& ring, uint64_t position, uint64_t completed) {
  return static_cast<int64_t>((position - completed) << 1) <
         static_cast<int64_t>(uint64_t{ring.depth} << 1);
}
CCO_DEVICE bool is_done(uint64_t completed, uint64_t target) {
  return reached(completed << 1, target << 1);
}

/// Brings a guess up to date. Returns whether `count` items have slots.
CCO_DEVICE bool look_for_slots(const cco_work_ring& ring, WorkGuess& guess, uint32_t count) {
  uint64_t* const seen = global_pointer<uint64_t>(ring.seen);
  // Both loads are under way before either is needed.
  guess.next = load_relaxed_device(global_pointer<const uint64_t>(ring.posted));
  guess.completed = load_relaxed_device(seen);
  const uint64_t last = guess.next + (count - 1);
  acquire_device(seen);
  if (has_slot(ring, last, guess.completed)) return true;
  // Across PCIe, hence only now.
  guess.completed = load_acquire_system(global_pointer<const uint64_t>(ring.completed));
  if (!has_slot(ring, last, guess.completed)) return false;
  store_release_device(seen, guess.completed);
  return true;
}

/// Tries once to take the next `count` positions, at most ring.depth, from `*position` on; false:
/// there is no room, or another producer was faster.
///
/// Ordering  on success release, system scope
CCO_DEVICE bool reserve_work(const cco_work_ring& ring, WorkGuess& guess, uint32_t count,
                             uint64_t* position) {
  if (!has_slot(ring, guess.next + (count - 1), guess.completed) &&
      !look_for_slots(ring, guess, count)) {
    return false;
  }
  const uint64_t next = guess.next;
  const uint64_t before =
      compare_exchange_relaxed_device(global_pointer<uint64_t>(ring.posted), next, next + count);
  publish_system();  // While the answer is under way.
  const bool taken = before == next;
  guess.next = taken ? next + count : before;
  *position = next;
  return taken;
}

/// Posts one item.
///
/// Callers   any threads, each for itself; many at once, those of one warp included
/// Ordering  release, system scope: whoever performs the item sees what the caller stored before
/// Blocking  while the ring is full, until `poll` gives up
/// Returns   what `completed` will reach when the item is done; 0: there was no room. Nothing has
///           been posted then, and the ring is as it was.
CCO_DEVICE uint64_t post_work(const cco_work_ring& ring, WorkGuess& guess,
                              const cco_work_item& item, Poll& poll) {
  uint64_t done_at = 0;
  bool posted = false;
  do {
    uint64_t position = 0;
    if (reserve_work(ring, guess, 1, &position)) {
      // Inside the loop: the consumer waits for this item, and other threads of the warp, still in
      // the loop, may wait for the consumer.
      write_work(ring, position, item);
      done_at = position + 1;
      posted = opaque(true);
    }
  } while (!posted && poll.again());
  return done_at;
}

/// Whether the item that post_work() returned this for is done, with all before it. Acquires then:
/// bytes that it fetched may be read. `*completed`: what there was to see; CCO_WORK_FAILED in it
/// says that work_error() has a failure to tell.
CCO_DEVICE bool work_completed(const cco_work_ring& ring, uint64_t position_plus_one,
                               uint64_t* completed) {
  const uint64_t* const word = global_pointer<const uint64_t>(ring.completed);
  *completed = load_relaxed_system(word);
  if (!is_done(*completed, position_plus_one)) return false;
  acquire_system(word);
  return true;
}

/// 0, or the first failure of any item: see CCO_WORK_ERROR. Across PCIe: read it seldom.
CCO_DEVICE uint64_t work_error(const cco_work_ring& ring) {
  return load_relaxed_system(global_pointer<const uint64_t>(ring.error));
}

}  // namespace cco::device::impl
