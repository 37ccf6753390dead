// Where the parts of a communicator lie among its words in the control region.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cco/cco.h"
#include "client/src/group.h"
#include "device/transport/gda_provider.h"
#include "device/transport/sdma_provider.h"

namespace cco::client {

inline constexpr uint32_t kMaxSignals = 65536;
inline constexpr uint32_t kMaxBarriers = 4096;

struct CommOptions {
  uint32_t signal_count = 0;
  uint32_t barrier_count = 0;
  std::chrono::milliseconds timeout{};
  /// Set if asked for; the provider's name may be empty, and the offsets are comm_layout()'s.
  std::optional<SdmaPlan> sdma;
  std::string sdma_provider;
  std::optional<GdaPlan> gda;
  std::string gda_provider;
};

/// INVALID_ARGUMENT: a count over its limit, an unknown transport, or a variable that is set and
/// empty.
absl::StatusOr<CommOptions> resolve_comm_options(const cco_comm_options& options);

/// Every part is 256-byte aligned, so that no two share a cache line.
struct CommLayout {
  uint64_t signal_offset = 0;
  uint64_t barrier_offset = 0;     ///< The world barriers' LSA stages follow the user's.
  uint64_t proof_offset = 0;       ///< ProofWords; there if a transport was asked for.
  uint64_t descriptor_offset = 0;  ///< Each rank's own cco_device_comm.
  uint64_t size_bytes = 0;
};

/// Lays the parts out and writes the transports' offsets into their plans.
CommLayout lay_out(const Topology& topology, CommOptions* options);

/// The daemon compares sizes. Options that differ can take equally many bytes, so 1 to 255 more
/// bytes tell most of those apart.
uint64_t fingerprint(const CommOptions& options);

}  // namespace cco::client
