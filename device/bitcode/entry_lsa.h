// Entry points of table_lsa.py.
#pragma once

#include "device/bitcode/entry.h"

namespace cco::device::entry {

// DevComm.

CCO_DEVICE int32_t devcomm_rank(uint64_t dev_comm) {
  return static_cast<int32_t>(comm_at(dev_comm).rank);
}
CCO_DEVICE int32_t devcomm_world_size(uint64_t dev_comm) {
  return static_cast<int32_t>(comm_at(dev_comm).world_size);
}
CCO_DEVICE int32_t devcomm_lsa_rank(uint64_t dev_comm) {
  return static_cast<int32_t>(comm_at(dev_comm).lsa_rank);
}
CCO_DEVICE int32_t devcomm_lsa_size(uint64_t dev_comm) {
  return static_cast<int32_t>(comm_at(dev_comm).lsa_size);
}
CCO_DEVICE int32_t devcomm_lsa_first(uint64_t dev_comm) {
  return static_cast<int32_t>(comm_at(dev_comm).lsa_first);
}
CCO_DEVICE int32_t devcomm_transports(uint64_t dev_comm, int32_t peer) {
  const DeviceComm& comm = comm_at(dev_comm);
  const auto lsa_peer = static_cast<uint32_t>(peer);
  if (lsa_peer >= comm.lsa_size) return 0;
  if (comm.peer_transports == 0) return static_cast<int32_t>(comm.transports);
  return static_cast<int32_t>(global_pointer<const uint32_t>(comm.peer_transports)[lsa_peer]);
}
CCO_DEVICE uint64_t devcomm_abort_word(uint64_t dev_comm) {
  return load_relaxed_system(global_pointer<const uint64_t>(comm_at(dev_comm).abort_word));
}

// Teams, as MORI counts them: CROSS_NODE and RAIL are the others, of all nodes but this one.

template <Team team>
CCO_DEVICE int32_t team_size(uint64_t dev_comm) {
  const DeviceComm& comm = comm_at(dev_comm);
  uint32_t size = comm.world_size;
  if (team == Team::kLsa) size = comm.lsa_size;
  if (team == Team::kCrossNode) size -= comm.lsa_size;
  if (team == Team::kRail) size = size / comm.lsa_size - 1;
  return static_cast<int32_t>(size);
}
template <Team team>
CCO_DEVICE int32_t team_rank(uint64_t dev_comm) {
  const DeviceComm& comm = comm_at(dev_comm);
  if (team == Team::kWorld) return static_cast<int32_t>(comm.rank);
  return team == Team::kLsa ? static_cast<int32_t>(comm.lsa_rank) : -1;
}
template <Team team>
CCO_DEVICE int32_t team_to_world(uint64_t dev_comm, int32_t rank) {
  const DeviceComm& comm = comm_at(dev_comm);
  const auto first = static_cast<int32_t>(comm.lsa_first);
  const auto size = static_cast<int32_t>(comm.lsa_size);
  if (team == Team::kLsa) return first + rank;
  if (team == Team::kCrossNode) return rank < first ? rank : rank + size;
  if (team == Team::kWorld) return rank;
  const int32_t node = rank < first / size ? rank : rank + 1;
  return node * size + static_cast<int32_t>(comm.lsa_rank);
}

CCO_DEVICE int32_t system_fence() {
  const uint64_t word = 0;  // The host acquires by a load of it.
  publish_system();
  acquire_system(&word);
  return 0;
}

// Windows.

CCO_DEVICE uint64_t lsa_ptr(uint64_t win, int32_t peer, uint64_t offset) {
  return reinterpret_cast<uint64_t>(peer_ptr(window_at(win), static_cast<uint32_t>(peer), offset));
}
CCO_DEVICE uint64_t lsa_local_ptr(uint64_t win, uint64_t offset) {
  return reinterpret_cast<uint64_t>(local_ptr(window_at(win), offset));
}
CCO_DEVICE uint64_t window_size(uint64_t win) { return window_at(win).size_bytes; }

// LSA. The headers check ranges in debug builds alone; here a call from another language is
// refused.

CCO_DEVICE bool has(const Place& place, uint32_t lsa_rank, uint64_t bytes) {
  const Window& window = place.window;
  return lsa_rank < window.lsa_size && place.offset <= window.size_bytes &&
         bytes <= window.size_bytes - place.offset;
}
CCO_DEVICE bool has(const Place& place, uint64_t bytes) {
  return has(place, place.window.lsa_rank, bytes);
}
CCO_DEVICE uint64_t refused_peer(uint64_t dev_comm, uint32_t lsa_peer) {
  const DeviceComm& comm = comm_at(dev_comm);
  return refused(lsa_peer < comm.lsa_size ? world_rank(comm, lsa_peer) : kNoRank);
}

template <CCO_COPY_COOP C>
CCO_DEVICE uint64_t lsa_put_from(uint64_t dev_comm, int32_t peer, uint64_t dst_win,
                                 uint64_t dst_off, uint64_t src_ptr, uint64_t nbytes) {
  const auto to = static_cast<uint32_t>(peer);
  if (!has(place_at(dst_win, dst_off), to, nbytes)) return refused_peer(dev_comm, to);
  put(C{}, to, place_at(dst_win, dst_off), global_pointer<const void>(src_ptr), nbytes);
  return arrived();
}
template <CCO_COPY_COOP C>
CCO_DEVICE uint64_t lsa_put(uint64_t dev_comm, int32_t peer, uint64_t dst_win, uint64_t dst_off,
                            uint64_t src_win, uint64_t src_off, uint64_t nbytes) {
  if (!has(place_at(src_win, src_off), nbytes)) {
    return refused_peer(dev_comm, static_cast<uint32_t>(peer));
  }
  return lsa_put_from<C>(dev_comm, peer, dst_win, dst_off, lsa_local_ptr(src_win, src_off), nbytes);
}
template <CCO_COPY_COOP C>
CCO_DEVICE uint64_t lsa_get_to(uint64_t dev_comm, int32_t peer, uint64_t dst_ptr, uint64_t src_win,
                               uint64_t src_off, uint64_t nbytes) {
  const auto from = static_cast<uint32_t>(peer);
  if (!has(place_at(src_win, src_off), from, nbytes)) return refused_peer(dev_comm, from);
  get(C{}, from, place_at(src_win, src_off), global_pointer<void>(dst_ptr), nbytes);
  return arrived();
}
template <CCO_COPY_COOP C>
CCO_DEVICE uint64_t lsa_get(uint64_t dev_comm, int32_t peer, uint64_t dst_win, uint64_t dst_off,
                            uint64_t src_win, uint64_t src_off, uint64_t nbytes) {
  if (!has(place_at(dst_win, dst_off), nbytes)) {
    return refused_peer(dev_comm, static_cast<uint32_t>(peer));
  }
  return lsa_get_to<C>(dev_comm, peer, lsa_local_ptr(dst_win, dst_off), src_win, src_off, nbytes);
}

template <typename T>
CCO_DEVICE uint64_t lsa_put_value(uint64_t dev_comm, int32_t peer, uint64_t dst_win,
                                  uint64_t dst_off, uint64_t value) {
  const auto to = static_cast<uint32_t>(peer);
  if (!has(place_at(dst_win, dst_off), to, sizeof(T))) return refused_peer(dev_comm, to);
  put_value<T>(to, place_at(dst_win, dst_off), static_cast<T>(value));
  return arrived();
}
template <typename T>
CCO_DEVICE uint64_t lsa_get_value(uint64_t, int32_t peer, uint64_t src_win, uint64_t src_off) {
  const auto from = static_cast<uint32_t>(peer);
  if (!has(place_at(src_win, src_off), from, sizeof(T))) return 0;
  return *peer_ptr<const volatile T>(window_at(src_win), from, src_off, sizeof(T));
}

// Signals and the barrier.

CCO_DEVICE bool has_signal(const DeviceComm& comm, uint32_t lsa_rank, int32_t signal_id) {
  return lsa_rank < comm.lsa_size && static_cast<uint32_t>(signal_id) < comm.signal_count;
}

template <CCO_COOP C>
CCO_DEVICE uint64_t lsa_signal_add(uint64_t dev_comm, int32_t peer, int32_t signal_id,
                                   uint64_t delta) {
  const DeviceComm& comm = comm_at(dev_comm);
  const auto to = static_cast<uint32_t>(peer);
  if (!has_signal(comm, to, signal_id)) return refused_peer(dev_comm, to);
  signal_add(C{}, comm, to, static_cast<uint32_t>(signal_id), delta);
  return arrived();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t lsa_signal_set(uint64_t dev_comm, int32_t peer, int32_t signal_id,
                                   uint64_t value) {
  const DeviceComm& comm = comm_at(dev_comm);
  const auto to = static_cast<uint32_t>(peer);
  if (!has_signal(comm, to, signal_id)) return refused_peer(dev_comm, to);
  signal_set(C{}, comm, to, static_cast<uint32_t>(signal_id), value);
  return arrived();
}
CCO_DEVICE uint64_t lsa_signal_ptr(uint64_t dev_comm, int32_t peer, int32_t signal_id) {
  const DeviceComm& comm = comm_at(dev_comm);
  const auto of = static_cast<uint32_t>(peer);
  if (!has_signal(comm, of, signal_id)) return 0;
  return reinterpret_cast<uint64_t>(signal_ptr(comm, of, static_cast<uint32_t>(signal_id)));
}
CCO_DEVICE uint64_t lsa_read_signal(uint64_t dev_comm, int32_t signal_id) {
  const DeviceComm& comm = comm_at(dev_comm);
  if (!has_signal(comm, comm.lsa_rank, signal_id)) return 0;
  return read_signal(comm, static_cast<uint32_t>(signal_id));
}
template <CCO_COOP C>
CCO_DEVICE uint64_t lsa_wait_signal(uint64_t dev_comm, int32_t signal_id, uint64_t least,
                                    uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  if (!has_signal(comm, comm.lsa_rank, signal_id)) return refused();
  return wait_at_least(C{}, comm, static_cast<uint32_t>(signal_id), least,
                       Deadline::after(comm, timeout_ns))
      .encode();
}

CCO_DEVICE bool has_barrier(const DeviceComm& comm, int32_t index) {
  return static_cast<uint32_t>(index) < comm.barrier_count;
}

template <CCO_COOP C>
CCO_DEVICE uint64_t lsa_barrier_arrive(uint64_t dev_comm, int32_t index) {
  const DeviceComm& comm = comm_at(dev_comm);
  if (!has_barrier(comm, index)) return refused();
  LsaBarrier<C>(C{}, comm, static_cast<uint32_t>(index)).arrive();
  return arrived();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t lsa_barrier_wait(uint64_t dev_comm, int32_t index, uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  if (!has_barrier(comm, index)) return refused();
  LsaBarrier<C> barrier(C{}, comm, static_cast<uint32_t>(index));
  return barrier.wait(Deadline::after(comm, timeout_ns)).encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t lsa_barrier(uint64_t dev_comm, int32_t index, uint64_t timeout_ns) {
  const DeviceComm& comm = comm_at(dev_comm);
  if (!has_barrier(comm, index)) return refused();
  LsaBarrier<C> barrier(C{}, comm, static_cast<uint32_t>(index));
  return barrier.sync(Deadline::after(comm, timeout_ns)).encode();
}

// TDM. The shared memory is one for all calls of a kernel: a block makes one at a time. On the host
// a thread is a block.
#if CCO_GPU
#define CCO_ENTRY_SHARED static __attribute__((shared))
#else
#define CCO_ENTRY_SHARED static thread_local
#endif

template <CCO_COOP C>
struct TdmMemory {
  static constexpr uint32_t kStages = 4;
  using Mover = impl::TdmMover<kStages>;
  using Copier = Tdm<C, kStages>;
  static constexpr uint32_t kBytes = Copier::shared_bytes(Mover::kPipelined ? 8192 : 128);

  static CCO_DEVICE void* get() {
    CCO_ENTRY_SHARED __attribute__((aligned(128))) unsigned char memory[kBytes];
    return memory;
  }
};

template <CCO_COOP C>
CCO_DEVICE uint64_t tdm_put(uint64_t dev_comm, int32_t peer, uint64_t dst_win, uint64_t dst_off,
                            uint64_t src_win, uint64_t src_off, uint64_t nbytes, int32_t share,
                            int32_t shares, uint64_t timeout_ns) {
  const auto to = static_cast<uint32_t>(peer);
  const TdmShare part{static_cast<uint32_t>(share), static_cast<uint32_t>(shares)};
  if (part.index >= part.count || !has(place_at(dst_win, dst_off), to, nbytes) ||
      !has(place_at(src_win, src_off), nbytes)) {
    return refused_peer(dev_comm, to);
  }
  typename TdmMemory<C>::Copier tdm(C{}, TdmMemory<C>::get(), TdmMemory<C>::kBytes);
  return tdm
      .put(to, place_at(dst_win, dst_off), place_at(src_win, src_off), nbytes,
           Deadline::after(comm_at(dev_comm), timeout_ns), part)
      .encode();
}
template <CCO_COOP C>
CCO_DEVICE uint64_t tdm_get(uint64_t dev_comm, int32_t peer, uint64_t dst_win, uint64_t dst_off,
                            uint64_t src_win, uint64_t src_off, uint64_t nbytes, int32_t share,
                            int32_t shares, uint64_t timeout_ns) {
  const auto from = static_cast<uint32_t>(peer);
  const TdmShare part{static_cast<uint32_t>(share), static_cast<uint32_t>(shares)};
  if (part.index >= part.count || !has(place_at(src_win, src_off), from, nbytes) ||
      !has(place_at(dst_win, dst_off), nbytes)) {
    return refused_peer(dev_comm, from);
  }
  typename TdmMemory<C>::Copier tdm(C{}, TdmMemory<C>::get(), TdmMemory<C>::kBytes);
  return tdm
      .get(from, place_at(src_win, src_off), place_at(dst_win, dst_off), nbytes,
           Deadline::after(comm_at(dev_comm), timeout_ns), part)
      .encode();
}

}  // namespace cco::device::entry
