// Bodies of gda.h.
#pragma once

#include <type_traits>

#include "cco/device/gda.h"
#include "cco/device/impl/gda_proxy.h"
#include "cco/device/impl/nic_queue.h"
#include "cco/device/impl/wait_result.h"
#include "cco/device/lanes.h"

namespace cco::device {

/// What one caller posts. `operation`: CCO_WORK_*; a CCO_WORK_VALUE is `value`.
struct Gda::Work {
  /// A range of a window, on the peer or here, in the words of all providers.
  struct Range {
    uint64_t generation;
    uint64_t offset;
    uint64_t remote_keys;  ///< Address.
    uint32_t local_key;

    CCO_DEVICE Range(const Window& window, uint64_t at)
        : generation(window.generation),
          offset(at),
          remote_keys(window.remote_keys),
          local_key(window.local_key) {}
    CCO_DEVICE Range() : generation(0), offset(0), remote_keys(0), local_key(0) {}
    CCO_DEVICE Range(const Place& place) : Range(place.window, place.offset) {}
  };

  uint32_t operation;
  uint32_t peer;
  Range remote;
  Range local;
  uint64_t value;
  uint64_t bytes;
  RemoteAction action;  ///< Its id is an index among all signals, the barriers' included.
  bool sound;           ///< Else it is refused.

  /// For the proxy.
  CCO_DEVICE cco_work_item item() const {
    const bool moves = bytes != 0;
    const bool is_value = operation == CCO_WORK_VALUE;
    cco_work_item item{};
    item.header = CCO_WORK_HEADER(0, moves ? operation : CCO_WORK_NONE,
                                  action.raises ? CCO_WORK_SIGNAL_REMOTE : 0, peer);
    item.bytes = bytes;
    item.remote_generation = remote.generation;
    item.remote_offset = remote.offset;
    item.local_generation = is_value ? value >> 32 : local.generation;
    item.local_offset = is_value ? value & 0xffffffffu : local.offset;
    item.signal_index = action.id;
    item.signal_delta = action.value;
    return item;
  }
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

/// Where sender `rank` adds to signal `index`, in the control window.
CCO_DEVICE uint64_t signal_place(const cco_gda_device& device, uint32_t index, uint32_t rank) {
  const uint64_t slots = device.signal_slots;
  return device.signal_offset + 8 * (index * slots + (slots == 1 ? 0 : rank));
}

/// What a NIC is asked to do for one caller.
struct NicOrder {
  NicKind kind;
  bool moves;  ///< Else only the signal, if there is one.
  bool raises;
  uint32_t local_key;
  uint64_t bytes;
  uint64_t remote_key;  ///< Address of it.
  uint64_t remote_offset;
  uint64_t local_offset;
  uint64_t value;
  uint64_t signal_key;  ///< Address of it.
  uint64_t signal_offset;
  uint64_t signal_value;

