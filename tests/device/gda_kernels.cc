// Every call of gda.h and gda_barrier.h by every kind of group, for every compiler.
#include "cco/device/gda_barrier.h"
#include "cco/device/kernel.h"

namespace cco::testing {

using device::at;
using device::Deadline;
using device::DeviceComm;
using device::Gda;
using device::GdaPost;
using device::WaitResult;
using device::Window;

constexpr uint64_t kPatienceNs = 1'000'000'000;

template <CCO_COOP C>
CCO_DEVICE void move(C coop, const DeviceComm& comm, const Window& window, uint32_t peer,
                     uint64_t bytes, uint64_t* results) {
  const Gda gda(comm, 0);
  const Deadline deadline = Deadline::after(comm, kPatienceNs);
  const GdaPost quiet{deadline, device::NoSignal{}, device::kGdaAggregate};
  const GdaPost raising{deadline, device::SignalAdd{1, 2}};
  device::GdaRequest request{};
  const WaitResult seen[] = {
      gda.put(coop, peer, at(window, 0), at(window, bytes), bytes, quiet),
      gda.put(coop, peer, at(window, 0), at(window, bytes), bytes, raising),
      gda.get(coop, peer, at(window, 0), at(window, bytes), bytes, GdaPost{deadline}),
      gda.template put_value<uint8_t>(coop, peer, at(window, 1), 1, quiet),
      gda.template put_value<uint64_t>(coop, peer, at(window, 8), 2, raising),
      gda.signal(coop, peer, device::SignalInc{0}, deadline),
      gda.flush_async(coop, peer, &request, deadline),
      gda.wait(coop, request, deadline),
      gda.flush(coop, peer, deadline),
      gda.flush(coop, deadline),
      gda.counter(coop, 0, deadline),
      gda.counter(coop, 0, peer, deadline),
      gda.wait_counter(coop, 0, 2, deadline),
      gda.wait_signal(coop, 0, 1, deadline),
      gda.wait_signal_at_least(coop, 1, 4, deadline)};
  if (!coop.is_leader()) return;
  for (const WaitResult& result : seen) *results++ = result.encode();
  *results++ = gda.read_signal(1);
  *results++ = gda.read_counter(0);
  gda.reset_signal(1);
  gda.reset_counter(0);
}

CCO_KERNEL void gda_by_threads(DeviceComm comm, Window window, uint32_t peer, uint64_t bytes,
                               uint64_t* results) {
  move(device::ThreadCoop{}, comm, window, peer, bytes, results);
}
CCO_KERNEL void gda_by_warps(DeviceComm comm, Window window, uint32_t peer, uint64_t bytes,
                             uint64_t* results) {
  move(device::WarpCoop{}, comm, window, peer, bytes, results);
}
CCO_KERNEL void gda_by_blocks(DeviceComm comm, Window window, uint32_t peer, uint64_t bytes,
                              uint64_t* results) {
  move(device::BlockCoop{}, comm, window, peer, bytes, results);
}

template <CCO_COOP C>
CCO_DEVICE void meet(C coop, const DeviceComm& comm, uint64_t* results) {
  const Gda gda(comm, 0);
  const Deadline deadline = Deadline::after(comm, kPatienceNs);
  device::GdaBarrier<C> rail(coop, gda, 0);
  device::GdaBarrier<C> all(coop, gda, 1, device::GdaTeam::kConnected);
  device::WorldBarrier<C> world(coop, gda, 0);
  const uint64_t seen[] = {rail.sync(deadline).encode(), all.sync(deadline).encode(),
                           world.sync(deadline).encode()};
  if (!coop.is_leader()) return;
  for (const uint64_t result : seen) *results++ = result;
}

CCO_KERNEL void gda_meet_by_blocks(DeviceComm comm, uint64_t* results) {
  meet(device::BlockCoop{}, comm, results);
}

CCO_KERNEL_TABLE(gda_kernels, gda_by_threads, gda_by_warps, gda_by_blocks, gda_meet_by_blocks);

}  // namespace cco::testing
