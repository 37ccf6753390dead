// SDMA by user queues: rings that kernels fill with packets. What every such provider shares, and
// the provider "host", a software engine behind the rings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cco/device/impl/sdma_packets.h"
#include "device/transport/sdma_engine.h"
#include "device/transport/sdma_provider.h"

namespace cco {

/// Where one queue lies, in device addresses of this process.
struct UserQueuePlaces {
  uint64_t ring = 0;
  uint64_t ring_bytes = 0;
  uint64_t read_index = 0;
  uint64_t write_index = 0;
  uint64_t doorbell = 0;
};

/// A ring has room for two submissions of a whole wave: 64 copies with two signals each.
inline constexpr uint64_t kSmallestSdmaRing = 16384;

/// Lays out this rank's state for kernels; returns the address of the cco_sdma_device. `queues`: by
/// peer, then queue.
absl::StatusOr<uint64_t> write_user_queue_tables(const TransportTeam& team, const SdmaPlan& plan,
                                                 uint32_t packets, uint64_t largest_copy,
                                                 const std::vector<UserQueuePlaces>& queues);

struct HostSdmaOptions {
  uint64_t ring_bytes = 65536;  ///< A power of two, kSmallestSdmaRing or more.
  uint64_t largest_copy = device::impl::kSdmaLargestCopy;  ///< A multiple of 32, at most that.
  uint32_t packets = CCO_SDMA_PACKETS_GFX9;
  SdmaSchedule schedule = {};
};

/// Provider "host". Works on every driver. INVALID_ARGUMENT: options out of range.
absl::StatusOr<std::unique_ptr<SdmaProvider>> open_host_sdma(const TransportTeam& team,
                                                             const SdmaPlan& plan,
                                                             const HostSdmaOptions& options = {});

}  // namespace cco
