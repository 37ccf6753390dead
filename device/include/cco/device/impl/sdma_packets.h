// Packets of AMD's copy engines, in units of 32 bytes: a ring is a multiple of that, so no packet
// ever lies across its end. Layouts: ROCr, sdma_registers.h; Linux, sdma_v7_1_0_pkt_open.h.
#pragma once

#include "cco/device/abi_sdma.h"
#include "cco/device/platform.h"

namespace cco::device::impl {

constexpr uint64_t kSdmaUnitBytes = 32;
/// Of 2^30 that the field could count: keeps the chunks of a long copy 32-byte aligned.
constexpr uint64_t kSdmaLargestCopy = 0x3fffffe0;

constexpr uint32_t kSdmaNop = 0x00;
constexpr uint32_t kSdmaCopyLinear = 0x01;
constexpr uint32_t kSdmaFence = 0x05;
constexpr uint32_t kSdmaAtomic = 0x0a;

constexpr uint32_t kSdmaAtomicAdd64 = 0x2fu << 25;
// gfx1250 alone. Without npd the engine ignores a copy's scopes.
constexpr uint32_t kSdmaCopyNpd = 1u << 28;
constexpr uint32_t kSdmaCopyScopes = 3u << 18 | 3u << 26;  // System: destination and source.
constexpr uint32_t kSdmaAtomicScope = 3u << 20;
constexpr uint32_t kSdmaFenceUncached = 3u << 16;
constexpr uint32_t kSdmaFenceScope = 3u << 24;

struct SdmaUnit {
  uint32_t dwords[8];
};

CCO_HOST_DEVICE constexpr uint32_t low_half(uint64_t value) { return static_cast<uint32_t>(value); }
CCO_HOST_DEVICE constexpr uint32_t high_half(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

/// COPY_LINEAR of 1..kSdmaLargestCopy bytes, and a NOP: an engine that overlaps copies ends them
/// before it goes on.
CCO_HOST_DEVICE constexpr SdmaUnit sdma_copy(uint32_t packets, uint64_t destination,
                                             uint64_t source, uint64_t bytes) {
  const bool scoped = packets == CCO_SDMA_PACKETS_GFX1250;
  return SdmaUnit{{kSdmaCopyLinear | (scoped ? kSdmaCopyNpd : 0), low_half(bytes - 1),
                   scoped ? kSdmaCopyScopes : 0, low_half(source), high_half(source),
                   low_half(destination), high_half(destination), kSdmaNop}};
}

/// ATOMIC: adds to an aligned 64-bit word.
CCO_HOST_DEVICE constexpr SdmaUnit sdma_add(uint32_t packets, uint64_t address, uint64_t delta) {
  const bool scoped = packets == CCO_SDMA_PACKETS_GFX1250;
  return SdmaUnit{{kSdmaAtomic | kSdmaAtomicAdd64 | (scoped ? kSdmaAtomicScope : 0),
                   low_half(address), high_half(address), low_half(delta), high_half(delta), 0, 0,
                   0}};
}

/// Two FENCEs: `value` into an aligned 64-bit word that this queue alone writes and that only
/// grows. The low half goes first, so that what is read in between is too little, never too much.
CCO_HOST_DEVICE constexpr SdmaUnit sdma_fence(uint32_t packets, uint64_t address, uint64_t value) {
  const bool scoped = packets == CCO_SDMA_PACKETS_GFX1250;
  const uint32_t header = kSdmaFence | (scoped ? kSdmaFenceUncached | kSdmaFenceScope : 0);
  return SdmaUnit{{header, low_half(address), high_half(address), low_half(value), header,
                   low_half(address + 4), high_half(address + 4), high_half(value)}};
}

/// Fills a unit.
CCO_HOST_DEVICE constexpr SdmaUnit sdma_nop() {
  return SdmaUnit{{kSdmaNop | 7u << 16, 0, 0, 0, 0, 0, 0, 0}};
}

}  // namespace cco::device::impl
