// What cco-bench times of GDA, by one warp. Result words as in bench.cc, one per kernel. `elapsed`:
// address of a uint64_t that gets the ticks that the posting alone took.
#include "cco/device.hpp"
#include "cco/device/gda.h"
#include "device/kernels/store_result.h"

namespace cco::device {
namespace {

using kernels::store_result;

CCO_DEVICE void store_elapsed(uint64_t* elapsed, uint64_t since) {
  if (thread_index() == 0) *elapsed = ticks() - since;
}

/// The bare loop behind Gda: an entry that was encoded before the loop, and its doorbell, in the
/// places and with the orders that the NIC's format needs (impl/nic_*.h); without orders if not
/// kOrdered, which no NIC could be given. One thread.
template <typename N, bool kOrdered>
CCO_DEVICE void write_bare(const cco_gda_queue& queue, const typename N::Entry& entry,
                           uint64_t count) {
  constexpr bool kMlx5 = std::is_same<N, impl::Mlx5>::value;
  constexpr bool kBnxt = std::is_same<N, impl::Bnxt>::value;
  constexpr bool kIonic = std::is_same<N, impl::Ionic>::value;
  constexpr uint32_t kWords = sizeof(entry.word) / sizeof(uint32_t);
  constexpr uint32_t kUnitBytes = sizeof(entry.word) / N::kUnits;
  const auto store = [](uint64_t address, auto value) {
    auto* const word = global_pointer<decltype(value)>(address);
    kOrdered ? store_release_system(word, value) : store_relaxed_system(word, value);
  };
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t index = i * N::kUnits;
    CCO_UNROLL for (uint32_t w = kIonic ? 4 : 0; w < kWords; w += 4) {
      const uint64_t unit = (index + 4 * w / kUnitBytes) & (queue.sq_depth - 1);
      impl::store_entry(queue.sq + unit * kUnitBytes + 4 * w % kUnitBytes, entry.word[w],
                        entry.word[w + 1], entry.word[w + 2], entry.word[w + 3]);
    }
    if constexpr (kIonic) {
      const uint64_t place = queue.sq + (index & (queue.sq_depth - 1)) * kUnitBytes;
      *global_pointer<uint64_t>(place) = entry.word[0];
      *global_pointer<uint32_t>(place + 12) = entry.word[3];
      store(place + 8, entry.word[2]);  // Makes the entry valid.
    }
    if constexpr (kBnxt) {
      *global_pointer<uint64_t>(queue.msn_table + 8 * (i & (queue.msn_depth - 1))) =
          index << 48 | i;
    }
    if constexpr (kMlx5) store(queue.doorbell_record + 4, static_cast<uint32_t>(index + 1));
    store(queue.doorbell, index + N::kUnits);
  }
}

template <typename N>
CCO_DEVICE void write_bare(const cco_gda_queue& queue, const typename N::Entry& entry,
                           uint64_t count, bool ordered) {
  ordered ? write_bare<N, true>(queue, entry, count) : write_bare<N, false>(queue, entry, count);
}

}  // namespace

/// `count` times Gda::put() of `bytes`, each with a doorbell of its own. `elapsed` leaves out the
/// last flush: the posting alone, if all of it fits into the queue. `flush_each`: each is waited
/// for; 2: and `elapsed` is what the posts took, by a clock that is read before and after each.
CCO_KERNEL void gda_put(DeviceComm comm, Window window, uint32_t peer, uint32_t context,
                        uint64_t offset, uint64_t source_offset, uint64_t bytes, uint64_t count,
                        uint32_t flush_each, uint64_t deadline_ns, uint64_t* elapsed,
                        uint64_t* result) {
  const WarpCoop warp;
  const Gda gda(comm, context);
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  const bool stamped = flush_each == 2;
  const uint64_t start = ticks();
  uint64_t posting = 0;
  for (uint64_t i = 1; i <= count && outcome.status == WaitStatus::kArrived; ++i) {
    const uint64_t begin = stamped ? ticks() : start;
    outcome = gda.put(warp, peer, at(window, offset), at(window, source_offset), bytes,
                      GdaPost{deadline});
    if (stamped) posting += ticks() - begin;
    if (i == count) store_elapsed(elapsed, stamped ? ticks() - posting : start);
    if ((flush_each != 0 || i == count) && outcome.status == WaitStatus::kArrived) {
      outcome = gda.flush(warp, peer, deadline);
    }
  }
  store_result(result, outcome);
}

