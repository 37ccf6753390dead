// Bodies of gda.h.
#pragma once

#include <type_traits>

#include "cco/device/gda.h"
#include "cco/device/impl/gda_proxy.h"
#include "cco/device/impl/nic_queue.h"
#include "cco/device/impl/wait_result.h"
#include "cco/device/lanes.h"

namespace cco::device {

/// What one caller posts. `operation`: CCO_WORK_*; `local_offset` is the value of CCO_WORK_VALUE.
struct Gda::Work {
  uint32_t operation;
  uint32_t peer;
  const Window* remote;
  uint64_t remote_offset;
  const Window* local;
  uint64_t local_offset;
  uint64_t bytes;
  RemoteAction action;  ///< Its id is an index among all signals, the barriers' included.
  bool sound;           ///< Else it is refused.
};

namespace impl {

/// `act(N{})` for the NIC behind `provider`.
template <typename F>
CCO_DEVICE WaitResult with_nic(uint32_t provider, F act) {
  switch (provider) {
    case CCO_GDA_MLX5:
      return act(Mlx5{});
    case CCO_GDA_BNXT:
      return act(Bnxt{});
    case CCO_GDA_IONIC:
      return act(Ionic{});
    default:
      return WaitResult{WaitStatus::kRefused, kNoRank};
  }
}

CCO_DEVICE uint64_t low_bits(uint64_t value, uint32_t bits) {
  return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1);
}

CCO_DEVICE uint32_t remote_key(const Window& window, uint32_t peer) {
  return global_pointer<const uint32_t>(window.remote_keys)[peer];
}

CCO_DEVICE cco_gda_queue queue_of(const cco_gda_device& device, uint32_t peer, uint32_t context) {
  return global_pointer<const cco_gda_queue>(
      device.queues)[uint64_t{peer} * device.context_count + context];
}
CCO_DEVICE cco_work_ring ring_of(const cco_gda_device& device, uint32_t context) {
  return global_pointer<const cco_work_ring>(device.rings)[context];
}

/// Where sender `rank` adds to signal `index`, in the control window.
CCO_DEVICE uint64_t signal_place(const cco_gda_device& device, uint32_t index, uint32_t rank) {
  const uint64_t slots = device.signal_slots;
  return device.signal_offset + 8 * (index * slots + (slots == 1 ? 0 : rank));
}

/// Polls until `look()`, in the group's leader; then `acquire()`.
template <CCO_COOP C, typename Look, typename Acquire>
CCO_DEVICE WaitResult wait_until(C coop, const Deadline& deadline, Look look, Acquire acquire) {
  Poll poll(deadline);
  bool arrived = true;
  if (coop.is_leader()) {
    while (!(arrived = look()) && poll.again()) {
    }
    if (arrived) acquire();
  }
  return agree(coop, arrived, poll.aborted(), kNoRank, deadline);
}

}  // namespace impl

CCO_DEVICE Gda::Gda(const DeviceComm& comm, uint32_t context)
    : comm_(comm),
      device_(comm.gda == 0 ? nullptr : global_pointer<const cco_gda_device>(comm.gda)),
      context_(context) {}

CCO_DEVICE bool Gda::connected(uint32_t peer) const {
  if (device_ == nullptr || context_ >= device_->context_count) return false;
  if (peer >= comm_.world_size) return false;
  if (device_->provider != CCO_GDA_PROXY) {
    return impl::queue_of(*device_, peer, context_).qpn != 0;
  }
  const bool other_node = !in_lsa_team(comm_, peer);
  switch (device_->connection) {
    case CCO_GDA_CONNECT_FULL:
      return true;
    case CCO_GDA_CONNECT_CROSS_NODE:
      return other_node;
    case CCO_GDA_CONNECT_RAIL:
      return other_node && peer % comm_.lsa_size == comm_.rank % comm_.lsa_size;
    default:
      return false;
  }
}

CCO_DEVICE bool Gda::usable(const Place& place, uint64_t bytes) const {
  const Window& window = place.window;
  const bool inside =
      place.offset <= window.size_bytes && bytes <= window.size_bytes - place.offset;
  return window.generation != 0 && inside &&
         (device_->provider == CCO_GDA_PROXY || (window.remote_keys != 0 && window.local_key != 0));
}

CCO_DEVICE bool Gda::usable(const RemoteAction& action) const {
  return !action.raises || action.id < device_->signal_count;
}

CCO_DEVICE uint64_t* Gda::own_word(uint64_t offset, uint32_t index) const {
  return local_ptr<uint64_t>(comm_.control, offset + 8 * uint64_t{index}, 8);
}

