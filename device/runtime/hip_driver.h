// The `hip` driver: AMD GPUs through libamdhip64, opened at run time. ROCm 6.2 to 7.x; 5.7 to 6.1
// open, but cannot share memory between processes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// $CCO_HIP_LIBRARY, else libamdhip64.so.7, .6, .5. NOT_FOUND: none is installed.
/// FAILED_PRECONDITION: it is older than ROCm 5.7, unusable, or sees no device.
///
/// Memory is made reachable for network adapters where the GPU allows it. $CCO_GDR_CAPABLE=0 turns
/// that off: needed on gfx942 where several ranks' hipMemSetAccess answers "invalid argument" (seen
/// by ROCm/mori).
absl::StatusOr<std::unique_ptr<GpuDriver>> open_hip_driver();

}  // namespace cco
