#include "device/runtime/hip_driver.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/hip_api.h"
#include "device/runtime/hip_dialect.h"
#include "device/runtime/vmm_driver.h"

namespace cco {
namespace {

absl::Status resolve_hip(const DynamicLibrary& library, hip::Api* hip) {
#define CCO_RESOLVE(name, ...)                                                           \
  if (!hip->name.resolve(library, #name)) {                                              \
    return absl::FailedPreconditionError(absl::StrCat(                                   \
        library.path(), " has no " #name ": too old, or not the library it should be")); \
  }
  CCO_HIP_CALLS(CCO_RESOLVE)
#undef CCO_RESOLVE
#define CCO_TRY(name, ...) hip->name.resolve(library, #name);
  CCO_HIP_OPTIONAL_CALLS(CCO_TRY)
#undef CCO_TRY
  return absl::OkStatus();
}

/// HIP fills the UUID with the 16 hexadecimal characters of the GPU's serial number, which is what
/// ROCm's own tools and HIP_VISIBLE_DEVICES take after "GPU-"; without one it is "XX" (ROCm/clr,
/// rocclr/device/rocm/rocdevice.cpp). Partitions of one GPU share it and differ in the PCI
/// function.
std::string uuid_text(const vmm::Uuid& uuid, const std::string& pci_bus_id) {
  for (const char byte : uuid.bytes) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(byte)))
      return absl::StrCat("PCI-", pci_bus_id);
  }
  std::string text = "GPU-" + std::string(uuid.bytes, sizeof uuid.bytes);
  const size_t dot = pci_bus_id.rfind('.');
  if (dot != std::string::npos && pci_bus_id.substr(dot) != ".0") text += pci_bus_id.substr(dot);
  return text;
}

/// "gfx942" of "gfx942:sramecc+:xnack-"; empty if the runtime does not tell.
std::string arch_of(const hip::Api& hip, int device) {
  hip::DeviceProp prop{};
  const bool versioned = static_cast<bool>(hip.hipGetDevicePropertiesR0600);
  const vmm::Result result = versioned ? hip.hipGetDevicePropertiesR0600(&prop, device)
                                       : hip.hipGetDeviceProperties(&prop, device);
  if (result != vmm::kSuccess) return "";
  const char* arch = prop.bytes + (versioned ? hip::kArchOffset : hip::kArchOffsetOld);
  const std::string text(arch, ::strnlen(arch, hip::kArchBytes));
  return text.rfind("gfx", 0) == 0 ? text.substr(0, text.find(':')) : "";
}

/// The attribute is true from 5.7 on, but before 6.2 hipMemCreate refuses memory that can be
/// exported (ROCm/clr, hipamd/src/hip_vm.cpp). Hence a trial; what else may go wrong in it says
/// nothing about the ability.
bool can_share(const vmm::Api& api, HipDialect& dialect, int device) {
  int attribute = 0;
  const auto result = api.device_attribute(&attribute, hip::kAttributeVmmSupported, device);
  if (result != vmm::kSuccess || attribute == 0) return false;
  return dialect.try_creation(device) != vmm::kNotSupported;
}

absl::StatusOr<GpuDevice> describe_hip_device(const vmm::Api& api, const hip::Api& hip,
                                              HipDialect& dialect, int device) {
  vmm::Uuid uuid{};
  if (const auto result = api.device_uuid(&uuid, device); result != vmm::kSuccess) {
    return vmm_error(dialect, api.device_uuid.symbol(), result,
                     absl::StrFormat("look at device %d", device));
  }
  CCO_ASSIGN_OR_RETURN(GpuDevice facts,
                       describe_device(api, dialect, device, can_share(api, dialect, device),
                                       vmm::kGranularityRecommended));
  facts.uuid = uuid_text(uuid, facts.pci_bus_id);
  facts.arch = arch_of(hip, device);
  if (facts.arch.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s (%s): the runtime does not name its architecture (gfx…) where ROCm 5.7 to 7.2 do",
        facts.uuid, facts.pci_bus_id));
  }
  return facts;
}

absl::StatusOr<bool> rdma_wanted() {
  const char* setting = std::getenv("CCO_GDR_CAPABLE");
  if (setting == nullptr || std::string_view(setting) == "1") return true;
  if (std::string_view(setting) == "0") return false;
  return absl::InvalidArgumentError(
      absl::StrCat("CCO_GDR_CAPABLE=\"", setting, "\": it takes 0 or 1"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDriver>> open_hip_driver() {
  CCO_ASSIGN_OR_RETURN(const bool rdma, rdma_wanted());
  CCO_ASSIGN_OR_RETURN(
      const DynamicLibrary library,
      DynamicLibrary::open("CCO_HIP_LIBRARY",
                           {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}));
  vmm::Api api;
  hip::Api hip;
  CCO_RETURN_IF_ERROR(resolve(library, VmmVendor::kHip, &api));
  CCO_RETURN_IF_ERROR(resolve_hip(library, &hip));
  int version = 0;
  if (api.library_version(&version) != vmm::kSuccess || version < hip::kVersionOldest) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is HIP runtime %d; ROCm 6.2 to 7.x are supported, and those before "
                        "5.7 (%d) order hipMemAllocationProp differently",
                        library.path(), version, hip::kVersionOldest));
  }

  int count = 0;
  vmm::Result result = api.initialise(0);
  if (result == vmm::kSuccess) result = api.device_count(&count);
  if (result != vmm::kSuccess || count == 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s sees no AMD GPU: %s (%d); check rocminfo, /dev/kfd's permissions, "
                        "HIP_VISIBLE_DEVICES and "
                        "ROCR_VISIBLE_DEVICES",
                        library.path(), hip.hipGetErrorName(result), result));
  }
  auto dialect = std::make_unique<HipDialect>(
      api, hip,
      HipDialect::Options{
          .library = library.path(), .version = version, .device_count = count, .rdma = rdma});
  std::vector<GpuDevice> devices;
  for (int device = 0; device < count; ++device) {
    CCO_ASSIGN_OR_RETURN(GpuDevice facts, describe_hip_device(api, hip, *dialect, device));
    devices.push_back(std::move(facts));
  }
  dialect->name_devices(devices);
  return std::make_unique<VmmDriver>(api, std::move(dialect), std::move(devices), library.file());
}

}  // namespace cco