CCO_DEVICE cco_work_item Gda::item_of(const Work& work, bool signals) const {
  cco_work_item item{};
  item.header = CCO_WORK_HEADER(0, work.operation, signals ? CCO_WORK_SIGNAL_REMOTE : 0, work.peer);
  item.bytes = work.bytes;
  item.remote_generation = work.remote == nullptr ? 0 : work.remote->generation;
  item.remote_offset = work.remote_offset;
  item.local_generation = work.local == nullptr ? 0 : work.local->generation;
  item.local_offset = work.local_offset;
  item.signal_index = work.action.id;
  item.signal_delta = work.action.value;
  return item;
}

CCO_DEVICE impl::NicWork Gda::nic_work_of(const Work& work, const cco_gda_queue& queue,
                                          bool signals) const {
  impl::NicWork result{};
  result.data_bytes = work.bytes;
  if (work.operation == CCO_WORK_VALUE) {
    result.data.kind = impl::NicKind::kInline;
    result.data.value = work.local_offset;
    result.data_count = 1;
  } else if (work.operation != CCO_WORK_NONE) {
    result.data.kind = work.bytes == 0                  ? impl::NicKind::kNothing
                       : work.operation == CCO_WORK_GET ? impl::NicKind::kRead
                                                        : impl::NicKind::kWrite;
    result.data.local_key = work.local->local_key;
    result.data.local_offset = work.local_offset;
    result.data_count = impl::count_parts(work.bytes, queue.max_message_bytes);
  }
  if (work.remote != nullptr) {
    result.data.remote_key = impl::remote_key(*work.remote, work.peer);
    result.data.remote_offset = work.remote_offset;
  }
  result.has_signal = signals;
  if (signals) {
    result.signal.kind = impl::NicKind::kFetchAdd;
    result.signal.bytes = 8;
    result.signal.remote_key = impl::remote_key(comm_.control, work.peer);
    result.signal.remote_offset = impl::signal_place(*device_, work.action.id, comm_.rank);
    result.signal.local_key = queue.sink_key;
    result.signal.local_offset = queue.sink;
    result.signal.value = work.action.value;
  }
  return result;
}

