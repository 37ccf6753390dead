// Port: one rank's GDA contexts. Providers: proxy, and mlx5, bnxt, ionic over software NICs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cco/device/abi_gda.h"
#include "device/transport/transport_team.h"

namespace cco {

struct GdaPlan {
  uint32_t connection = CCO_GDA_CONNECT_FULL;
  uint32_t context_count = 4;  ///< 1..CCO_GDA_MAX_CONTEXTS.
  uint32_t signal_count = 16;
  uint32_t counter_count = 16;
  uint32_t queue_depth = 0;    ///< Operations per context, a power of two, 16..32768; 0: 1024.
  int32_t traffic_class = -1;  ///< 0..255; -1: the provider's default.
  uint32_t rail_barrier_count = 0;
  uint32_t world_barrier_count = 0;
  uint32_t world_barrier_first = 0;  ///< LSA barrier that serves world barrier 0.
  /// Where in the communicator's words its parts lie, 256-byte aligned.
  uint64_t signal_offset = 0;  ///< gda_signal_bytes(): written by peers.
  uint64_t state_offset = 0;   ///< gda_state_bytes(): shadows, counters, epochs, queue state.
};

/// Enough for every provider.
uint64_t gda_signal_bytes(const GdaPlan& plan, uint32_t world_size, uint32_t lsa_size);
uint64_t gda_state_bytes(const GdaPlan& plan, uint32_t world_size, uint32_t lsa_size);

/// Destroyed after the kernels that use it; its threads have ended then.
class GdaProvider {
 public:
  virtual ~GdaProvider() = default;
  virtual std::string_view name() const = 0;  ///< "proxy", "mlx5", "bnxt", "ionic".
  /// For people: what stands behind it, with its limits.
  virtual std::string describe() const = 0;
  /// Address of the cco_gda_device.
  virtual uint64_t device() const = 0;
  /// OK, or the first error that a queue has reported, with the peer.
  virtual absl::Status status() const = 0;
  /// As SdmaProvider's.
  virtual void restart_signals() {}
};

/// `name`: a provider; or "", then the best that works. Errors as open_sdma().
absl::StatusOr<std::unique_ptr<GdaProvider>> open_gda(std::string_view name,
                                                      const TransportTeam& team,
                                                      const GdaPlan& plan);

}  // namespace cco
