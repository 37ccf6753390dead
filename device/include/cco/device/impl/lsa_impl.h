// Bodies of lsa.h.
#pragma once

#include "cco/device/lsa.h"

namespace cco::device {

namespace impl {

CCO_DEVICE void check_range(const Window& window, uint32_t lsa_rank, uint64_t offset,
                            uint64_t bytes) {
  CCO_DEVICE_CHECK(window.abi_version == CCO_ABI_VERSION, "window of another ABI version",
                   window.abi_version, CCO_ABI_VERSION);
  CCO_DEVICE_CHECK(window.generation != 0, "window that was never registered, generation",
                   window.generation, 0);
  CCO_DEVICE_CHECK(lsa_rank < window.lsa_size, "LSA rank out of range", lsa_rank, window.lsa_size);
  CCO_DEVICE_CHECK(offset <= window.size_bytes, "offset outside the window", offset,
                   window.size_bytes);
  CCO_DEVICE_CHECK(bytes <= window.size_bytes - offset, "bytes from that offset leave the window",
                   bytes, window.size_bytes - offset);
}

/// Wrap-safe `value >= target`.
CCO_HOST_DEVICE bool reached(uint64_t value, uint64_t target) {
  return static_cast<int64_t>(value - target) >= 0;
}

}  // namespace impl

template <typename T>
CCO_DEVICE T* peer_ptr(const Window& window, uint32_t lsa_rank, uint64_t offset, uint64_t bytes) {
  impl::check_range(window, lsa_rank, offset, bytes);
  const bool by_table = window.stride_4g == 0 && window.lsa_size > 1;
  const uint64_t base = by_table
                            ? global_pointer<const uint64_t>(window.peer_bases)[lsa_rank]
                            : window.win_base + ((uint64_t{window.stride_4g} * lsa_rank) << 32);
  return global_pointer<T>(base + offset);
}

template <CCO_COPY_COOP C>
CCO_DEVICE void put(C coop, uint32_t peer, Place destination, const void* source, uint64_t bytes) {
  impl::copy_bytes(coop, peer_ptr(destination.window, peer, destination.offset, bytes), source,
                   bytes);
}

template <CCO_COPY_COOP C>
CCO_DEVICE void put(C coop, uint32_t peer, Place destination, Place source, uint64_t bytes) {
  put(coop, peer, destination, local_ptr(source.window, source.offset, bytes), bytes);
}

template <CCO_COPY_COOP C>
CCO_DEVICE void get(C coop, uint32_t peer, Place source, void* destination, uint64_t bytes) {
  impl::copy_bytes(coop, destination, peer_ptr(source.window, peer, source.offset, bytes), bytes);
}

template <CCO_COPY_COOP C>
CCO_DEVICE void get(C coop, uint32_t peer, Place source, Place destination, uint64_t bytes) {
  get(coop, peer, source, local_ptr(destination.window, destination.offset, bytes), bytes);
}

CCO_DEVICE uint64_t* signal_ptr(const DeviceComm& comm, uint32_t lsa_rank, uint32_t index) {
  CCO_DEVICE_CHECK(index < comm.signal_count, "signal index out of range", index,
                   comm.signal_count);
  return peer_ptr<uint64_t>(comm.control, lsa_rank, comm.signal_offset + 8 * uint64_t{index}, 8);
}

template <CCO_COOP C>
CCO_DEVICE void signal_add(C coop, const DeviceComm& comm, uint32_t peer, uint32_t index,
                           uint64_t delta) {
  uint64_t* const signal = signal_ptr(comm, peer, index);
  drain_stores();
  coop.sync();  // The leader's release covers what it has synchronised with.
  if (coop.is_leader()) add_release_system(signal, delta);
}

template <CCO_COOP C>
CCO_DEVICE void signal_set(C coop, const DeviceComm& comm, uint32_t peer, uint32_t index,
                           uint64_t value) {
  uint64_t* const signal = signal_ptr(comm, peer, index);
  drain_stores();
  coop.sync();
  if (coop.is_leader()) store_release_system(signal, value);
}

CCO_DEVICE uint64_t read_signal(const DeviceComm& comm, uint32_t index) {
  return load_acquire_system(signal_ptr(comm, comm.lsa_rank, index));
}

template <CCO_COOP C>
CCO_DEVICE WaitResult wait_at_least(C coop, const DeviceComm& comm, uint32_t index, uint64_t target,
                                    const Deadline& deadline) {
  const uint64_t* const signal = signal_ptr(comm, comm.lsa_rank, index);
  Poll poll(deadline);
  bool arrived = true;
  if (coop.is_leader()) {
    while (!(arrived = impl::reached(load_relaxed_system(signal), target)) && poll.again()) {
    }
    if (arrived) acquire_system(signal);
  }
  return agree(coop, arrived, poll.aborted(), kNoRank, deadline);
}

// The words of a barrier have one writer each, so plain stores suffice, and a rank never stores to
// itself. Each peer is served by one lane; a group smaller than the team serves several per lane.

template <CCO_COOP C>
CCO_DEVICE uint64_t* LsaBarrier<C>::word_of(uint32_t lsa_rank, uint32_t index) const {
  return peer_ptr<uint64_t>(comm_.control, lsa_rank, words_offset_ + 8 * uint64_t{index}, 8);
}

template <CCO_COOP C>
CCO_DEVICE LsaBarrier<C>::LsaBarrier(C coop, const DeviceComm& comm, uint32_t index)
    : coop_(coop),
      comm_(comm),
      words_offset_(comm.barrier_offset + 8 * uint64_t{index} * (comm.lsa_size + 1)) {
  CCO_DEVICE_CHECK(index < comm.barrier_count, "barrier index out of range", index,
                   comm.barrier_count);
  epoch_ = load_relaxed_device(word_of(comm.lsa_rank, 0));
  const uint32_t first = coop_.thread_rank();
  if (first >= peer_count()) return;
  first_outbox_ = outbox(first);
  first_inbox_ = inbox(first);
}

template <CCO_COOP C>
CCO_DEVICE LsaBarrier<C>::~LsaBarrier() {
  if (coop_.is_leader()) store_relaxed_device(word_of(comm_.lsa_rank, 0), epoch_);
  coop_.sync();  // The group's next barrier on this index reads it.
}

template <CCO_COOP C>
CCO_DEVICE void LsaBarrier<C>::arrive() {
  drain_stores();
  coop_.sync();
  if (first_outbox_ == nullptr) return;
  publish_system();
  // Its address is known: working it out here would add to the way of every round.
  store_published_system(first_outbox_, epoch_ + 1);
  uint32_t index = coop_.thread_rank();
  while ((index += coop_.size()) < peer_count()) {
    store_published_system(outbox(index), epoch_ + 1);
  }
}

template <CCO_COOP C>
CCO_DEVICE WaitResult LsaBarrier<C>::wait(const Deadline& deadline) {
  Poll poll(deadline);
  bool arrived = true;
  uint32_t missing = kNoRank;
  const uint64_t* word = first_inbox_;
  for (uint32_t index = coop_.thread_rank(); index < peer_count() && arrived;
       index += coop_.size()) {
    if (index != coop_.thread_rank()) word = inbox(index);
    while (!(arrived = impl::reached(load_relaxed_system(word), epoch_ + 1)) && poll.again()) {
    }
    if (arrived) {
      acquire_system(word);
    } else {
      missing = world_rank(comm_, peer(index));
    }
  }
  const WaitResult result = agree(coop_, arrived, poll.aborted(), missing, deadline);
  if (result.status == WaitStatus::kArrived) ++epoch_;
  return result;
}

}  // namespace cco::device