/// The same by all threads of the warp at once: `count` calls, each an entry per thread and one
/// doorbell.
CCO_KERNEL void gda_put_lanes(DeviceComm comm, Window window, uint32_t peer, uint32_t context,
                              uint64_t offset, uint64_t source_offset, uint64_t bytes,
                              uint64_t count, uint64_t deadline_ns, uint64_t* elapsed,
                              uint64_t* result) {
  const WarpCoop warp;
  const Gda gda(comm, context);
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  const uint64_t mine = bytes * thread_index();
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  const uint64_t start = ticks();
  for (uint64_t i = 0; i < count && !warp.any(outcome.status != WaitStatus::kArrived); ++i) {
    outcome =
        gda.put(ThreadCoop{}, peer, at(window, offset + mine), at(window, source_offset + mine),
                bytes, GdaPost{deadline, NoSignal{}, kGdaSamePeer});
  }
  store_elapsed(elapsed, start);
  outcome = impl::combine(warp, outcome);
  if (outcome.status == WaitStatus::kArrived) outcome = gda.flush(warp, peer, deadline);
  store_result(result, outcome);
}

/// What gda_put is measured against: the bytes of `count` entries and doorbells, at the places of
/// `queue`, which nobody serves. `format`: CCO_GDA_MLX5, _BNXT or _IONIC.
CCO_KERNEL void gda_write_bare(cco_gda_queue queue, uint32_t format, uint32_t ordered,
                               uint64_t bytes, uint64_t count, uint64_t* elapsed) {
  const impl::NicRequest request{
      impl::NicKind::kWrite, true, static_cast<uint32_t>(bytes), 1, 2, bytes, 0, 0};
  const impl::Mlx5::Entry mlx5 = impl::Mlx5::encode(request, 0, queue.qpn);
  const impl::Bnxt::Entry bnxt = impl::Bnxt::encode(request);
  const impl::Ionic::Entry ionic = impl::Ionic::encode(request, 0, queue.sq_depth);
  const uint64_t start = ticks();
  if (thread_index() == 0) {
    switch (format) {
      case CCO_GDA_MLX5:
        write_bare<impl::Mlx5>(queue, mlx5, count, ordered != 0);
        break;
      case CCO_GDA_BNXT:
        write_bare<impl::Bnxt>(queue, bnxt, count, ordered != 0);
        break;
      default:
        write_bare<impl::Ionic>(queue, ionic, count, ordered != 0);
    }
  }
  store_elapsed(elapsed, start);
}

/// What the proxy's round trip is measured against: a word of host memory that a thread of the CPU
/// answers in another, `iterations` times from `base` on. No order at all.
CCO_KERNEL void flag_ring(DeviceComm comm, uint64_t* request, const uint64_t* answer, uint64_t base,
                          uint64_t iterations, uint64_t deadline_ns, uint64_t* result) {
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  if (thread_index() != 0) return;
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 1; i <= iterations && outcome.status == WaitStatus::kArrived; ++i) {
    store_relaxed_system(request, base + i);
    Poll poll(deadline);
    while (load_relaxed_system(answer) != base + i) {
      if (poll.again()) continue;
      outcome.status = poll.aborted() ? WaitStatus::kPeerLost : WaitStatus::kTimedOut;
      break;
    }
  }
  store_result(result, outcome);
}

CCO_KERNEL_TABLE(gda_bench, gda_put, gda_put_lanes, gda_write_bare, flag_ring);

}  // namespace cco::device
