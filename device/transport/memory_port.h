// Port: how an engine that is software reaches memory that kernels reach.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// Addresses are device addresses of this process: of HBM, own or a peer's, or of registered host
/// memory. Every call has taken effect, for kernels and peers, when it returns. Thread safe.
class MemoryPort {
 public:
  virtual ~MemoryPort() = default;

  virtual absl::Status copy(uint64_t destination, uint64_t source, uint64_t bytes) = 0;
  virtual absl::Status read(absl::Span<uint8_t> into, uint64_t source) = 0;
  virtual absl::Status write(uint64_t destination, absl::Span<const uint8_t> from) = 0;
  /// Adds to an aligned word and returns what it was. Releases what earlier calls wrote. Atomic
  /// among the ports of all processes; on `host`, also among kernels.
  virtual absl::StatusOr<uint64_t> fetch_add(uint64_t address, uint64_t delta) = 0;
  /// Stores `desired` in an aligned word that holds `expected`; returns what it held. As
  /// fetch_add() otherwise.
  virtual absl::StatusOr<uint64_t> compare_swap(uint64_t address, uint64_t expected,
                                                uint64_t desired) = 0;
};

/// Where device addresses are addresses of this CPU.
std::unique_ptr<MemoryPort> open_host_port();

/// `context` must outlive the port. `is_host`: that of open_host_port(); else `scratch` is as for
/// open_engine_stream().
absl::StatusOr<std::unique_ptr<MemoryPort>> open_memory_port(GpuContext* context, bool is_host,
                                                             uint64_t scratch);

}  // namespace cco
