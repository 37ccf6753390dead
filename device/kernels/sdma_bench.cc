// What cco-bench times of SDMA, by one block. Result words as in bench.cc, one per kernel.
#include "cco/device.hpp"
#include "cco/device/sdma.h"
#include "device/kernels/store_result.h"

namespace cco::device {

using kernels::store_result;

/// `count` times, without waiting between: Sdma::put() of `bytes` of the own window at
/// source_offset to `peer`'s at offset; or, if `gets`, Sdma::get() of `peer`'s window at
/// source_offset to the own at offset. Ends when all of them have landed.
CCO_KERNEL void sdma_copy(DeviceComm comm, Window window, uint32_t peer, uint32_t queue,
                          uint32_t gets, uint64_t offset, uint64_t source_offset, uint64_t bytes,
                          uint64_t count, uint64_t deadline_ns, uint64_t* result) {
  const BlockCoop block;
  const Sdma sdma(comm);
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  const Place to = at(window, offset);
  const Place from = at(window, source_offset);
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 0; i < count && outcome.status == WaitStatus::kArrived; ++i) {
    outcome = gets != 0 ? sdma.get(block, peer, from, to, bytes, queue, deadline)
                        : sdma.put(block, peer, to, from, bytes, queue, deadline);
  }
  if (outcome.status == WaitStatus::kArrived) {
    outcome = sdma.quiet_queue(block, peer, queue, deadline);
  }
  store_result(result, outcome);
}

/// `iterations` round trips with `peer`: a put of `bytes` with the signal behind it, and the wait
/// for the answer, which is the same. `base` is the number of round trips that this queue has made
/// before, on both sides. The lower rank serves.
CCO_KERNEL void sdma_ping_pong(DeviceComm comm, Window window, uint32_t peer, uint32_t queue,
                               uint64_t offset, uint64_t source_offset, uint64_t bytes,
                               uint64_t base, uint64_t iterations, uint64_t deadline_ns,
                               uint64_t* result) {
  const BlockCoop block;
  const Sdma sdma(comm);
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  const bool serves = comm.lsa_rank < peer;
  const auto send = [&] {
    return sdma.put<kSdmaSignalRemote>(block, peer, at(window, offset), at(window, source_offset),
                                       bytes, queue, deadline);
  };
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 1; i <= iterations && outcome.status == WaitStatus::kArrived; ++i) {
    if (serves) outcome = send();
    if (outcome.status != WaitStatus::kArrived) break;
    outcome = sdma.wait_signal(block, peer, queue, base + i, deadline);
    if (!serves && outcome.status == WaitStatus::kArrived) outcome = send();
  }
  store_result(result, outcome);
}

/// The same round trips by loads and stores, and signal `signal`.
CCO_KERNEL void lsa_ping_pong(DeviceComm comm, Window window, uint32_t peer, uint32_t signal,
                              uint64_t offset, uint64_t source_offset, uint64_t bytes,
                              uint64_t base, uint64_t iterations, uint64_t deadline_ns,
                              uint64_t* result) {
  const BlockCoop block;
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  const bool serves = comm.lsa_rank < peer;
  const auto send = [&] {
    put(block, peer, at(window, offset), at(window, source_offset), bytes);
    signal_add(block, comm, peer, signal, 1);
  };
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 1; i <= iterations && outcome.status == WaitStatus::kArrived; ++i) {
    if (serves) send();
    outcome = wait_at_least(block, comm, signal, base + i, deadline);
    if (!serves) send();
  }
  store_result(result, outcome);
}

CCO_KERNEL_TABLE(sdma_bench, sdma_copy, sdma_ping_pong, lsa_ping_pong);

}  // namespace cco::device
