#include "device/runtime/vmm_dialect.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/runtime/fd_facts.h"

namespace cco {
namespace {

constexpr uint64_t kPreferredSlabBytes =
    64u << 20;  // Each slab costs a file descriptor: few and large.

absl::StatusCode code_of(vmm::Result result) {
  switch (result) {
    case vmm::kOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case vmm::kInvalidValue:
      return absl::StatusCode::kInvalidArgument;
    case vmm::kNotFound:
      return absl::StatusCode::kNotFound;
    case vmm::kNoDevice:
    case vmm::kInvalidDevice:
    case vmm::kPeerAccessUnsupported:
    case vmm::kNotSupported:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status vmm_error(const VmmDialect& dialect, std::string_view symbol, vmm::Result result,
                       std::string_view what) {
  const std::string text =
      absl::StrFormat("%s: %s: %s (%d)", what, symbol, dialect.error_name(result), result);
  // Libraries report it in many ways, "out of memory" among them.
  if (out_of_fds()) return absl::ResourceExhaustedError(absl::StrCat(text, "; ", fd_shortage()));
  return absl::Status(code_of(result), text);
}

absl::Status resolve(const DynamicLibrary& library, VmmVendor vendor, vmm::Api* api) {
  const bool cuda = vendor == VmmVendor::kCuda;
  const char* symbol = nullptr;
#define CCO_RESOLVE(field, cuda_name, hip_name, ...)                                        \
  symbol = cuda ? #cuda_name : #hip_name;                                                   \
  if (!api->field.resolve(library, symbol)) {                                               \
    return absl::FailedPreconditionError(absl::StrCat(                                      \
        library.path(), " has no ", symbol, ": too old, or not the library it should be")); \
  }
  CCO_VMM_CALLS(CCO_RESOLVE)
#undef CCO_RESOLVE
  return absl::OkStatus();
}

absl::StatusOr<GpuDevice> describe_device(const vmm::Api& api, VmmDialect& dialect, int device,
                                          bool has_vmm, int granularity) {
  std::array<char, 32> pci{};
  std::array<char, 256> name{};
  size_t total = 0;
  size_t granularity_bytes = 0;
  const vmm::AllocationProp prop = {.type = vmm::kAllocationPinned,
                                    .requested_handle_types = vmm::kHandlePosixFd,
                                    .location = {vmm::kLocationDevice, device},
                                    .win32_metadata = nullptr,
                                    .compression_type = 0,
                                    .gpu_direct_rdma_capable = 0,
                                    .usage = 0,
                                    .reserved = {}};
  const auto failed = [&](std::string_view symbol, vmm::Result result) {
    return vmm_error(dialect, symbol, result, absl::StrFormat("look at device %d", device));
  };
  if (const auto result = api.device_pci(pci.data(), pci.size(), device); result != vmm::kSuccess) {
    return failed(api.device_pci.symbol(), result);
  }
  if (const auto result = api.device_name(name.data(), name.size(), device);
      result != vmm::kSuccess) {
    return failed(api.device_name.symbol(), result);
  }
  if (const auto result = api.device_total(&total, device); result != vmm::kSuccess) {
    return failed(api.device_total.symbol(), result);
  }
  if (has_vmm) {
    const auto result = dialect.run(
        device, [&] { return api.granularity(&granularity_bytes, &prop, granularity); });
    if (result != vmm::kSuccess) return failed(api.granularity.symbol(), result);
  }
  GpuDevice facts;
  facts.pci_bus_id = absl::AsciiStrToLower(pci.data());
  facts.name = name.data();
  facts.total_bytes = total;
  facts.granularity_bytes = granularity_bytes;
  facts.preferred_slab_bytes = kPreferredSlabBytes;
  facts.has_vmm = has_vmm;
  return facts;
}

}  // namespace cco
