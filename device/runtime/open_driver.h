// Chooses and opens a GPU driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

enum class DriverKind { kAuto, kHost, kCuda, kHip };

struct DriverOptions {
  DriverKind kind = DriverKind::kAuto;
  uint32_t host_devices = 8;  ///< How many devices the host driver shows, 1..64.
  uint64_t host_bytes_per_device =
      0;  ///< Memory of each; 0: half of this machine's (or cgroup's) memory, shared out.
  /// With `hides_gpus`, UUIDs of the only GPUs that the library of kCuda or kHip may open; with
  /// none it is not opened at all. kHost shows all its devices.
  bool hides_gpus = false;
  std::vector<std::string> visible_gpus = {};
};

/// "auto", "host", "cuda", "hip"; INVALID_ARGUMENT names the choices.
absl::StatusOr<DriverKind> parse_driver_kind(std::string_view text);

/// kAuto takes cuda or hip, whichever has a library and at least one device with virtual memory
/// management, else host. An explicit kind that cannot be opened is an error that says what was
/// tried.
absl::StatusOr<std::unique_ptr<GpuDriver>> open_driver(const DriverOptions& options);

}  // namespace cco
