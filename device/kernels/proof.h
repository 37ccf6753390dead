// Where transports prove themselves among a communicator's words, for kernels and hosts.
#pragma once

#include <cstdint>

#include "cco/device/platform.h"

namespace cco::kernels {

/// What one rank uses for one transport; `offset` is in `control`. All ranks have the same.
struct ProofWords {
  static constexpr uint64_t kNonceBytes = 16;

  uint64_t offset;
  uint32_t world_size;
  uint32_t reserved;

  CCO_HOST_DEVICE uint64_t verdict() const { return offset; }
  CCO_HOST_DEVICE uint64_t nonce() const { return offset + 16; }
  /// What `sender` has put here.
  CCO_HOST_DEVICE uint64_t inbox(uint32_t sender) const {
    return offset + 32 + kNonceBytes * sender;
  }
  /// What was read back from `peer`.
  CCO_HOST_DEVICE uint64_t echo(uint32_t peer) const {
    return inbox(world_size) + kNonceBytes * peer;
  }
  /// proof_result() for `peer`; 0: sound.
  CCO_HOST_DEVICE uint64_t result(uint32_t peer) const { return echo(world_size) + 8 * peer; }
  CCO_HOST_DEVICE uint64_t bytes() const { return result(world_size) - offset; }
};

/// Which step of a proof fails, at which queue or context.
enum class ProofStep : uint32_t { kNone = 0, kPut, kSignal, kRead, kContent };
CCO_HOST_DEVICE uint64_t proof_result(ProofStep step, uint32_t queue, uint32_t wait_status) {
  return uint64_t{queue} << 32 | uint64_t{wait_status} << 16 | static_cast<uint32_t>(step);
}

}  // namespace cco::kernels
