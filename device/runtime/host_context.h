// Execution on the host: kernels run on real threads, each stream in order on a thread of its own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

absl::StatusOr<std::unique_ptr<GpuContext>> create_host_context(int device);

/// RESOURCE_EXHAUSTED: the process cannot start one more thread.
absl::StatusOr<std::unique_ptr<GpuStream>> create_host_stream();

}  // namespace cco
