#include "device/runtime/open_driver.h"

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/host_driver.h"

namespace cco {

absl::StatusOr<DriverKind> parse_driver_kind(std::string_view text) {
  if (text == "auto") return DriverKind::kAuto;
  if (text == "host") return DriverKind::kHost;
  if (text == "cuda") return DriverKind::kCuda;
  if (text == "hip") return DriverKind::kHip;
  return absl::InvalidArgumentError(
      absl::StrFormat("driver \"%s\": choose auto, host, cuda or hip", text));
}

absl::StatusOr<std::unique_ptr<GpuDriver>> open_driver(const DriverOptions& options) {
  return HostDriver::create(options.host_devices, options.host_bytes_per_device);
}

}  // namespace cco
