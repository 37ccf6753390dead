// One NIC's send queue as its many producers share it: places, turns, doorbells, completions.
//
// A producer reserves a range of units only once the queue has room for it, so that one that gives
// up leaves no hole; writes its entries; waits until `rung` is where its range begins, which other
// producers bring about without anybody's help; rings; and passes the turn on by moving `rung`.
// Aggregated entries pass the turn on without a doorbell, and a later doorbell covers them. At most
// half the queue is left without, so that room always comes.
#pragma once

#include "cco/device/impl/lsa_impl.h"
#include "cco/device/impl/nic_bnxt.h"
#include "cco/device/impl/nic_ionic.h"
#include "cco/device/impl/nic_mlx5.h"
#include "cco/device/impl/wait_result.h"
#include "cco/device/lanes.h"

#if CCO_CONCEPTS
#include <concepts>
#endif

namespace cco::device::impl {

#if CCO_CONCEPTS
/// What differs from NIC to NIC.
template <typename N>
concept NicOps = requires(const cco_gda_queue& queue, uint64_t index, const NicRequest& request,
                          const uint64_t* rung) {
  { N::kUnits } -> std::same_as<const uint32_t&>;  // Of the send queue, for each operation.
  { N::kMsnTable } -> std::same_as<const bool&>;   // packets() and write_msn() exist.
  N::write(queue, index, request);                 // The entry that begins at that unit.
  N::ring(queue, index);                           // Doorbell: send up to that unit.
  { N::look(queue, index, rung) } -> std::same_as<NicProgress>;  // `index`: completed so far.
};
#define CCO_NIC_OPS ::cco::device::impl::NicOps
#else
#define CCO_NIC_OPS typename
#endif

CCO_DEVICE cco_gda_queue_state& state_of(const cco_gda_queue& queue) {
  return *global_pointer<cco_gda_queue_state>(queue.state);
}

/// What one lane posts to one queue: the parts of a put or get, then perhaps a signal.
struct NicWork {
  NicRequest data;
  uint64_t data_bytes;
  uint64_t data_count;  ///< Operations; see count_parts().
  NicRequest signal;
  bool has_signal;

