// What cco-bench times, by events on the stream around one launch. `result` is one word per kernel:
// 0, or the encoded WaitResult of the first wait that failed. Every wait is bounded by
// `deadline_ns` from the start of its kernel.
#include "cco/device.hpp"
#include "device/kernels/store_result.h"

namespace cco::device {
namespace {

using kernels::store_result;

/// One round among the team as LsaBarrier makes it, with the order as a parameter: the baselines.
/// Inbox of sender s: words[1 + s].
struct Flags {
  const DeviceComm& comm;
  uint64_t words_offset;

  CCO_DEVICE Flags(const DeviceComm& comm, uint32_t index)
      : comm(comm), words_offset(comm.barrier_offset + 8 * uint64_t{index} * (comm.lsa_size + 1)) {}
  CCO_DEVICE uint64_t* epoch() const { return local_ptr<uint64_t>(comm.control, words_offset, 8); }
  CCO_DEVICE uint64_t* inbox(uint32_t rank, uint32_t sender) const {
    return peer_ptr<uint64_t>(comm.control, rank, words_offset + 8 * (1 + uint64_t{sender}), 8);
  }
};

template <bool kOrdered>
CCO_DEVICE WaitResult meet(BlockCoop block, const Flags& flags, uint64_t epoch,
                           const Deadline& deadline) {
  const uint32_t self = flags.comm.lsa_rank;
  block.sync();
  for (uint32_t peer = block.thread_rank(); peer < flags.comm.lsa_size; peer += block.size()) {
    if (peer == self) continue;
    uint64_t* const word = flags.inbox(peer, self);
    kOrdered ? store_release_system(word, epoch) : store_relaxed_system(word, epoch);
  }
  Poll poll(deadline);
  bool arrived = true;
  for (uint32_t peer = block.thread_rank(); peer < flags.comm.lsa_size && arrived;
       peer += block.size()) {
    if (peer == self) continue;
    const uint64_t* const word = flags.inbox(self, peer);
    do {
      const uint64_t seen = kOrdered ? load_acquire_system(word) : load_relaxed_system(word);
      arrived = seen >= epoch;
    } while (!arrived && poll.again());
  }
  return agree(block, arrived, poll.aborted(), kNoRank, deadline);
}

template <bool kOrdered>
CCO_DEVICE WaitResult meet_often(const DeviceComm& comm, uint32_t index, uint64_t iterations,
                                 const Deadline& deadline) {
  const BlockCoop block;
  const Flags flags(comm, index);
  uint64_t epoch = load_relaxed_device(flags.epoch());
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 0; i < iterations && outcome.status == WaitStatus::kArrived; ++i) {
    outcome = meet<kOrdered>(block, flags, ++epoch, deadline);
  }
  if (block.is_leader()) store_relaxed_device(flags.epoch(), epoch);
  return outcome;
}

}  // namespace

/// The bare copy that put and get are measured against: 16 bytes a load, neighbouring threads of
/// the grid at neighbouring places. Both addresses and `bytes` are multiples of 16.
CCO_KERNEL void copy_bare(void* destination, const void* source, uint64_t bytes) {
#if CCO_GPU
  constexpr uint32_t kUnroll = 8;
  Vector16* const __restrict__ to = static_cast<Vector16*>(destination);
  const Vector16* const __restrict__ from = static_cast<const Vector16*>(source);
  const uint64_t step = GridCoop{}.size();
  uint64_t i = GridCoop{}.thread_rank();
  for (; i + (kUnroll - 1) * step < bytes / 16; i += kUnroll * step) {
    Vector16 held[kUnroll];
    CCO_UNROLL for (uint32_t k = 0; k < kUnroll; ++k) held[k] = from[i + k * step];
    CCO_UNROLL for (uint32_t k = 0; k < kUnroll; ++k) to[i + k * step] = held[k];
  }
  for (; i < bytes / 16; i += step) to[i] = from[i];
#else
  impl::copy_bytes(GridCoop{}, destination, source, bytes);
#endif
}

/// put() of `bytes` of the own window at source_offset to `peer`'s at offset, by the whole grid.
CCO_KERNEL void lsa_put(Window window, uint32_t peer, uint64_t offset, uint64_t source_offset,
                        uint64_t bytes) {
  put(GridCoop{}, peer, at(window, offset), at(window, source_offset), bytes);
}

/// get() of `bytes` of `peer`'s window at source_offset to the own at offset, by the whole grid.
CCO_KERNEL void lsa_get(Window window, uint32_t peer, uint64_t offset, uint64_t source_offset,
                        uint64_t bytes) {
  get(GridCoop{}, peer, at(window, source_offset), at(window, offset), bytes);
}

/// `iterations` times LsaBarrier::sync(); block b uses barrier index + b.
CCO_KERNEL void barrier(DeviceComm comm, uint32_t index, uint64_t iterations, uint64_t deadline_ns,
                        uint64_t* result) {
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  LsaBarrier<BlockCoop> session(BlockCoop{}, comm, index + block_index());
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 0; i < iterations && outcome.status == WaitStatus::kArrived; ++i) {
    outcome = session.sync(deadline);
  }
  store_result(result + block_index(), outcome);
}

/// The same as a loop of store-release and load-acquire, each poll an acquire: how NCCL's LSA
/// barrier (nccl_device/impl/lsa_barrier__funcs.h) is built.
CCO_KERNEL void barrier_release_acquire(DeviceComm comm, uint32_t index, uint64_t iterations,
                                        uint64_t deadline_ns, uint64_t* result) {
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  store_result(result + block_index(),
               meet_often<true>(comm, index + block_index(), iterations, deadline));
}

/// The lower bound: the same flags without any order. No barrier, for it publishes nothing.
CCO_KERNEL void flags_relaxed(DeviceComm comm, uint32_t index, uint64_t iterations,
                              uint64_t deadline_ns, uint64_t* result) {
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  store_result(result + block_index(),
               meet_often<false>(comm, index + block_index(), iterations, deadline));
}

/// `iterations` round trips with `peer`: signal_add(), and wait_at_least() for its answer. `base`
/// is the number of round trips that this signal has made before, on both sides. The lower rank
/// serves.
CCO_KERNEL void ping_pong(DeviceComm comm, uint32_t peer, uint32_t signal, uint64_t base,
                          uint64_t iterations, uint64_t deadline_ns, uint64_t* result) {
  const BlockCoop block;
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  const bool serves = comm.lsa_rank < peer;
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 1; i <= iterations && outcome.status == WaitStatus::kArrived; ++i) {
    if (serves) signal_add(block, comm, peer, signal, 1);
    outcome = wait_at_least(block, comm, signal, base + i, deadline);
    if (!serves) signal_add(block, comm, peer, signal, 1);
  }
  store_result(result, outcome);
}

/// One LsaBarrier::sync() on barrier 0; `begun` says that it has begun.
CCO_KERNEL void wait_noted(DeviceComm comm, uint64_t deadline_ns, uint64_t* begun,
                           uint64_t* result) {
  const BlockCoop block;
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  LsaBarrier<BlockCoop> session(block, comm, 0);
  session.arrive();
  if (block.is_leader()) store_relaxed_system(begun, uint64_t{1});
  store_result(result, session.wait(deadline));
}

CCO_KERNEL_TABLE(bench, copy_bare, lsa_put, lsa_get, barrier, barrier_release_acquire,
                 flags_relaxed, ping_pong, wait_noted);

}  // namespace cco::device
