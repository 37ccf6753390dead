// Reads packets as a copy engine does, but refuses whatever a real one might take differently.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cco/device/abi_sdma.h"

namespace cco {

struct SdmaPacket {
  enum class Kind { kNop, kCopy, kAdd, kFence };
  Kind kind = Kind::kNop;
  uint32_t dwords = 1;       ///< Its length.
  uint64_t destination = 0;  ///< Of kCopy; the word of kAdd and kFence.
  uint64_t source = 0;       ///< Of kCopy.
  uint64_t value = 0;        ///< Bytes of kCopy, addend of kAdd, 32 bits of kFence.
};

/// The first packet of `dwords`, which ends where the ring does or nothing more was rung.
/// `packets`: CCO_SDMA_PACKETS_*. INVALID_ARGUMENT: not a packet that kernels of ours write (the
/// message says what is wrong with it).
absl::StatusOr<SdmaPacket> decode_sdma(uint32_t packets, absl::Span<const uint32_t> dwords);

}  // namespace cco
