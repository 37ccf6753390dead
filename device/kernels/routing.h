// The routing problem: what the kernels route() and combine() compute, and where they keep it.
//
// A token is a 64-bit id. It carries a vector of 16 uint32, is sent to the 8 of 64 experts that
// score highest, each expert transforms the vector, and the results are added up with the weights
// of the choices. All arithmetic is modulo 2^32, so that every order of work gives the same bits.
#pragma once

#include "device/kernels/exchange_pattern.h"

namespace cco::kernels {

constexpr uint32_t kExperts = 64;
constexpr uint32_t kChoices = 8;
constexpr uint32_t kLanes = 16;
constexpr uint32_t kThreadsMax = 1024;  ///< Per block, of route() and combine().

/// Higher is better; of equal scores the lower expert wins.
CCO_HOST_DEVICE uint32_t expert_score(uint64_t token_id, uint32_t expert) {
  return static_cast<uint32_t>(mix(token_id ^ (uint64_t{expert} << 56)) >> 32);
}

/// Weight of a choice in the sum, 1..256.
CCO_HOST_DEVICE uint32_t choice_weight(uint32_t score) { return (score >> 24) + 1; }

CCO_HOST_DEVICE uint32_t token_lane(uint64_t token_id, uint32_t lane) {
  return static_cast<uint32_t>(mix(token_id + uint64_t{lane} * 0x10001));
}

/// Lane of an expert's result, from the same and the next lane (cyclically) of its input.
CCO_HOST_DEVICE uint32_t expert_lane(uint32_t expert, uint32_t same_lane, uint32_t next_lane) {
  return same_lane * (2 * expert + 1) + (next_lane ^ (expert * 0x01010101u));
}

/// The rank that owns `expert`: contiguous shares whose sizes differ by at most one.
CCO_HOST_DEVICE uint32_t expert_owner(uint32_t expert, uint32_t rank_count) {
  return static_cast<uint32_t>(uint64_t{expert} * rank_count / kExperts);
}

/// One (token, choice) on its way to the owner of the expert.
struct RoutedToken {
  uint32_t lanes[kLanes];
  uint32_t token;   ///< Index at the source.
  uint32_t choice;  ///< 0..7
  uint32_t expert;
  uint32_t reserved;
};

/// Byte offsets in the window, the same on every rank.
struct RoutingLayout {
  uint64_t ids;      ///< uint64_t[tokens_max]: this rank's tokens, written by the host.
  uint64_t counts;   ///< uint64_t[rank_count]: how many each source has sent.
  uint64_t scratch;  ///< uint64_t[rank_count][kThreadsMax]: private to this rank.
  uint64_t inbox;    ///< RoutedToken[rank_count][tokens_max * kChoices]: by source, in token order.
  uint64_t results;  ///< uint32_t[tokens_max][kChoices][kLanes]: what the experts returned.
  uint64_t output;   ///< uint32_t[tokens_max][kLanes]: the sums.
  uint64_t bytes;    ///< Size of the window.
  uint64_t inbox_capacity;  ///< RoutedTokens per source.
};

CCO_HOST_DEVICE constexpr RoutingLayout routing_layout(uint64_t tokens_max, uint32_t rank_count) {
  constexpr uint64_t kLine = 128;
  const auto round_up = [](uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  RoutingLayout layout{};
  layout.inbox_capacity = tokens_max * kChoices;
  layout.ids = 0;
  layout.counts = round_up(layout.ids + 8 * tokens_max);
  layout.scratch = round_up(layout.counts + 8 * uint64_t{rank_count});
  layout.inbox = round_up(layout.scratch + 8 * uint64_t{rank_count} * kThreadsMax);
  layout.results =
      round_up(layout.inbox + sizeof(RoutedToken) * rank_count * layout.inbox_capacity);
  layout.output = round_up(layout.results + tokens_max * kChoices * kLanes * 4);
  layout.bytes = round_up(layout.output + tokens_max * kLanes * 4);
  return layout;
}

/// Signals of the device communicator that the main job uses; rank r's signals are counted by
/// sender.
CCO_HOST_DEVICE uint32_t exchange_signal(uint32_t sender) { return sender; }
CCO_HOST_DEVICE uint32_t dispatch_signal(uint32_t sender, uint32_t rank_count) {
  return rank_count + sender;
}
CCO_HOST_DEVICE uint32_t return_signal(uint32_t sender, uint32_t rank_count) {
  return 2 * rank_count + sender;
}
constexpr uint32_t kSignalsPerRank = 3;  ///< signal_count must be this times lsa_size.

}  // namespace cco::kernels