  CCO_DEVICE NicWork work(const cco_gda_queue& queue) const {
    NicWork result{};
    if (moves) {
      result.data_bytes = bytes;
      result.data_count =
          kind == NicKind::kInline ? 1 : count_parts(bytes, queue.max_message_bytes);
      result.data = NicRequest{kind,          false,        0,    load_key(remote_key), local_key,
                               remote_offset, local_offset, value};
    }
    result.has_signal = raises;
    if (raises) {
      result.signal =
          NicRequest{NicKind::kFetchAdd, false,         8,          load_key(signal_key),
                     queue.sink_key,     signal_offset, queue.sink, signal_value};
    }
    return result;
  }
  static CCO_DEVICE uint32_t load_key(uint64_t address) {
    return *global_pointer<const uint32_t>(address);
  }
};

/// Called, not expanded, and by value: nothing of the caller's has to lie in memory for it.
template <typename Group>
CCO_DEVICE_CALL WaitResult post_to_nic(Group group, uint32_t provider, uint32_t peer,
                                       const cco_gda_queue* place, NicOrder order, bool aggregate,
                                       Deadline deadline) {
  const cco_gda_queue queue = *place;
  // Both, so that the load of the state's address does not wait for the answer.
  if ((queue.qpn == 0) | (queue.state == 0)) return WaitResult{WaitStatus::kRefused, peer};
  const NicWork mine = order.work(queue);
  return with_nic(provider, [&](auto nic) {
    return post_to_queue<decltype(nic)>(group, queue, mine, aggregate, deadline);
  });
}
CCO_DEVICE_CALL WaitResult wait_for_nic(uint32_t provider, const cco_gda_queue* place,
                                        uint64_t target, Deadline deadline) {
  const cco_gda_queue queue = *place;
  return with_nic(provider,
                  [&](auto nic) { return wait_completed<decltype(nic)>(queue, target, deadline); });
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
      context_(context) {
  if (device_ == nullptr || context >= device_->context_count) return;
  provider_ = device_->provider;
  connection_ = device_->connection;
  if (by_proxy()) {
    ring_ = global_pointer<const cco_work_ring>(device_->rings)[context];
  } else {
    queues_ = device_->queues + context * sizeof(cco_gda_queue);
    queue_stride_ = uint64_t{device_->context_count} * sizeof(cco_gda_queue);
  }
}

CCO_DEVICE const cco_gda_queue* Gda::queue(uint32_t peer) const {
  return global_pointer<const cco_gda_queue>(queues_ + peer * queue_stride_);
}

CCO_DEVICE bool Gda::connected(uint32_t peer) const {
  return may_reach(peer) && (by_proxy() || queue(peer)->qpn != 0);
}

CCO_DEVICE bool Gda::may_reach(uint32_t peer) const {
  if (!exists() || peer >= comm_.world_size) return false;
  if (!by_proxy()) return true;
  const bool other_node = !in_lsa_team(comm_, peer);
  switch (connection_) {
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
         (by_proxy() || (window.remote_keys != 0 && window.local_key != 0));
}

CCO_DEVICE bool Gda::usable(const RemoteAction& action) const {
  return !action.raises || action.id < device_->signal_count;
}

CCO_DEVICE uint64_t* Gda::own_word(uint64_t offset, uint32_t index) const {
  return local_ptr<uint64_t>(comm_.control, offset + 8 * uint64_t{index}, 8);
}

template <typename Group>
CCO_DEVICE WaitResult Gda::post_together(const Group& group, Work work, const Deadline& deadline,
                                         uint32_t flags) const {
  // One signal for the group, behind what all of it bring.
  work.action.raises = work.action.raises && group.rank() + 1 == group.count();
  if (by_proxy()) {
    return impl::post_to_ring(group, ring_, guess_, work.item(), work.peer, deadline);
  }
  const uint64_t key_offset = uint64_t{work.peer} * sizeof(uint32_t);
  const bool is_value = work.operation == CCO_WORK_VALUE;
  impl::NicOrder order{};
  order.kind = is_value                         ? impl::NicKind::kInline
               : work.bytes == 0                ? impl::NicKind::kNothing
               : work.operation == CCO_WORK_GET ? impl::NicKind::kRead
                                                : impl::NicKind::kWrite;
  order.moves = work.operation != CCO_WORK_NONE;
  order.raises = work.action.raises;
  order.bytes = work.bytes;
  order.remote_key = work.remote.remote_keys + key_offset;
  order.remote_offset = work.remote.offset;
  order.local_key = work.local.local_key;
  order.local_offset = work.local.offset;
  order.value = work.value;
  if (order.raises) {
    order.signal_key = comm_.control.remote_keys + key_offset;
    order.signal_offset = impl::signal_place(*device_, work.action.id, comm_.rank);
    order.signal_value = work.action.value;
  }
  return impl::post_to_nic(group, provider_, work.peer, queue(work.peer), order,
                           (flags & kGdaAggregate) != 0, deadline);
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
    if (coop.is_leader()) result = post_together(OneLane{}, work, deadline, flags);
    return impl::combine(coop, result);
  }
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::put(C coop, uint32_t peer, Place destination, Place source,
                               uint64_t bytes, const GdaPost& how) const {
  const bool sound =
      may_reach(peer) && usable(destination, bytes) && usable(source, bytes) && usable(how.action);
  return post(coop, Work{CCO_WORK_PUT, peer, destination, source, 0, bytes, how.action, sound},
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
  const bool sound = may_reach(peer) && usable(destination, sizeof(T)) && usable(how.action);
  return post(coop, Work{CCO_WORK_VALUE, peer, destination, {}, bits, sizeof(T), how.action, sound},
              how.deadline, how.flags);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::get(C coop, uint32_t peer, Place source, Place destination,
                               uint64_t bytes, const GdaPost& how) const {
  const bool sound =
      may_reach(peer) && usable(source, bytes) && usable(destination, bytes) && !how.action.raises;
  return post(coop, Work{CCO_WORK_GET, peer, source, destination, 0, bytes, how.action, sound},
              how.deadline, how.flags);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::signal(C coop, uint32_t peer, RemoteAction action,
                                  const Deadline& deadline) const {
  const bool sound = may_reach(peer) && action.raises && usable(action);
  return post(coop, Work{CCO_WORK_NONE, peer, {}, {}, 0, 0, action, sound}, deadline, 0);
}

CCO_DEVICE WaitResult Gda::raise(uint32_t peer, uint32_t index, const Deadline& deadline) const {
  if (!may_reach(peer)) return WaitResult{WaitStatus::kRefused, peer};
  const RemoteAction action = SignalInc{index};
  return post_together(OneLane{}, Work{CCO_WORK_NONE, peer, {}, {}, 0, 0, action, true}, deadline,
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
  if (by_proxy()) return load_relaxed_device(global_pointer<const uint64_t>(ring_.posted));
  return impl::written_units(*queue(peer), waits);
}

CCO_DEVICE WaitResult Gda::wait_written(uint32_t peer, uint64_t target,
                                        const Deadline& deadline) const {
  if (by_proxy()) return impl::wait_ring(ring_, guess_, target, peer, deadline);
  return impl::wait_for_nic(provider_, queue(peer), target, deadline);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Gda::flush_async(C coop, uint32_t peer, GdaRequest* request,
                                       const Deadline& deadline) const {
  if (!connected(peer)) return WaitResult{WaitStatus::kRefused, peer};
  coop.sync();  // The posts of all its threads count.
  bool waits = false;
  uint64_t target = written(peer, &waits);
  if (!by_proxy() && coop.any(waits)) {
    // Nothing, but with a doorbell.
    const Place nowhere = at(comm_.control, 0);
    const WaitResult rung =
        post(coop, Work{CCO_WORK_PUT, peer, nowhere, nowhere, 0, 0, NoSignal{}, true}, deadline, 0);
    if (rung.status != WaitStatus::kArrived) return rung;
    target = written(peer, &waits);
  }
  *request = GdaRequest{peer, target};
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
  if (!exists()) return WaitResult{WaitStatus::kRefused, kNoRank};
  coop.sync();
  if (by_proxy()) {  // One ring serves all peers.
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
