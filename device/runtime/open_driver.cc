#include "device/runtime/open_driver.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/cuda_driver.h"
#include "device/runtime/hip_driver.h"
#include "device/runtime/host_driver.h"

namespace cco {
namespace {

using Opened = absl::StatusOr<std::unique_ptr<GpuDriver>>;

/// The driver if it can carry a heap; null to go on looking. An error only if the environment names
/// a library and it does not work: what somebody set is never passed over.
Opened try_driver(Opened (*open)(), const char* variable) {
  Opened driver = open();
  if (!driver.ok()) {
    if (std::getenv(variable) != nullptr) return driver.status();
    return nullptr;
  }
  const auto& devices = (*driver)->devices();
  if (std::none_of(devices.begin(), devices.end(),
                   [](const GpuDevice& device) { return device.has_vmm; })) {
    return nullptr;
  }
  return driver;
}

}  // namespace

absl::StatusOr<DriverKind> parse_driver_kind(std::string_view text) {
  if (text == "auto") return DriverKind::kAuto;
  if (text == "host") return DriverKind::kHost;
  if (text == "cuda") return DriverKind::kCuda;
  if (text == "hip") return DriverKind::kHip;
  return absl::InvalidArgumentError(
      absl::StrFormat("driver \"%s\": choose auto, host, cuda or hip", text));
}

absl::StatusOr<std::unique_ptr<GpuDriver>> open_driver(const DriverOptions& options) {
  if (options.kind == DriverKind::kCuda) return open_cuda_driver();
  if (options.kind == DriverKind::kHip) return open_hip_driver();
  if (options.kind == DriverKind::kAuto) {
    CCO_ASSIGN_OR_RETURN(std::unique_ptr<GpuDriver> cuda,
                         try_driver(open_cuda_driver, "CCO_CUDA_LIBRARY"));
    if (cuda != nullptr) return cuda;
    CCO_ASSIGN_OR_RETURN(std::unique_ptr<GpuDriver> hip,
                         try_driver(open_hip_driver, "CCO_HIP_LIBRARY"));
    if (hip != nullptr) return hip;
  }
  return HostDriver::create(options.host_devices, options.host_bytes_per_device);
}

}  // namespace cco
