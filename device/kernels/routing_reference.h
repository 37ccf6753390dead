// The routing problem on one CPU, without ranks: what the kernels' results must equal, bit for bit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "device/kernels/routing.h"

namespace cco::kernels {

using TokenVector = std::array<uint32_t, kLanes>;

inline TokenVector apply_expert(uint32_t expert, const TokenVector& input) {
  TokenVector output;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    output[lane] = expert_lane(expert, input[lane], input[(lane + 1) % kLanes]);
  }
  return output;
}

/// The 8 experts of a token, best first.
inline std::vector<uint32_t> choose_experts(uint64_t token_id) {
  std::vector<uint32_t> experts(kExperts);
  for (uint32_t expert = 0; expert < kExperts; ++expert) experts[expert] = expert;
  std::stable_sort(experts.begin(), experts.end(), [&](uint32_t a, uint32_t b) {
    return expert_score(token_id, a) > expert_score(token_id, b);
  });
  experts.resize(kChoices);
  return experts;
}

/// What combine() leaves in `output` for one token.
inline TokenVector route_reference(uint64_t token_id) {
  TokenVector input;
  for (uint32_t lane = 0; lane < kLanes; ++lane) input[lane] = token_lane(token_id, lane);
  TokenVector sum{};
  for (const uint32_t expert : choose_experts(token_id)) {
    const TokenVector result = apply_expert(expert, input);
    const uint32_t weight = choice_weight(expert_score(token_id, expert));
    for (uint32_t lane = 0; lane < kLanes; ++lane) sum[lane] += weight * result[lane];
  }
  return sum;
}

}  // namespace cco::kernels
