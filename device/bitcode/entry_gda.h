// Entry points of table_gda.py.
#pragma once

#include "device/bitcode/entry.h"

namespace cco::device::entry {

/// As MORI: a context's number counts modulo how many there are.
CCO_DEVICE uint32_t context_of(const DeviceComm& comm, int32_t ctx) {
  const auto* const device = global_pointer<const cco_gda_device>(comm.gda);
  return comm.gda == 0 ? 0 : static_cast<uint32_t>(ctx) % device->context_count;
}
CCO_DEVICE Gda gda_at(uint64_t dev_comm, int32_t ctx) {
  const DeviceComm& comm = comm_at(dev_comm);
  return Gda(comm, context_of(comm, ctx));
}
CCO_DEVICE RemoteAction action_of(int32_t signal_op, int32_t signal_id, uint64_t signal_val) {
  return RemoteAction{signal_op != NONE, static_cast<uint32_t>(signal_id),
                      signal_op == INC ? 1 : signal_val};
}
template <bool same_peer>
CCO_DEVICE uint32_t flags_of(int32_t aggregate) {
  return (aggregate != 0 ? kGdaAggregate : 0u) | (same_peer ? kGdaSamePeer : 0u);
}
CCO_DEVICE bool has_signal(const Gda& gda, int32_t signal_id) {
  return gda.device() != nullptr && static_cast<uint32_t>(signal_id) < gda.device()->signal_count;
}
CCO_DEVICE bool has_counter(const Gda& gda, int32_t counter_id) {
  return gda.device() != nullptr && static_cast<uint32_t>(counter_id) < gda.device()->counter_count;
}

template <CCO_COOP C, bool same_peer>
CCO_DEVICE uint64_t gda_put_for(uint64_t dev_comm, int32_t ctx, int32_t peer, uint64_t dst_win,
                                uint64_t dst_off, uint64_t src_win, uint64_t src_off,
                                uint64_t nbytes, int32_t signal_op, int32_t signal_id,
                                uint64_t signal_val, int32_t aggregate, uint64_t timeout_ns) {
  const Deadline deadline = Deadline::after(comm_at(dev_comm), timeout_ns);
  return gda_at(dev_comm, ctx)
      .put(C{}, static_cast<uint32_t>(peer), place_at(dst_win, dst_off), place_at(src_win, src_off),
           nbytes,
           {deadline, action_of(signal_op, signal_id, signal_val), flags_of<same_peer>(aggregate)})
      .encode();
}
template <CCO_COOP C, bool same_peer, typename T>
CCO_DEVICE uint64_t gda_put_value_for(uint64_t dev_comm, int32_t ctx, int32_t peer,
                                      uint64_t dst_win, uint64_t dst_off, uint64_t value,
                                      int32_t signal_op, int32_t signal_id, uint64_t signal_val,
                                      int32_t aggregate, uint64_t timeout_ns) {
  const Deadline deadline = Deadline::after(comm_at(dev_comm), timeout_ns);
  return gda_at(dev_comm, ctx)
      .put_value<T>(
          C{}, static_cast<uint32_t>(peer), place_at(dst_win, dst_off), static_cast<T>(value),
          {deadline, action_of(signal_op, signal_id, signal_val), flags_of<same_peer>(aggregate)})
      .encode();
}
template <CCO_COOP C, bool same_peer>
CCO_DEVICE uint64_t gda_get_for(uint64_t dev_comm, int32_t ctx, int32_t peer, uint64_t remote_win,
                                uint64_t remote_off, uint64_t local_win, uint64_t local_off,
                                uint64_t nbytes, int32_t aggregate, uint64_t timeout_ns) {
  const Deadline deadline = Deadline::after(comm_at(dev_comm), timeout_ns);
  return gda_at(dev_comm, ctx)
      .get(C{}, static_cast<uint32_t>(peer), place_at(remote_win, remote_off),
           place_at(local_win, local_off), nbytes,
           {deadline, NoSignal{}, flags_of<same_peer>(aggregate)})
      .encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t gda_signal_for(uint64_t dev_comm, int32_t ctx, int32_t peer, int32_t signal_op,
                                   int32_t signal_id, uint64_t signal_val, uint64_t timeout_ns) {
  if (signal_op == NONE) return refused(static_cast<uint32_t>(peer));
  return gda_at(dev_comm, ctx)
      .signal(C{}, static_cast<uint32_t>(peer), action_of(signal_op, signal_id, signal_val),
              Deadline::after(comm_at(dev_comm), timeout_ns))
      .encode();
}

// Signals.

CCO_DEVICE uint64_t gda_read_signal(uint64_t dev_comm, int32_t ctx, int32_t signal_id,
                                    int32_t bits) {
  const Gda gda = gda_at(dev_comm, ctx);
  if (!has_signal(gda, signal_id)) return 0;
  return gda.read_signal(static_cast<uint32_t>(signal_id), static_cast<uint32_t>(bits));
}
template <CCO_COOP C>
CCO_DEVICE uint64_t gda_wait_signal_for(uint64_t dev_comm, int32_t ctx, int32_t signal_id,
                                        uint64_t least, int32_t bits, uint64_t timeout_ns) {
  return gda_at(dev_comm, ctx)
      .wait_signal(C{}, static_cast<uint32_t>(signal_id), least,
                   Deadline::after(comm_at(dev_comm), timeout_ns), static_cast<uint32_t>(bits))
      .encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t gda_wait_signal_at_least(uint64_t dev_comm, int32_t ctx, int32_t signal_id,
                                             uint64_t least, uint64_t timeout_ns) {
  return gda_at(dev_comm, ctx)
      .wait_signal_at_least(C{}, static_cast<uint32_t>(signal_id), least,
                            Deadline::after(comm_at(dev_comm), timeout_ns))
      .encode();
}
CCO_DEVICE uint64_t gda_consume_signal(uint64_t dev_comm, int32_t ctx, int32_t signal_id) {
  const Gda gda = gda_at(dev_comm, ctx);
  if (!has_signal(gda, signal_id)) return refused();
  gda.reset_signal(static_cast<uint32_t>(signal_id));
  return arrived();
}

// Completions.

template <CCO_COOP C>
CCO_DEVICE uint64_t gda_flush_for(uint64_t dev_comm, int32_t ctx, uint64_t timeout_ns) {
  return gda_at(dev_comm, ctx).flush(C{}, Deadline::after(comm_at(dev_comm), timeout_ns)).encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t gda_flush_peer_for(uint64_t dev_comm, int32_t ctx, int32_t peer,
                                       uint64_t timeout_ns) {
  return gda_at(dev_comm, ctx)
      .flush(C{}, static_cast<uint32_t>(peer), Deadline::after(comm_at(dev_comm), timeout_ns))
      .encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t gda_counter(uint64_t dev_comm, int32_t ctx, int32_t counter_id,
                                uint64_t timeout_ns) {
  return gda_at(dev_comm, ctx)
      .counter(C{}, static_cast<uint32_t>(counter_id),
               Deadline::after(comm_at(dev_comm), timeout_ns))
      .encode();
}
CCO_DEVICE uint64_t gda_read_counter(uint64_t dev_comm, int32_t ctx, int32_t counter_id,
                                     int32_t bits) {
  const Gda gda = gda_at(dev_comm, ctx);
  if (!has_counter(gda, counter_id)) return 0;
  return gda.read_counter(static_cast<uint32_t>(counter_id), static_cast<uint32_t>(bits));
}
template <CCO_COOP C>
CCO_DEVICE uint64_t gda_wait_counter(uint64_t dev_comm, int32_t ctx, int32_t counter_id,
                                     uint64_t least, int32_t bits, uint64_t timeout_ns) {
  return gda_at(dev_comm, ctx)
      .wait_counter(C{}, static_cast<uint32_t>(counter_id), least,
                    Deadline::after(comm_at(dev_comm), timeout_ns), static_cast<uint32_t>(bits))
      .encode();
}
CCO_DEVICE uint64_t gda_reset_counter(uint64_t dev_comm, int32_t ctx, int32_t counter_id) {
  const Gda gda = gda_at(dev_comm, ctx);
  if (!has_counter(gda, counter_id)) return refused();
  gda.reset_counter(static_cast<uint32_t>(counter_id));
  return arrived();
}
CCO_DEVICE int32_t gda_connected(uint64_t dev_comm, int32_t ctx, int32_t peer) {
  return gda_at(dev_comm, ctx).connected(static_cast<uint32_t>(peer)) ? 1 : 0;
}

// Barriers.

template <CCO_COOP C, GdaTeam team>
CCO_DEVICE uint64_t gda_barrier(uint64_t dev_comm, int32_t ctx, int32_t index,
                                uint64_t timeout_ns) {
  const Gda gda = gda_at(dev_comm, ctx);
  GdaBarrier<C> barrier(C{}, gda, static_cast<uint32_t>(index), team);
  return barrier.sync(Deadline::after(comm_at(dev_comm), timeout_ns)).encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t world_barrier(uint64_t dev_comm, int32_t ctx, int32_t index,
                                  uint64_t timeout_ns) {
  const Gda gda = gda_at(dev_comm, ctx);
  WorldBarrier<C> barrier(C{}, gda, static_cast<uint32_t>(index));
  return barrier.sync(Deadline::after(comm_at(dev_comm), timeout_ns)).encode();
}

// MORI's names: the same, until the group ends.

template <CCO_COOP C, bool same_peer, int32_t signal_op>
CCO_DEVICE void gda_put(uint64_t dev_comm, int32_t ctx, int32_t peer, uint64_t dst_win,
                        uint64_t dst_off, uint64_t src_win, uint64_t src_off, uint64_t nbytes,
                        int32_t signal_id, uint64_t signal_val) {
  gda_put_for<C, same_peer>(dev_comm, ctx, peer, dst_win, dst_off, src_win, src_off, nbytes,
                            signal_op, signal_id, signal_val, 0, kNever);
}
template <CCO_COOP C, bool same_peer, int32_t signal_op>
CCO_DEVICE void gda_put_value(uint64_t dev_comm, int32_t ctx, int32_t peer, uint64_t dst_win,
                              uint64_t dst_off, uint64_t value, int32_t signal_id,
                              uint64_t signal_val) {
  gda_put_value_for<C, same_peer, uint64_t>(dev_comm, ctx, peer, dst_win, dst_off, value, signal_op,
                                            signal_id, signal_val, 0, kNever);
}
template <CCO_COOP C, bool same_peer>
CCO_DEVICE void gda_get(uint64_t dev_comm, int32_t ctx, int32_t peer, uint64_t remote_win,
                        uint64_t remote_off, uint64_t local_win, uint64_t local_off,
                        uint64_t nbytes) {
  gda_get_for<C, same_peer>(dev_comm, ctx, peer, remote_win, remote_off, local_win, local_off,
                            nbytes, 0, kNever);
}
template <CCO_COOP C, int32_t signal_op>
CCO_DEVICE void gda_signal(uint64_t dev_comm, int32_t ctx, int32_t peer, int32_t signal_id,
                           uint64_t signal_val) {
  gda_signal_for<C>(dev_comm, ctx, peer, signal_op, signal_id, signal_val, kNever);
}
template <CCO_COOP C>
CCO_DEVICE void gda_wait_signal(uint64_t dev_comm, int32_t ctx, int32_t signal_id, uint64_t least,
                                int32_t bits) {
  gda_wait_signal_for<C>(dev_comm, ctx, signal_id, least, bits, kNever);
}
template <CCO_COOP C>
CCO_DEVICE void gda_flush(uint64_t dev_comm, int32_t ctx) {
  gda_flush_for<C>(dev_comm, ctx, kNever);
}
template <CCO_COOP C>
CCO_DEVICE void gda_flush_peer(uint64_t dev_comm, int32_t ctx, int32_t peer) {
  gda_flush_peer_for<C>(dev_comm, ctx, peer, kNever);
}
CCO_DEVICE void gda_reset_signal(uint64_t dev_comm, int32_t ctx, int32_t signal_id) {
  gda_consume_signal(dev_comm, ctx, signal_id);
}

}  // namespace cco::device::entry
