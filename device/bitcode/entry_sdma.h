// Entry points of table_sdma.py.
#pragma once

#include "device/bitcode/entry.h"

namespace cco::device::entry {

/// `aggregate` is known where a kernel is compiled, and then one of the two is left.
template <CCO_COOP C, uint32_t options>
CCO_DEVICE uint64_t sdma_put_for(uint64_t dev_comm, int32_t peer, uint64_t dst_win,
                                 uint64_t dst_off, uint64_t src_win, uint64_t src_off,
                                 uint64_t nbytes, int32_t qid, int32_t aggregate,
                                 uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  const Sdma sdma(comm);
  const Deadline deadline = Deadline::after(comm, timeout_ns);
  const Place to = place_at(dst_win, dst_off);
  const Place from = place_at(src_win, src_off);
  const auto target = static_cast<uint32_t>(peer);
  const auto queue = static_cast<uint32_t>(qid);
  if (aggregate != 0) {
    return sdma.put<options | kSdmaAggregate>(C{}, target, to, from, nbytes, queue, deadline)
        .encode();
  }
  return sdma.put<options>(C{}, target, to, from, nbytes, queue, deadline).encode();
}
template <CCO_COOP C, uint32_t options>
CCO_DEVICE uint64_t sdma_get_for(uint64_t dev_comm, int32_t peer, uint64_t dst_win,
                                 uint64_t dst_off, uint64_t src_win, uint64_t src_off,
                                 uint64_t nbytes, int32_t qid, int32_t aggregate,
                                 uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  const Sdma sdma(comm);
  const Deadline deadline = Deadline::after(comm, timeout_ns);
  const Place to = place_at(dst_win, dst_off);
  const Place from = place_at(src_win, src_off);
  const auto source = static_cast<uint32_t>(peer);
  const auto queue = static_cast<uint32_t>(qid);
  if (aggregate != 0) {
    return sdma.get<options | kSdmaAggregate>(C{}, source, from, to, nbytes, queue, deadline)
        .encode();
  }
  return sdma.get<options>(C{}, source, from, to, nbytes, queue, deadline).encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t sdma_signal(uint64_t dev_comm, int32_t peer, int32_t qid, uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  return Sdma(comm)
      .signal(C{}, static_cast<uint32_t>(peer), static_cast<uint32_t>(qid),
              Deadline::after(comm, timeout_ns))
      .encode();
}

/// As MORI: a warp or block on all queues.
template <CCO_COOP C>
CCO_DEVICE uint64_t sdma_commit_for(uint64_t dev_comm, int32_t peer, int32_t qid,
                                    uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  const Sdma sdma(comm);
  const Deadline deadline = Deadline::after(comm, timeout_ns);
  const auto to = static_cast<uint32_t>(peer);
  const bool alone = std::is_same<C, ThreadCoop>::value;
  const uint32_t first = alone ? static_cast<uint32_t>(qid) : 0;
  const uint32_t end = alone ? first + 1 : sdma.queue_count();
  if (first == end) return refused();  // No SDMA.
  for (uint32_t queue = first; queue != end; ++queue) {
    const WaitResult result = sdma.commit(C{}, to, queue, deadline);
    if (result.status != WaitStatus::kArrived) return result.encode();
  }
  return arrived();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t sdma_quiet_for(uint64_t dev_comm, int32_t peer, uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  return Sdma(comm)
      .quiet(C{}, static_cast<uint32_t>(peer), Deadline::after(comm, timeout_ns))
      .encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t sdma_quiet_queue_for(uint64_t dev_comm, int32_t peer, int32_t qid,
                                         uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  return Sdma(comm)
      .quiet_queue(C{}, static_cast<uint32_t>(peer), static_cast<uint32_t>(qid),
                   Deadline::after(comm, timeout_ns))
      .encode();
}
CCO_DEVICE uint64_t sdma_read_signal(uint64_t dev_comm, int32_t sender, int32_t qid) {
  return Sdma(comm_at(dev_comm))
      .read_signal(static_cast<uint32_t>(sender), static_cast<uint32_t>(qid));
}
template <CCO_COOP C>
CCO_DEVICE uint64_t sdma_wait_signal(uint64_t dev_comm, int32_t sender, int32_t qid, uint64_t least,
                                     uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  return Sdma(comm)
      .wait_signal(C{}, static_cast<uint32_t>(sender), static_cast<uint32_t>(qid), least,
                   Deadline::after(comm, timeout_ns))
      .encode();
}
CCO_DEVICE int32_t sdma_queue_count(uint64_t dev_comm) {
  return static_cast<int32_t>(Sdma(comm_at(dev_comm)).queue_count());
}

// MORI's names: the same, until the group ends.

template <CCO_COOP C, uint32_t options>
CCO_DEVICE void sdma_put(uint64_t dev_comm, int32_t peer, uint64_t dst_win, uint64_t dst_off,
                         uint64_t src_win, uint64_t src_off, uint64_t nbytes, int32_t qid,
                         int32_t flags) {
  sdma_put_for<C, options>(dev_comm, peer, dst_win, dst_off, src_win, src_off, nbytes, qid,
                           flags & 1, kNever);
}
template <CCO_COOP C, uint32_t options>
CCO_DEVICE void sdma_get(uint64_t dev_comm, int32_t peer, uint64_t dst_win, uint64_t dst_off,
                         uint64_t src_win, uint64_t src_off, uint64_t nbytes, int32_t qid,
                         int32_t flags) {
  sdma_get_for<C, options>(dev_comm, peer, dst_win, dst_off, src_win, src_off, nbytes, qid,
                           flags & 1, kNever);
}
template <CCO_COOP C>
CCO_DEVICE void sdma_quiet(uint64_t dev_comm, int32_t peer) {
  sdma_quiet_for<C>(dev_comm, peer, kNever);
}
CCO_DEVICE void sdma_quiet_queue(uint64_t dev_comm, int32_t peer, int32_t qid) {
  sdma_quiet_queue_for<ThreadCoop>(dev_comm, peer, qid, kNever);
}
template <CCO_COOP C>
CCO_DEVICE void sdma_commit(uint64_t dev_comm, int32_t peer, int32_t qid) {
  sdma_commit_for<C>(dev_comm, peer, qid, kNever);
}

}  // namespace cco::device::entry
