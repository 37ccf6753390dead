// The producer's side of a ring of work items (abi_work.h). See gda.h and sdma.h for what is
// posted.
#pragma once

#include "cco/device/abi_work.h"
#include "cco/device/deadline.h"
#include "cco/device/lsa.h"

namespace cco::device::impl {

/// Words 1..7 of an item. Word 0 comes last and apart: it makes the item valid.
CCO_DEVICE void write_work(uint64_t address, const cco_work_item& item) {
  const uint64_t words[6] = {item.remote_generation, item.remote_offset, item.local_generation,
                             item.local_offset,      item.signal_index,  item.signal_delta};
  *global_pointer<uint64_t>(address + offsetof(cco_work_item, bytes)) = item.bytes;
  Vector16* const pairs =
      global_pointer<Vector16>(address + offsetof(cco_work_item, remote_generation));
  CCO_UNROLL for (uint32_t i = 0; i < 3; ++i) {
    const uint64_t low = words[2 * i];
    const uint64_t high = words[2 * i + 1];
    pairs[i] = Vector16{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                        static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
  }
}

/// Whether `position` has a slot, i.e. the item that was in it before is done.
CCO_DEVICE bool has_slot(const cco_work_ring& ring, uint64_t position, uint64_t completed) {
  // Signed: both may be old, and then `completed` may be the larger.
  return static_cast<int64_t>(position - completed) < static_cast<int64_t>(ring.depth);
}

/// Hands out the next position, if the ring has room.
CCO_DEVICE bool reserve_work(const cco_work_ring& ring, uint64_t* position) {
  uint64_t* const posted = global_pointer<uint64_t>(ring.posted);
  uint64_t* const seen = global_pointer<uint64_t>(ring.seen);
  const uint64_t next = load_relaxed_device(posted);
  if (has_slot(ring, next, load_relaxed_device(seen))) {
    acquire_device(seen);
  } else {
    // Across PCIe, hence only now.
    const uint64_t completed = load_acquire_system(global_pointer<const uint64_t>(ring.completed));
    if (!has_slot(ring, next, completed)) return false;
    store_release_device(seen, completed);
  }
  *position = next;
  return compare_exchange_relaxed_device(posted, next, next + 1) == next;
}

/// Posts one item. `item.header` is made by CCO_WORK_HEADER with sequence 0.
///
/// Callers   any threads, each for itself; many at once, those of one warp included
/// Ordering  release, system scope: whoever performs the item sees what the caller stored before
/// Blocking  while the ring is full, until `poll` gives up
/// Returns   what `completed` will reach when the item is done; 0: there was no room. Nothing has
///           been posted then, and the ring is as it was.
CCO_DEVICE uint64_t post_work(const cco_work_ring& ring, cco_work_item item, Poll& poll) {
  uint64_t done_at = 0;
  bool posted = false;
  do {
    uint64_t position = 0;
    if (reserve_work(ring, &position)) {
      // Inside the loop: the consumer waits for this item, and other threads of the warp, still in
      // the loop, may wait for the consumer.
      const uint64_t address = ring.items + (position & (ring.depth - 1)) * sizeof(cco_work_item);
      write_work(address, item);
      done_at = position + 1;
      store_release_system(global_pointer<uint64_t>(address),
                           item.header | static_cast<uint32_t>(done_at));
      posted = opaque(true);
    }
  } while (!posted && poll.again());
  return done_at;
}

/// Whether the item that post_work() returned this for is done, with all before it. Acquires then:
/// bytes that it fetched may be read.
CCO_DEVICE bool work_completed(const cco_work_ring& ring, uint64_t position_plus_one) {
  const uint64_t* const completed = global_pointer<const uint64_t>(ring.completed);
  if (!reached(load_relaxed_system(completed), position_plus_one)) return false;
  acquire_system(completed);
  return true;
}

/// 0, or the first failure of any item: see CCO_WORK_ERROR. Across PCIe: read it seldom.
CCO_DEVICE uint64_t work_error(const cco_work_ring& ring) {
  return load_relaxed_system(global_pointer<const uint64_t>(ring.error));
}

}  // namespace cco::device::impl
