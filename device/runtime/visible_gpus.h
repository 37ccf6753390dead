// Which GPUs a vendor's library may see, and so open: its own environment variables say that, by
// UUID.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// OK if the variables can name each of these GPUs. FAILED_PRECONDITION: a partition of an AMD GPU,
/// or one without a serial number.
absl::Status check_selectable(const std::vector<GpuDevice>& devices);

/// Sets the variables of `driver` ("cuda", "hip") until it goes; for one thread, around the opening
/// of the library, which reads them once.
class VisibleGpus {
 public:
  VisibleGpus(std::string_view driver, const std::vector<std::string>& uuids);
  ~VisibleGpus();
  VisibleGpus(const VisibleGpus&) = delete;
  VisibleGpus& operator=(const VisibleGpus&) = delete;

 private:
  void replace(const char* variable, const std::optional<std::string>& value);
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

}  // namespace cco