CCO_DEVICE_CALL WaitResult Gda::post_together(const ActiveLanes& group, const Work& work,
                                              const Deadline& deadline, uint32_t flags) const {
  const bool signals = work.action.raises && group.rank() + 1 == group.count();
  if (device_->provider == CCO_GDA_PROXY) {
    return impl::post_to_ring(group, impl::ring_of(*device_, context_), item_of(work, signals),
                              work.peer, deadline);
  }
  const cco_gda_queue queue = impl::queue_of(*device_, work.peer, context_);
  const impl::NicWork mine = nic_work_of(work, queue, signals);
  const bool aggregate = (flags & kGdaAggregate) != 0;
  return impl::with_nic(device_->provider, [&](auto nic) {
    return impl::post_to_queue<decltype(nic)>(group, queue, mine, aggregate, deadline);
  });
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::post(C coop, const Work& work, const Deadline& deadline,
                                uint32_t flags) const {
  WaitResult result{WaitStatus::kRefused, work.peer};
  if constexpr (std::is_same<C, ThreadCoop>::value) {
    const ActiveLanes all = ActiveLanes::here();
    const bool one_peer = (flags & kGdaSamePeer) != 0 && !all.any(!work.sound);
    CCO_DEVICE_CHECK(!one_peer || work.peer == all.broadcast(work.peer, 0),
                     "kGdaSamePeer, and peers that differ", work.peer, comm_.world_size);
    all.for_each_key(
        work.sound ? work.peer : kNoRank,
        [&](const ActiveLanes& group) {
          if (work.sound) result = post_together(group, work, deadline, flags);
        },
        one_peer);
    return result;
  } else {
    if (!work.sound) return result;
    drain_stores();
    coop.sync();  // The leader's release covers what it has synchronised with.
    result = impl::arrived();
    if (coop.is_leader()) result = post_together(ActiveLanes::alone(), work, deadline, flags);
    return impl::combine(coop, result);
  }
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::put(C coop, uint32_t peer, Place destination, Place source,
                               uint64_t bytes, const GdaPost& how) const {
  const bool sound =
      connected(peer) && usable(destination, bytes) && usable(source, bytes) && usable(how.action);
  return post(coop,
              Work{CCO_WORK_PUT, peer, &destination.window, destination.offset, &source.window,
                   source.offset, bytes, how.action, sound},
              how.deadline, how.flags);
}

template <typename T, CCO_COOP C>
CCO_DEVICE WaitResult Gda::put_value(C coop, uint32_t peer, Place destination, same<T> value,
                                     const GdaPost& how) const {
  static_assert(std::is_trivially_copyable<T>::value, "bytes are sent");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                "1, 2, 4 or 8 bytes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  const bool sound = connected(peer) && usable(destination, sizeof(T)) && usable(how.action);
  return post(coop,
              Work{CCO_WORK_VALUE, peer, &destination.window, destination.offset, nullptr, bits,
                   sizeof(T), how.action, sound},
              how.deadline, how.flags);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::get(C coop, uint32_t peer, Place source, Place destination,
                               uint64_t bytes, const GdaPost& how) const {
  const bool sound =
      connected(peer) && usable(source, bytes) && usable(destination, bytes) && !how.action.raises;
  return post(coop,
              Work{CCO_WORK_GET, peer, &source.window, source.offset, &destination.window,
                   destination.offset, bytes, how.action, sound},
              how.deadline, how.flags);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::signal(C coop, uint32_t peer, RemoteAction action,
                                  const Deadline& deadline) const {
  const bool sound = connected(peer) && action.raises && usable(action);
  return post(coop, Work{CCO_WORK_NONE, peer, nullptr, 0, nullptr, 0, 0, action, sound}, deadline,
              0);
}

CCO_DEVICE WaitResult Gda::raise(uint32_t peer, uint32_t index, const Deadline& deadline) const {
  if (!connected(peer)) return WaitResult{WaitStatus::kRefused, peer};
  const RemoteAction action = SignalInc{index};
  return post_together(ActiveLanes::alone(),
                       Work{CCO_WORK_NONE, peer, nullptr, 0, nullptr, 0, 0, action, true}, deadline,
                       0);
}

// Signals.

CCO_DEVICE uint64_t Gda::signal_total(uint32_t index) const {
  const uint32_t slots = device_->signal_slots;
  uint64_t total = 0;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    total += load_relaxed_system(own_word(device_->signal_offset, index * slots + slot));
  }
  return total;
}

CCO_DEVICE void Gda::acquire_signal(uint32_t index) const {
  // On GPUs one fence is for all words. Race detectors know no fences.
  const uint32_t words = CCO_HOST ? device_->signal_slots : 1;
  for (uint32_t slot = 0; slot < words; ++slot) {
    acquire_system(own_word(device_->signal_offset, index * device_->signal_slots + slot));
  }
}

CCO_DEVICE uint64_t Gda::read_signal(uint32_t id, uint32_t bits) const {
  CCO_DEVICE_CHECK(id < device_->signal_count, "GDA signal out of range", id,
                   device_->signal_count);
  const uint64_t total = signal_total(id);
  acquire_signal(id);
  const uint64_t consumed = load_relaxed_device(own_word(device_->shadow_offset, id));
  return impl::low_bits(total - consumed, bits);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::wait_signal(C coop, uint32_t id, uint64_t least,
                                       const Deadline& deadline, uint32_t bits) const {
  if (device_ == nullptr || id >= device_->signal_count) {
    return WaitResult{WaitStatus::kRefused, kNoRank};
  }
  uint64_t* const shadow = own_word(device_->shadow_offset, id);
  const uint64_t consumed = load_relaxed_device(shadow);
  return impl::wait_until(
      coop, deadline, [&] { return impl::low_bits(signal_total(id) - consumed, bits) >= least; },
      [&] {
        acquire_signal(id);
        store_relaxed_device(shadow, consumed + least);
      });
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::wait_signal_at_least(C coop, uint32_t id, uint64_t target,
                                                const Deadline& deadline) const {
  if (device_ == nullptr || id >= device_->signal_count) {
    return WaitResult{WaitStatus::kRefused, kNoRank};
  }
  return impl::wait_until(
      coop, deadline, [&] { return impl::reached(signal_total(id), target); },
      [&] { acquire_signal(id); });
}

CCO_DEVICE void Gda::reset_signal(uint32_t id) const {
  CCO_DEVICE_CHECK(id < device_->signal_count, "GDA signal out of range", id,
                   device_->signal_count);
  store_relaxed_device(own_word(device_->shadow_offset, id), signal_total(id));
}

// Completions.

CCO_DEVICE uint64_t Gda::written(uint32_t peer, bool* waits) const {
  *waits = false;
  if (device_->provider == CCO_GDA_PROXY) {
    return load_relaxed_device(
        global_pointer<const uint64_t>(impl::ring_of(*device_, context_).posted));
  }
  return impl::written_units(impl::queue_of(*device_, peer, context_), waits);
}

CCO_DEVICE_CALL WaitResult Gda::wait_written(uint32_t peer, uint64_t target,
                                             const Deadline& deadline) const {
  if (device_->provider == CCO_GDA_PROXY) {
    return impl::wait_ring(impl::ring_of(*device_, context_), target, peer, deadline);
  }
  const cco_gda_queue queue = impl::queue_of(*device_, peer, context_);
  return impl::with_nic(device_->provider, [&](auto nic) {
    return impl::wait_completed<decltype(nic)>(queue, target, deadline);
  });
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::flush_async(C coop, uint32_t peer, GdaRequest* request,
                                       const Deadline& deadline) const {
  if (!connected(peer)) return WaitResult{WaitStatus::kRefused, peer};
  coop.sync();  // The posts of all its threads count.
  bool waits = false;
  written(peer, &waits);
  if (coop.any(waits)) {
    // Nothing, but with a doorbell.
    const Work work{CCO_WORK_PUT, peer, &comm_.control, 0, &comm_.control, 0, 0, NoSignal{}, true};
    const WaitResult rung = post(coop, work, deadline, 0);
    if (rung.status != WaitStatus::kArrived) return rung;
  }
  *request = GdaRequest{peer, written(peer, &waits)};
  return impl::arrived();
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::wait(C coop, const GdaRequest& request, const Deadline& deadline) const {
  if (!connected(request.peer)) return WaitResult{WaitStatus::kRefused, request.peer};
  WaitResult result = impl::arrived();
  if (coop.is_leader()) result = wait_written(request.peer, request.target, deadline);
  return impl::combine(coop, result);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::flush(C coop, uint32_t peer, const Deadline& deadline) const {
  GdaRequest request{};
  const WaitResult result = flush_async(coop, peer, &request, deadline);
  return result.status == WaitStatus::kArrived ? wait(coop, request, deadline) : result;
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::flush(C coop, const Deadline& deadline) const {
  if (device_ == nullptr || context_ >= device_->context_count) {
    return WaitResult{WaitStatus::kRefused, kNoRank};
  }
  coop.sync();
  if (device_->provider == CCO_GDA_PROXY) {  // One ring serves all peers.
    bool waits = false;
    WaitResult result = impl::arrived();
    if (coop.is_leader()) result = wait_written(kNoRank, written(kNoRank, &waits), deadline);
    return impl::combine(coop, result);
  }
  bool any_waits = false;
  for (uint32_t peer = coop.thread_rank(); peer < comm_.world_size; peer += coop.size()) {
    bool waits = false;
    if (connected(peer)) written(peer, &waits);
    any_waits = any_waits || waits;
  }
  if (coop.any(any_waits)) {
    for (uint32_t peer = 0; peer < comm_.world_size; ++peer) {
      GdaRequest request{};
      if (!connected(peer)) continue;
      const WaitResult rung = flush_async(coop, peer, &request, deadline);
      if (rung.status != WaitStatus::kArrived) return rung;
    }
  }
  WaitResult result = impl::arrived();
  for (uint32_t peer = coop.thread_rank();
       peer < comm_.world_size && result.status == WaitStatus::kArrived; peer += coop.size()) {
    bool waits = false;
    if (connected(peer)) result = wait_written(peer, written(peer, &waits), deadline);
  }
  return impl::combine(coop, result);
}

// Counters.

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::count(C coop, uint32_t id, const WaitResult& flushed) const {
  if (flushed.status == WaitStatus::kArrived && coop.is_leader()) {
    add_release_system(own_word(device_->counter_offset, id), 1);
  }
  return flushed;
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::counter(C coop, uint32_t id, const Deadline& deadline) const {
  if (device_ == nullptr || id >= device_->counter_count) {
    return WaitResult{WaitStatus::kRefused, kNoRank};
  }
  return count(coop, id, flush(coop, deadline));
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::counter(C coop, uint32_t id, uint32_t peer,
                                   const Deadline& deadline) const {
  if (device_ == nullptr || id >= device_->counter_count) {
    return WaitResult{WaitStatus::kRefused, peer};
  }
  return count(coop, id, flush(coop, peer, deadline));
}

CCO_DEVICE uint64_t Gda::read_counter(uint32_t id, uint32_t bits) const {
  CCO_DEVICE_CHECK(id < device_->counter_count, "GDA counter out of range", id,
                   device_->counter_count);
  return impl::low_bits(load_acquire_system(own_word(device_->counter_offset, id)), bits);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::wait_counter(C coop, uint32_t id, uint64_t least,
                                        const Deadline& deadline, uint32_t bits) const {
  if (device_ == nullptr || id >= device_->counter_count) {
    return WaitResult{WaitStatus::kRefused, kNoRank};
  }
  const uint64_t* const word = own_word(device_->counter_offset, id);
  return impl::wait_until(
      coop, deadline, [&] { return impl::low_bits(load_relaxed_system(word), bits) >= least; },
      [&] { acquire_system(word); });
}

CCO_DEVICE void Gda::reset_counter(uint32_t id) const {
  CCO_DEVICE_CHECK(id < device_->counter_count, "GDA counter out of range", id,
                   device_->counter_count);
  store_relaxed_system(own_word(device_->counter_offset, id), 0);
}

}  // namespace cco::device