  CCO_DEVICE uint64_t count() const { return data_count + (has_signal ? 1 : 0); }
  CCO_DEVICE NicRequest operation(uint64_t i, uint32_t max_message_bytes) const {
    if (i == data_count) return signal;
    const uint64_t offset = i * max_message_bytes;
    const uint64_t left = data_bytes - offset;
    NicRequest part = data;
    part.bytes = static_cast<uint32_t>(left < max_message_bytes ? left : max_message_bytes);
    part.remote_offset += offset;
    part.local_offset += offset;
    return part;
  }
};

/// No bytes are one operation too: it takes its turn among the others.
CCO_DEVICE uint64_t count_parts(uint64_t bytes, uint32_t max_message_bytes) {
  // GPUs divide slowly.
  return bytes <= max_message_bytes ? 1 : (bytes - 1) / max_message_bytes + 1;
}

/// Moves `word` up to `target`, unless it is there or beyond: by signed difference, for a count
/// that wraps is not the larger for having more bits set.
CCO_DEVICE void raise_to(uint64_t* word, uint64_t target) {
  uint64_t seen = load_relaxed_device(word);
  while (!reached(seen, target)) {
    const uint64_t before = compare_exchange_acq_rel_device(word, seen, target);
    if (before == seen) return;
    seen = before;
  }
}

/// Looks at the completion queue once.
template <CCO_NIC_OPS N>
CCO_DEVICE void look_for_completions(const cco_gda_queue& queue) {
  cco_gda_queue_state& state = state_of(queue);
  // Read before the completion queue, which is then at least as new.
  const uint64_t done = load_acquire_device(&state.completed);
  const NicProgress seen = N::look(queue, done, &state.rung);
  if (seen.failed) {
    const uint64_t error = CCO_GDA_ERROR(seen.syndrome, queue.peer);
    if (compare_exchange_relaxed_device(&state.error, 0, error) == 0) {
      store_release_system(global_pointer<uint64_t>(queue.error), error);
    }
  } else if (seen.completed != done) {
    raise_to(&state.completed, seen.completed);
  }
}

CCO_DEVICE bool has_failed(const cco_gda_queue& queue) {
  return load_relaxed_device(&state_of(queue).error) != 0;
}

/// Waits until the units before `target` are completed.
template <CCO_NIC_OPS N>
CCO_DEVICE WaitResult wait_completed(const cco_gda_queue& queue, uint64_t target,
                                     const Deadline& deadline) {
  const uint64_t* const completed = &state_of(queue).completed;
  Poll poll(deadline);
  while (!reached(load_relaxed_device(completed), target)) {
    look_for_completions<N>(queue);
    if (reached(load_relaxed_device(completed), target)) break;
    if (has_failed(queue)) return WaitResult{WaitStatus::kFailed, queue.peer};
    if (!poll.again()) return gave_up(poll, deadline, queue.peer);
  }
  acquire_device(completed);
  acquire_system(completed);  // What the NIC wrote, whoever has seen its completion.
  return arrived();
}

/// Units for one producer.
struct NicPlace {
  uint64_t base;
  bool has_turn;  ///< All before it have rung.
};

/// Reserves `units`, at most half of the queue.
template <CCO_NIC_OPS N>
CCO_DEVICE WaitResult reserve_units(const cco_gda_queue& queue, uint32_t units, NicPlace* place,
                                    const Deadline& deadline) {
  cco_gda_queue_state& state = state_of(queue);
  Poll poll(deadline);
  for (;;) {
    // All are under way before any is needed: each takes as long as the rest of a post.
    const uint64_t error = load_relaxed_device(&state.error);
    const uint64_t next = load_relaxed_device(&state.reserved);
    const uint64_t completed = load_relaxed_device(&state.completed);
    const uint64_t rung = load_relaxed_device(&state.rung);
    if (error != 0) return WaitResult{WaitStatus::kFailed, queue.peer};
    // One unit stays free: a full queue must not look like an empty one. Signed, for `next` may be
    // the older of the two, and then the exchange fails.
    if (static_cast<int64_t>(next + units - completed) < static_cast<int64_t>(queue.sq_depth)) {
      if (compare_exchange_relaxed_device(&state.reserved, next, next + units) == next) {
        acquire_device(&state.completed);  // Their entries were read before.
        *place = NicPlace{next, rung == next};
        return arrived();
      }
      continue;
    }
    look_for_completions<N>(queue);
    if (!poll.again()) return gave_up(poll, deadline, queue.peer);
  }
}

/// Waits until all before it have rung, which needs nobody's help.
CCO_DEVICE void take_turn(const cco_gda_queue& queue, const NicPlace& place) {
  const uint64_t* const rung = &state_of(queue).rung;
  while (!place.has_turn && load_relaxed_device(rung) != place.base) pause();
  acquire_device(rung);
}

/// The lane's share [from, to) of operations, of which the first of the group lies at unit `base`.
struct NicShare {
  uint64_t base;
  uint64_t first;  ///< Of this lane's operations, in the group's order.
  uint64_t begin;  ///< Of this range, in the group's order.
  uint64_t from;
  uint64_t to;
};

/// Message and packet numbers, which follow the order of turns.
template <CCO_NIC_OPS N, typename Group>
CCO_DEVICE void number_messages(const Group& group, const cco_gda_queue& queue, const NicWork& mine,
                                const NicShare& share) {
  if constexpr (N::kMsnTable) {
    uint64_t* const sequence = &state_of(queue).sequence;
    const uint64_t psn_first =
        group.broadcast(group.is_leader() ? load_relaxed_device(sequence) : 0, 0);
    uint64_t packets = 0;
    for (uint64_t i = share.from; i < share.to; ++i) {
      packets +=
          N::packets(mine.operation(i - share.first, queue.max_message_bytes), queue.mtu_bytes);
    }
    uint64_t psn = psn_first + group.exclusive_sum(packets);
    const uint64_t psn_next = psn_first + group.sum(packets);
    for (uint64_t i = share.from; i < share.to; ++i) {
      const uint64_t next =
          psn +
          N::packets(mine.operation(i - share.first, queue.max_message_bytes), queue.mtu_bytes);
      N::write_msn(queue, share.base + (i - share.begin) * N::kUnits, psn, next);
      psn = next;
    }
    if (group.is_leader()) store_relaxed_device(sequence, psn_next);
  }
}

/// Posts what the lanes of `group` bring, in their order, by one reservation and one doorbell as
/// long as it fits into half of the queue.
/// `Group`: ActiveLanes or OneLane.
template <CCO_NIC_OPS N, typename Group>
CCO_DEVICE WaitResult post_to_queue(const Group& group, const cco_gda_queue& queue,
                                    const NicWork& mine, bool aggregate, const Deadline& deadline) {
  cco_gda_queue_state& state = state_of(queue);
  const uint64_t most = (queue.sq_depth / 2 - 1) / N::kUnits;
  const uint64_t first = group.exclusive_sum(mine.count());
  const uint64_t total = group.sum(mine.count());
  for (uint64_t begin = 0; begin < total; begin += most) {
    const uint64_t end = total - begin < most ? total : begin + most;
    const uint32_t units = static_cast<uint32_t>(end - begin) * N::kUnits;
    NicPlace place{};
    WaitResult room = arrived();
    if (group.is_leader()) room = reserve_units<N>(queue, units, &place, deadline);
    room = WaitResult::decode(group.broadcast(room.encode(), 0));
    if (room.status != WaitStatus::kArrived) return room;

    const uint64_t base = group.broadcast(place.base, 0);
    const uint64_t last = first + mine.count();
    const NicShare share{base, first, begin, first > begin ? first : begin,
                         last < end ? last : end};
    for (uint64_t i = share.from; i < share.to; ++i) {
      NicRequest request = mine.operation(i - first, queue.max_message_bytes);
      request.completion = i + 1 == end;
      N::write(queue, base + (i - begin) * N::kUnits, request);
    }
    if (group.is_leader()) take_turn(queue, place);
    number_messages<N>(group, queue, mine, share);
    drain_stores();
    group.sync();
    if (group.is_leader()) {
      const uint64_t next = base + units;
      if (!aggregate || next - load_relaxed_device(&state.covered) > queue.sq_depth / 2) {
        N::ring(queue, next);
        store_relaxed_device(&state.covered, next);
      }
      store_release_device(&state.rung, next);
    }
  }
  return arrived();
}

/// Up to where entries are written; `*waits`: some of them for a doorbell.
CCO_DEVICE uint64_t written_units(const cco_gda_queue& queue, bool* waits) {
  cco_gda_queue_state& state = state_of(queue);
  const uint64_t written = load_acquire_device(&state.rung);
  *waits = !reached(load_relaxed_device(&state.covered), written);
  return written;
}

}  // namespace cco::device::impl
