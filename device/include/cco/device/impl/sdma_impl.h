// Bodies of sdma.h.
#pragma once

#include <type_traits>

#include "cco/device/impl/copy.h"
#include "cco/device/impl/sdma_queue.h"
#include "cco/device/impl/wait_result.h"
#include "cco/device/impl/work_ring.h"
#include "cco/device/sdma.h"

namespace cco::device {

namespace impl {

/// One thread's put, get or signal.
struct SdmaTransfer {
  uint32_t operation;  // CCO_WORK_PUT, CCO_WORK_GET, CCO_WORK_NONE.
  uint32_t peer;
  uint32_t queue;
  Place remote;  // In the peer's copy.
  Place local;   // In this rank's.
  uint64_t bytes;

  /// Only for ranges that are inside their windows.
  CCO_DEVICE SdmaCopy addresses() const {
    const auto there =
        reinterpret_cast<uint64_t>(peer_ptr(remote.window, peer, remote.offset, bytes));
    const auto here = reinterpret_cast<uint64_t>(local_ptr(local.window, local.offset, bytes));
    return operation == CCO_WORK_PUT ? SdmaCopy{there, here, bytes} : SdmaCopy{here, there, bytes};
  }
};

/// One result for the group, from its leader. A barrier.
template <CCO_COOP C>
CCO_DEVICE WaitResult share(C coop, const WaitResult& of_leader) {
  return combine(coop, coop.is_leader() ? of_leader : arrived());
}

}  // namespace impl

CCO_DEVICE Sdma::Sdma(const DeviceComm& comm) : comm_(comm), device_(nullptr) {
  if (comm.sdma == 0) return;
  const auto* const device = global_pointer<const cco_sdma_device>(comm.sdma);
  const bool is_known =
      device->provider == CCO_SDMA_USER_QUEUE || device->provider == CCO_SDMA_COPY_ENGINE;
  if (device->abi_version == CCO_ABI_VERSION && is_known) device_ = device;
}

CCO_DEVICE bool Sdma::has_queue(uint32_t peer, uint32_t queue) const {
  return device_ != nullptr && peer < comm_.lsa_size && queue < device_->queue_count;
}

CCO_DEVICE bool Sdma::has_range(Place place, uint32_t peer, uint64_t bytes) const {
  const Window& window = place.window;
  return window.abi_version == CCO_ABI_VERSION && window.generation != 0 &&
         peer < window.lsa_size && place.offset <= window.size_bytes &&
         bytes <= window.size_bytes - place.offset;
}

CCO_DEVICE WaitResult Sdma::result_of(WaitStatus status, uint32_t peer,
                                      const Deadline& deadline) const {
  switch (status) {
    case WaitStatus::kArrived:
      return WaitResult{status, kNoRank};
    case WaitStatus::kPeerLost:
      return WaitResult{status, CCO_ABORT_RANK(load_relaxed_system(deadline.abort_word))};
    default:
      return WaitResult{status, peer < comm_.lsa_size ? world_rank(comm_, peer) : kNoRank};
  }
}

CCO_DEVICE uint64_t* Sdma::signal_word(uint32_t receiver, uint32_t sender, uint32_t queue) const {
  const uint64_t index = uint64_t{sender} * device_->queue_count + queue;
  return peer_ptr<uint64_t>(comm_.control, receiver, device_->signal_offset + 8 * index, 8);
}

template <uint32_t options, CCO_COOP C>
CCO_DEVICE WaitResult Sdma::put(C coop, uint32_t peer, Place destination, Place source,
                                uint64_t bytes, uint32_t queue, const Deadline& deadline) const {
  return transfer<options>(coop, {CCO_WORK_PUT, peer, queue, destination, source, bytes}, deadline);
}

template <uint32_t options, CCO_COOP C>
CCO_DEVICE WaitResult Sdma::get(C coop, uint32_t peer, Place source, Place destination,
                                uint64_t bytes, uint32_t queue, const Deadline& deadline) const {
  return transfer<options>(coop, {CCO_WORK_GET, peer, queue, source, destination, bytes}, deadline);
}

template <uint32_t options, CCO_COOP C>
CCO_DEVICE WaitResult Sdma::signal(C coop, uint32_t peer, uint32_t queue,
                                   const Deadline& deadline) const {
  const Place nowhere = at(comm_.control, 0);
  return transfer<options>(coop, {CCO_WORK_NONE, peer, queue, nowhere, nowhere, 0}, deadline);
}

template <uint32_t options, CCO_COOP C>
CCO_DEVICE WaitResult Sdma::transfer(C coop, impl::SdmaTransfer what,
                                     const Deadline& deadline) const {
  constexpr bool by_thread = std::is_same<C, ThreadCoop>::value;
  static_assert(by_thread || (options & (kSdmaSignalPerCopy | kSdmaSameQueue)) == 0,
                "only threads that post as one have these");
  if (!has_queue(what.peer, what.queue) || !has_range(what.remote, what.peer, what.bytes) ||
      !has_range(what.local, comm_.lsa_rank, what.bytes)) {
    return result_of(WaitStatus::kRefused, what.peer, deadline);
  }
  // The driver's copy engines are no faster within a GPU, and busy with the peers.
  if (device_->provider == CCO_SDMA_COPY_ENGINE && what.peer == comm_.lsa_rank) {
    const impl::SdmaCopy copy = what.addresses();
    impl::copy_bytes(coop, global_pointer<void>(copy.destination),
                     global_pointer<const void>(copy.source), copy.bytes);
    what.bytes = 0;
  }
  if constexpr (by_thread) {
    WaitResult result{};
    const auto act = [&](const ActiveLanes& group) {
      result = post<options>(group, what, deadline);
    };
    const ActiveLanes together = ActiveLanes::here();
    const uint64_t key = uint64_t{what.peer} << 32 | what.queue;
    if ((options & kSdmaSameQueue) != 0) {
      CCO_DEVICE_CHECK(key == together.broadcast(key, 0), "SDMA calls of one queue, queue",
                       what.queue, together.broadcast(key, 0));
      act(together);
    } else {
      together.for_each_key(key, act);
    }
    return result;
  } else {
    drain_stores();
    coop.sync();  // The leader's release covers what it has synchronised with.
    WaitResult result{};
    if (coop.is_leader()) result = post<options>(ActiveLanes::alone(), what, deadline);
    return impl::share(coop, result);
  }
}

template <uint32_t options>
CCO_DEVICE WaitResult Sdma::post(const ActiveLanes& group, const impl::SdmaTransfer& what,
                                 const Deadline& deadline) const {
  WaitStatus status = WaitStatus::kRefused;
  switch (device_->provider) {
    case CCO_SDMA_USER_QUEUE: {
      const auto word = [&](bool wanted, uint32_t receiver) {
        return wanted
                   ? reinterpret_cast<uint64_t>(signal_word(receiver, comm_.lsa_rank, what.queue))
                   : 0;
      };
      const impl::SdmaSignals signals{word((options & kSdmaSignalRemote) != 0, what.peer),
                                      word((options & kSdmaSignalLocal) != 0, comm_.lsa_rank)};
      status = impl::SdmaProducer(*device_, what.peer, what.queue)
                   .post(group, what.addresses(), signals, (options & kSdmaSignalPerCopy) != 0,
                         (options & kSdmaAggregate) == 0, deadline);
      break;
    }
    case CCO_SDMA_COPY_ENGINE:
      status = post_items<options>(group, what, deadline);
      break;
    default:
      break;
  }
  return result_of(status, what.peer, deadline);
}

template <uint32_t options>
CCO_DEVICE WaitStatus Sdma::post_items(const ActiveLanes& group, const impl::SdmaTransfer& what,
                                       const Deadline& deadline) const {
  constexpr bool per_copy = (options & kSdmaSignalPerCopy) != 0;
  constexpr uint32_t signals = ((options & kSdmaSignalRemote) != 0 ? CCO_WORK_SIGNAL_REMOTE : 0) |
                               ((options & kSdmaSignalLocal) != 0 ? CCO_WORK_SIGNAL_LOCAL : 0);
  Poll poll(deadline);
  bool posted = true;
  // The group's signal goes with the leader's item, which therefore is the last one.
  const bool goes_last = !per_copy && group.is_leader();
  if (!goes_last) posted = post_item(what, per_copy ? signals : 0, poll);
  drain_stores();
  if (!per_copy && !group.any(!posted) && goes_last) posted = post_item(what, signals, poll);
  if (!group.any(!posted)) return WaitStatus::kArrived;
  return group.any(poll.aborted()) ? WaitStatus::kPeerLost : WaitStatus::kTimedOut;
}

CCO_DEVICE bool Sdma::post_item(const impl::SdmaTransfer& what, uint32_t signals,
                                Poll& poll) const {
  if (what.bytes == 0 && signals == 0) return true;
  const uint32_t operation = what.bytes == 0 ? CCO_WORK_NONE : what.operation;
  cco_work_item item{};
  item.header = CCO_WORK_HEADER(0, operation, signals, what.peer);
  item.bytes = what.bytes;
  item.remote_generation = what.remote.window.generation;
  item.remote_offset = what.remote.offset;
  item.local_generation = what.local.window.generation;
  item.local_offset = what.local.offset;
  item.signal_index = uint64_t{comm_.lsa_rank} * device_->queue_count + what.queue;
  item.signal_delta = 1;
  const auto* const rings = global_pointer<const cco_work_ring>(device_->rings);
  impl::WorkGuess guess;
  return impl::post_work(rings[what.queue], guess, item, poll) != 0;
}

/// `act` by one thread of each group that makes the call for one key; its result for all.
template <CCO_COOP C, typename F>
CCO_DEVICE WaitResult Sdma::by_leader(C coop, uint64_t key, F act) const {
  WaitResult result{};
  if constexpr (std::is_same<C, ThreadCoop>::value) {
    ActiveLanes::here().for_each_key(key, [&](const ActiveLanes& group) {
      if (group.is_leader()) result = act();
      result = WaitResult::decode(group.broadcast(result.encode(), 0));
    });
    return result;
  } else {
    coop.sync();  // What its other threads have posted counts.
    if (coop.is_leader()) result = act();
    return impl::share(coop, result);
  }
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Sdma::commit(C coop, uint32_t peer, uint32_t queue,
                                   const Deadline& deadline) const {
  if (!has_queue(peer, queue)) return result_of(WaitStatus::kRefused, peer, deadline);
  return by_leader(coop, uint64_t{peer} << 32 | queue, [&] {
    // Work items are posted at once.
    const WaitStatus status = device_->provider == CCO_SDMA_USER_QUEUE
                                  ? impl::SdmaProducer(*device_, peer, queue).ring(deadline)
                                  : WaitStatus::kArrived;
    return result_of(status, peer, deadline);
  });
}

CCO_DEVICE WaitResult Sdma::land(uint32_t peer, uint32_t queue, const Deadline& deadline) const {
  if (device_->provider == CCO_SDMA_USER_QUEUE) {
    return result_of(impl::SdmaProducer(*device_, peer, queue).wait_landed(deadline), peer,
                     deadline);
  }
  const cco_work_ring& ring = global_pointer<const cco_work_ring>(device_->rings)[queue];
  const uint64_t posted = load_relaxed_device(global_pointer<const uint64_t>(ring.posted));
  Poll poll(deadline);
  uint64_t completed = 0;
  while (!impl::work_completed(ring, posted, &completed)) {
    if (!poll.again()) return result_of(impl::gave_up(poll), peer, deadline);
  }
  if ((completed & CCO_WORK_FAILED) == 0) return result_of(WaitStatus::kArrived, peer, deadline);
  return result_of(WaitStatus::kFailed, CCO_WORK_ERROR_PEER(impl::work_error(ring)), deadline);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Sdma::quiet_queue(C coop, uint32_t peer, uint32_t queue,
                                        const Deadline& deadline) const {
  if (!has_queue(peer, queue)) return result_of(WaitStatus::kRefused, peer, deadline);
  return by_leader(coop, uint64_t{peer} << 32 | queue, [&] { return land(peer, queue, deadline); });
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Sdma::quiet(C coop, uint32_t peer, const Deadline& deadline) const {
  if (!has_queue(peer, 0)) return result_of(WaitStatus::kRefused, peer, deadline);
  return by_leader(coop, peer, [&] {
    WaitResult result = land(peer, 0, deadline);
    for (uint32_t queue = 1; queue < device_->queue_count; ++queue) {
      if (result.status == WaitStatus::kArrived) result = land(peer, queue, deadline);
    }
    return result;
  });
}

CCO_DEVICE uint64_t Sdma::read_signal(uint32_t sender, uint32_t queue) const {
  if (!has_queue(sender, queue)) return 0;
  return load_acquire_system(signal_word(comm_.lsa_rank, sender, queue));
}

template <CCO_COOP C>
CCO_DEVICE WaitResult Sdma::wait_signal(C coop, uint32_t sender, uint32_t queue, uint64_t target,
                                        const Deadline& deadline) const {
  if (!has_queue(sender, queue)) return result_of(WaitStatus::kRefused, sender, deadline);
  const uint64_t* const signal = signal_word(comm_.lsa_rank, sender, queue);
  Poll poll(deadline);
  bool arrived = true;
  if (coop.is_leader()) {
    while (!(arrived = impl::reached(load_relaxed_system(signal), target)) && poll.again()) {
    }
    if (arrived) acquire_system(signal);
  }
  return agree(coop, arrived, poll.aborted(), world_rank(comm_, sender), deadline);
}

}  // namespace cco::device
