// Port: one rank's SDMA queues. Providers: user-queue (hardware), copy-engine, host (software
// engine).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cco/device/abi_sdma.h"
#include "device/transport/transport_team.h"

namespace cco {

struct SdmaPlan {
  uint32_t queue_count = 2;  ///< Per peer, 1..CCO_SDMA_MAX_QUEUES.
  /// Where in the communicator's words its parts lie; sdma_words_bytes() each, 256-byte aligned.
  uint64_t signal_offset = 0;
  uint64_t state_offset = 0;
};

/// Signals: read and raised by peers. State: this rank's own, for what kernels read and change.
uint64_t sdma_signal_bytes(uint32_t lsa_size, uint32_t queue_count);
uint64_t sdma_state_bytes(uint32_t lsa_size, uint32_t queue_count);

/// Destroyed after the kernels that use it; its threads have ended then.
class SdmaProvider {
 public:
  virtual ~SdmaProvider() = default;
  virtual std::string_view name() const = 0;  ///< "user-queue", "copy-engine", "host".
  /// For people: what stands behind it, with its limits.
  virtual std::string describe() const = 0;
  /// Address of the cco_sdma_device.
  virtual uint64_t device() const = 0;
  /// OK, or the first error that a queue has met.
  virtual absl::Status status() const { return absl::OkStatus(); }
  /// The signals in memory are about to be zeroed: counting starts over. Queues are drained, and no
  /// kernel uses them.
  virtual void restart_signals() {}
};

/// `name`: a provider; or "", then the best that works, and `passed_over` tells what was tried
/// before it and why it failed. FAILED_PRECONDITION: none does, with the same text.
/// INVALID_ARGUMENT: no provider of that name (it lists them), or a plan out of range.
absl::StatusOr<std::unique_ptr<SdmaProvider>> open_sdma(std::string_view name,
                                                        const TransportTeam& team,
                                                        const SdmaPlan& plan,
                                                        std::string* passed_over);

}  // namespace cco
