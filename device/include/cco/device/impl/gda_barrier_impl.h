// Bodies of gda_barrier.h.
#pragma once

#include "cco/device/gda_barrier.h"

namespace cco::device {

namespace impl {

template <CCO_COOP C>
CCO_DEVICE GdaExchange<C>::GdaExchange(C coop, const Gda& gda, const Team& team, bool sound)
    : coop_(coop), gda_(gda), team_(team), sound_(sound) {
  if (!sound_) return;
  const uint64_t word = load_relaxed_device(local_ptr<uint64_t>(gda.comm().control, team.word, 8));
  epoch_ = word >> kToldBits;
  told_ = static_cast<uint32_t>(word & ((1u << kToldBits) - 1));
}

template <CCO_COOP C>
CCO_DEVICE GdaExchange<C>::~GdaExchange() {
  if (!sound_) return;
  if (coop_.is_leader()) {
    store_relaxed_device(local_ptr<uint64_t>(gda_.comm().control, team_.word, 8),
                         epoch_ << kToldBits | told_);
  }
  coop_.sync();  // The group's next barrier on this index reads it.
}

/// The step-th rank after this one. kNoRank: past the last.
template <CCO_COOP C>
CCO_DEVICE uint32_t GdaExchange<C>::peer(uint32_t step) const {
  const uint32_t size = gda_.comm().world_size;
  return step * team_.stride < size ? (gda_.comm().rank + step * team_.stride) % size : kNoRank;
}

template <CCO_COOP C>
CCO_DEVICE WaitResult GdaExchange<C>::arrive(const Deadline& deadline) {
  if (!sound_) return WaitResult{WaitStatus::kRefused, kNoRank};
  drain_stores();
  coop_.sync();
  WaitResult result = arrived();
  if (coop_.is_leader()) {
    // One after the other: lanes must not ring several queues in one step.
    for (uint32_t to; (to = peer(told_ + 1)) != kNoRank; ++told_) {
      if (team_.connected_only && !gda_.connected(to)) continue;
      result = gda_.raise(to, signal_of(gda_.comm().rank), deadline);
      if (result.status != WaitStatus::kArrived) break;
    }
  }
  return combine(coop_, result);
}

template <CCO_COOP C>
CCO_DEVICE WaitResult GdaExchange<C>::wait(const Deadline& deadline) {
  if (!sound_) return WaitResult{WaitStatus::kRefused, kNoRank};
  Poll poll(deadline);
  bool all_here = true;
  uint32_t missing = kNoRank;
  uint32_t from;
  for (uint32_t step = 1 + coop_.thread_rank(); all_here && (from = peer(step)) != kNoRank;
       step += coop_.size()) {
    if (team_.connected_only && !gda_.connected(from)) continue;
    const uint32_t signal = signal_of(from);
    while (!(all_here = reached(gda_.signal_total(signal), epoch_ + 1)) && poll.again()) {
    }
    if (all_here) {
      gda_.acquire_signal(signal);
    } else {
      missing = from;
    }
  }
  const WaitResult result = agree(coop_, all_here, poll.aborted(), missing, deadline);
  if (result.status == WaitStatus::kArrived) {
    ++epoch_;
    told_ = 0;
  }
  return result;
}

/// Of rail barrier `index`.
template <CCO_COOP C>
CCO_DEVICE typename GdaExchange<C>::Team barrier_team(const Gda& gda, uint32_t index,
                                                      GdaTeam team) {
  if (gda.device() == nullptr) return {1, false, 1, 0, 0};
  const cco_gda_device& device = *gda.device();
  const uint32_t lsa_size = gda.comm().lsa_size;
  const bool rail_only = device.connection == CCO_GDA_CONNECT_RAIL;
  const bool along_rail = rail_only || team == GdaTeam::kRail;
  return {along_rail ? lsa_size : 1, !along_rail, rail_only ? lsa_size : 1,
          device.rail_signal_first + index * device.rail_barrier_slots,
          device.epoch_offset + 8 * uint64_t{index}};
}

/// Of the second stage of world barrier `index`.
template <CCO_COOP C>
CCO_DEVICE typename GdaExchange<C>::Team world_team(const Gda& gda, uint32_t index) {
  if (gda.device() == nullptr) return {1, false, 1, 0, 0};
  const cco_gda_device& device = *gda.device();
  return {gda.comm().lsa_size, false, gda.comm().lsa_size,
          device.world_signal_first + index * device.node_count,
          device.epoch_offset + 8 * (uint64_t{device.rail_barrier_count} + index)};
}

}  // namespace impl

template <CCO_COOP C>
CCO_DEVICE GdaBarrier<C>::GdaBarrier(C coop, const Gda& gda, uint32_t index, GdaTeam team)
    : exchange_(coop, gda, impl::barrier_team<C>(gda, index, team),
                gda.device() != nullptr && index < gda.device()->rail_barrier_count) {}

template <CCO_COOP C>
CCO_DEVICE WorldBarrier<C>::WorldBarrier(C coop, const Gda& gda, uint32_t index)
    : coop_(coop),
      gda_(gda),
      index_(index),
      rail_(coop, gda, impl::world_team<C>(gda, index),
            gda.device() != nullptr && index < gda.device()->world_barrier_count) {}

template <CCO_COOP C>
CCO_DEVICE void WorldBarrier<C>::arrive() {
  if (!rail_.sound()) return;
  LsaBarrier<C> node(coop_, gda_.comm(), gda_.device()->world_barrier_first + index_);
  if (node.epoch() == rail_.epoch()) node.arrive();
}

template <CCO_COOP C>
CCO_DEVICE WaitResult WorldBarrier<C>::wait(const Deadline& deadline) {
  if (!rail_.sound()) return WaitResult{WaitStatus::kRefused, kNoRank};
  WaitResult result = impl::arrived();
  {
    LsaBarrier<C> node(coop_, gda_.comm(), gda_.device()->world_barrier_first + index_);
    if (node.epoch() == rail_.epoch()) result = node.wait(deadline);
  }
  if (result.status == WaitStatus::kArrived) result = rail_.arrive(deadline);
  return result.status == WaitStatus::kArrived ? rail_.wait(deadline) : result;
}

}  // namespace cco::device
