// The `cuda` driver: NVIDIA GPUs through libcuda, opened at run time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// $CCO_CUDA_LIBRARY, else libcuda.so.1. NOT_FOUND: it is not installed. FAILED_PRECONDITION: it
/// is, but is unusable or sees no device. Creates no CUDA context: only open() does.
absl::StatusOr<std::unique_ptr<GpuDriver>> open_cuda_driver();

}  // namespace cco
