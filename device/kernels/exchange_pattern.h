// The bytes that the exchange kernel sends, for kernels and for the check on the CPU.
#pragma once

#include "cco/device/platform.h"

namespace cco::kernels {

/// Mixes all bits of `value` into all bits of the result (the finaliser of SplitMix64: Steele, Lea
/// and Flood, "Fast splittable pseudorandom number generators", 2014).
CCO_HOST_DEVICE uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/// Bytes 8 * index .. 8 * index + 7 of what `rank` sends in `round`, lowest first. Every peer gets
/// the same bytes.
CCO_HOST_DEVICE uint64_t exchange_word(uint32_t rank, uint64_t round, uint64_t index) {
  return mix(mix(mix(round) + rank) + index);
}

CCO_HOST_DEVICE uint8_t exchange_byte(uint32_t rank, uint64_t round, uint64_t offset) {
  return static_cast<uint8_t>(exchange_word(rank, round, offset / 8) >> (offset % 8 * 8));
}

}  // namespace cco::kernels
