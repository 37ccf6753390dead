// Streams whose copies running kernels wait for.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// Bytes that warming up copies about.
inline constexpr uint64_t kWarmUpBytes = 64;

/// A stream that has done each kind of its work once. CUDA loads the kernels behind copies at their
/// first use, and loading waits for kernels that are running: for one that waits for the copy.
/// `scratch`: device address, 16-byte aligned, of kWarmUpBytes zero bytes that nobody uses yet;
/// they are zero again afterwards.
absl::StatusOr<std::unique_ptr<GpuStream>> open_engine_stream(GpuContext* context,
                                                              uint64_t scratch);

}  // namespace cco
