#include "device/runtime/open_driver.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/closed_driver.h"
#include "device/runtime/cuda_driver.h"
#include "device/runtime/hip_driver.h"
#include "device/runtime/host_driver.h"
#include "device/runtime/visible_gpus.h"

namespace cco {
namespace {

using Opened = absl::StatusOr<std::unique_ptr<GpuDriver>>;

/// The driver if it can carry a heap; null to go on looking. An error if the environment names a
/// library and it does not serve: what somebody set is never passed over.
Opened try_driver(Opened (*open)(), const char* variable) {
  const bool is_named = std::getenv(variable) != nullptr;
  Opened driver = open();
  if (!driver.ok()) {
    if (is_named) return driver;
    return nullptr;
  }
  const auto& devices = (*driver)->devices();
  const auto has_vmm = [](const GpuDevice& device) { return device.has_vmm; };
  if (std::any_of(devices.begin(), devices.end(), has_vmm)) return driver;
  if (!is_named) return nullptr;
  return absl::FailedPreconditionError(
      absl::StrFormat("%s is set, but none of the %d devices has virtual memory management for a "
                      "heap (%s); unset it, or choose a driver",
                      variable, devices.size(), (*driver)->version()));
}

Opened open_only(DriverKind kind, const std::vector<std::string>& gpus) {
  const char* name = kind == DriverKind::kCuda ? "cuda" : "hip";
  if (gpus.empty()) return make_closed_driver(name);
  const VisibleGpus scope(name, gpus);
  return kind == DriverKind::kCuda ? open_cuda_driver() : open_hip_driver();
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
  const bool has_library = options.kind == DriverKind::kCuda || options.kind == DriverKind::kHip;
  if (has_library && options.hides_gpus) {
    return open_only(options.kind, options.visible_gpus);
  }
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
