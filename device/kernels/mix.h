// What a launch of mix.cc has to agree on with it: four blocks, each sends its part of the window
// to the next rank by a transport of its own.
#pragma once

#include "cco/device/tdm.h"

namespace cco::kernels {

/// Block r plays role r. Its part is made at source(), and sent to destination().
enum MixRole : uint32_t { kMixLsa, kMixSdma, kMixTdm, kMixGda, kMixRoles };

constexpr uint32_t kMixAllRoles = (1u << kMixRoles) - 1;
constexpr uint32_t kMixStages = 2;
constexpr uint32_t kMixTileRows = 16;
constexpr uint32_t kMixTileRowBytes = 512;
constexpr uint32_t kMixPitchBytes = 4 * kMixTileRowBytes;
/// A role's part is a multiple of this: rows of kMixPitchBytes, in tiles.
constexpr uint32_t kMixPartUnit = kMixTileRows * kMixPitchBytes;

CCO_HOST_DEVICE constexpr uint32_t mix_shared_bytes() {
  return device::Tdm<device::BlockCoop, kMixStages>::shared_bytes(kMixTileRows * kMixTileRowBytes);
}
CCO_HOST_DEVICE constexpr uint64_t mix_source(uint32_t role, uint64_t part_bytes) {
  return role * part_bytes;
}
CCO_HOST_DEVICE constexpr uint64_t mix_destination(uint32_t role, uint64_t part_bytes) {
  return (kMixRoles + role) * part_bytes;
}
/// Word `index` of what `rank` sends in `round`.
CCO_HOST_DEVICE constexpr uint64_t mix_word(uint32_t rank, uint32_t role, uint64_t round,
                                            uint64_t index) {
  return ((uint64_t{rank} << 8 | role) << 48 | round << 32 | index) * 0x9e3779b97f4a7c15;
}

}  // namespace cco::kernels
