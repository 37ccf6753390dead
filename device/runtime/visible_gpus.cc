#include "device/runtime/visible_gpus.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cco {

absl::Status check_selectable(const std::vector<GpuDevice>& devices) {
  for (const GpuDevice& device : devices) {
    if (absl::StartsWith(device.uuid, "GPU-") && !absl::StrContains(device.uuid, '.')) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the driver's library cannot be told to open GPU ", device.uuid,
                     " and not another: a partition, or one without a serial number"));
  }
  return absl::OkStatus();
}

VisibleGpus::VisibleGpus(std::string_view driver, const std::vector<std::string>& uuids) {
  const std::string list = absl::StrJoin(uuids, ",");
  if (driver == "cuda") {
    replace("CUDA_VISIBLE_DEVICES", list);
    return;
  }
  replace("ROCR_VISIBLE_DEVICES", list);
  // These select by ordinal among what ROCR_VISIBLE_DEVICES leaves. Whatever they chose, the list
  // has it: it was made from what the library showed under them.
  for (const char* ordinals : {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"})
    replace(ordinals, std::nullopt);
}

void VisibleGpus::replace(const char* variable, const std::optional<std::string>& value) {
  const char* now = std::getenv(variable);
  before_.emplace_back(variable, now == nullptr ? std::nullopt : std::optional<std::string>(now));
  if (value.has_value()) {
    ::setenv(variable, value->c_str(), 1);
  } else {
    ::unsetenv(variable);
  }
}

VisibleGpus::~VisibleGpus() {
  for (const auto& [variable, value] : before_) {
    if (value.has_value()) {
      ::setenv(variable, value->c_str(), 1);
    } else {
      ::unsetenv(variable);
    }
  }
}

}  // namespace cco
