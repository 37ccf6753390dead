// The execution half of the cuda and hip drivers.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"
#include "device/runtime/vmm_dialect.h"

namespace cco {

/// `api` and `dialect` must outlive the context.
absl::StatusOr<std::unique_ptr<GpuContext>> create_vmm_context(const vmm::Api& api,
                                                               VmmDialect& dialect, int device,
                                                               const GpuDevice& facts);

}  // namespace cco
