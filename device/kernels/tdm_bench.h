// What a launch of tdm_bench.cc's kernels has to agree on with them.
#pragma once

#include "cco/device/tdm.h"

namespace cco::kernels {

constexpr uint32_t kTdmStages = 6;

/// Dynamic shared memory per block for stages of `stage_bytes`, a multiple of 128; of all kernels
/// of the module.
CCO_HOST_DEVICE constexpr uint32_t tdm_shared_bytes(uint32_t stage_bytes) {
  return device::Tdm<device::BlockCoop, kTdmStages>::shared_bytes(stage_bytes);
}

}  // namespace cco::kernels
