#include "device/runtime/cuda_driver.h"

#include <sys/stat.h>

#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/cuda_api.h"
#include "device/runtime/fd_facts.h"
#include "device/runtime/vmm_dialect.h"
#include "device/runtime/vmm_driver.h"

namespace cco {
namespace {

constexpr uint32_t kGlobalTimerKhz = 1'000'000;  // ticks() reads %globaltimer, in nanoseconds.

/// The process's shared context on one device, current only around calls.
class PrimaryContext final : public VmmScope {
 public:
  PrimaryContext(const cuda::Api& cuda, int device, cuda::Context context)
      : cuda_(cuda), device_(device), context_(context) {}
  ~PrimaryContext() override { cuda_.cuDevicePrimaryCtxRelease_v2(device_); }

  vmm::Result run(absl::FunctionRef<vmm::Result()> call) override {
    if (const auto result = cuda_.cuCtxPushCurrent_v2(context_); result != vmm::kSuccess)
      return result;
    const vmm::Result result = call();
    cuda::Context popped = nullptr;
    cuda_.cuCtxPopCurrent_v2(&popped);
    return result;
  }

 private:
  const cuda::Api& cuda_;
  const int device_;
  const cuda::Context context_;
};

class CudaDialect final : public VmmDialect {
 public:
  struct DeviceFacts {
    bool rdma = false;
    uint32_t multiprocessor_count = 1;
  };

  CudaDialect(const cuda::Api& cuda, std::string version)
      : cuda_(cuda), version_(std::move(version)) {}

  void add_device(DeviceFacts facts) {
    facts_.push_back(facts);
    fallbacks_.emplace_back();
  }

  std::string_view name() const override { return "cuda"; }
  std::string version() const override { return version_; }
  std::string error_name(vmm::Result result) const override {
    const char* name = nullptr;
    return cuda_.cuGetErrorName(result, &name) == vmm::kSuccess && name != nullptr
               ? name
               : "unknown error";
  }

  /// Memory calls need no context. Should a driver version think otherwise, it gets the primary
  /// one.
  vmm::Result run(int device, absl::FunctionRef<vmm::Result()> call) override {
    const vmm::Result result = call();
    if (result != vmm::kInvalidContext) return result;
    const std::lock_guard lock(mutex_);
    std::unique_ptr<VmmScope>& fallback = fallbacks_[static_cast<size_t>(device)];
    if (fallback == nullptr) {
      absl::StatusOr<std::unique_ptr<VmmScope>> opened = open_scope(device);
      if (!opened.ok()) return result;
      fallback = *std::move(opened);
    }
    return fallback->run(call);
  }

  vmm::AllocationProp properties(int device, MemoryKind) override {
    return {.type = vmm::kAllocationPinned,
            .requested_handle_types = vmm::kHandlePosixFd,
            .location = {vmm::kLocationDevice, device},
            .win32_metadata = nullptr,
            .compression_type = 0,
            .gpu_direct_rdma_capable = facts_[static_cast<size_t>(device)].rdma,
            .usage = 0,
            .reserved = {}};
  }

  /// CUDA hands out fds of its own device files, and answers anything else with an error that says
  /// nothing.
  absl::Status check_import(BorrowedFd fd, uint64_t) const override {
    const mode_t type = fd_type(fd);
    if (type == S_IFCHR || type == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "import fd %d, %s: not GPU memory; pass an fd that cuMemExportToShareableHandle returned",
        fd.get(), describe_fd(fd)));
  }

  void* import_argument(int& fd) const override {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(fd));
  }

  int locate(vmm::Handle handle, int importer) override {
    vmm::AllocationProp prop{};
    const vmm::Result result =
        run(importer, [&] { return cuda_.cuMemGetAllocationPropertiesFromHandle(&prop, handle); });
    const bool known = result == vmm::kSuccess && prop.location.type == vmm::kLocationDevice &&
                       prop.location.id >= 0 &&
                       static_cast<size_t>(prop.location.id) < facts_.size();
    return known ? prop.location.id : importer;
  }

  vmm::Result set_access(const vmm::Api& api, vmm::Address address, uint64_t size_bytes,
                         const vmm::AccessDesc& access) override {
    return api.set_access(address, size_bytes, &access, 1);
  }
  bool keeps_exported_fd() const override { return false; }

  absl::StatusOr<std::unique_ptr<VmmScope>> open_scope(int device) override {
    cuda::Context context = nullptr;
    const vmm::Result result = cuda_.cuDevicePrimaryCtxRetain(&context, device);
    if (result == vmm::kSuccess) return std::make_unique<PrimaryContext>(cuda_, device, context);
    return vmm_error(*this, cuda_.cuDevicePrimaryCtxRetain.symbol(), result,
                     absl::StrFormat("open a context on device %d", device));
  }

  uint32_t clock_khz(int) const override { return kGlobalTimerKhz; }
  uint32_t multiprocessor_count(int device) const override {
    return facts_[static_cast<size_t>(device)].multiprocessor_count;
  }

  /// Without it, lazy loading makes a kernel's first launch wait for kernels that run.
  vmm::Result prepare(vmm::Function function) override {
    return cuda_.cuFuncLoad ? cuda_.cuFuncLoad(function) : vmm::kSuccess;
  }
  /// Flags 0 at each: its barrier keeps them in order. The flag that leaves the barrier out is not
  /// for the calls of this version (cuda.h, CUstreamWriteValue_flags).
  vmm::Result write_words(vmm::Stream stream, absl::Span<const StreamWord> words) override {
    cuda::BatchStore stores[kMaxStreamWords];
    for (size_t i = 0; i < words.size(); ++i) {
      stores[i] = {.operation = cuda::kStoreWord64,
                   .address = words[i].address,
                   .value = words[i].value,
                   .flags = 0,
                   .alias = 0,
                   .unused = 0};
    }
    return cuda_.cuStreamBatchMemOp_v2(stream, static_cast<unsigned>(words.size()), stores, 0);
  }
  vmm::Result allow_shared(vmm::Function function, uint32_t shared_bytes) override {
    return cuda_.cuFuncSetAttribute(function, cuda::kFunctionMaxDynamicSharedBytes,
                                    static_cast<int>(shared_bytes));
  }

 private:
  const cuda::Api cuda_;
  const std::string version_;
  std::vector<DeviceFacts> facts_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<VmmScope>> fallbacks_ ABSL_GUARDED_BY(mutex_);
};

absl::Status resolve_cuda(const DynamicLibrary& library, cuda::Api* cuda) {
#define CCO_RESOLVE(name, ...)                                                           \
  if (!cuda->name.resolve(library, #name)) {                                             \
    return absl::FailedPreconditionError(absl::StrCat(                                   \
        library.path(), " has no " #name ": too old, or not the library it should be")); \
  }
  CCO_CUDA_CALLS(CCO_RESOLVE)
#undef CCO_RESOLVE
#define CCO_TRY(name, ...) cuda->name.resolve(library, #name);
  CCO_CUDA_OPTIONAL_CALLS(CCO_TRY)
#undef CCO_TRY
  return absl::OkStatus();
}

/// As nvidia-smi prints it.
std::string uuid_text(const vmm::Uuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppendFormat(&text, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

absl::StatusOr<GpuDevice> add_device(const vmm::Api& api, const cuda::Api& cuda, int ordinal,
                                     CudaDialect* dialect) {
  int device = -1;
  vmm::Uuid uuid{};
  if (cuda.cuDeviceGet(&device, ordinal) != vmm::kSuccess || device != ordinal) {
    return absl::InternalError(absl::StrFormat(
        "cuDeviceGet(%d) gave device %d: this driver numbers devices in another way", ordinal,
        device));
  }
  if (const auto result = api.device_uuid(&uuid, device); result != vmm::kSuccess) {
    return vmm_error(*dialect, api.device_uuid.symbol(), result,
                     absl::StrFormat("look at device %d", device));
  }
  const auto attribute = [&](int which) {
    int value = 0;
    return api.device_attribute(&value, which, device) == vmm::kSuccess ? value : 0;
  };
  const bool has_vmm = attribute(cuda::kAttributeVmmSupported) != 0 &&
                       attribute(cuda::kAttributePosixFdSupported) != 0;
  dialect->add_device({.rdma = attribute(cuda::kAttributeRdmaWithVmmSupported) != 0,
                       .multiprocessor_count =
                           static_cast<uint32_t>(attribute(cuda::kAttributeMultiprocessorCount))});
  CCO_ASSIGN_OR_RETURN(GpuDevice facts,
                       describe_device(api, *dialect, device, has_vmm, vmm::kGranularityMinimum));
  facts.uuid = uuid_text(uuid);
  facts.arch = absl::StrCat("sm_", attribute(cuda::kAttributeComputeMajor),
                            attribute(cuda::kAttributeComputeMinor));
  return facts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDriver>> open_cuda_driver() {
  CCO_ASSIGN_OR_RETURN(const DynamicLibrary library,
                       DynamicLibrary::open("CCO_CUDA_LIBRARY", {"libcuda.so.1"}));
  vmm::Api api;
  cuda::Api cuda;
  CCO_RETURN_IF_ERROR(resolve(library, VmmVendor::kCuda, &api));
  CCO_RETURN_IF_ERROR(resolve_cuda(library, &cuda));
  int version = 0;
  api.library_version(&version);
  auto dialect = std::make_unique<CudaDialect>(
      cuda, absl::StrFormat("CUDA driver API %d.%d (%s)", version / 1000, version % 1000 / 10,
                            library.path()));

  int count = 0;
  vmm::Result result = api.initialise(0);
  if (result == vmm::kSuccess) result = api.device_count(&count);
  if (result != vmm::kSuccess || count == 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s sees no CUDA device: %s (%d); check nvidia-smi and CUDA_VISIBLE_DEVICES",
        library.path(), dialect->error_name(result), result));
  }
  std::vector<GpuDevice> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CCO_ASSIGN_OR_RETURN(GpuDevice device, add_device(api, cuda, ordinal, dialect.get()));
    devices.push_back(std::move(device));
  }
  return std::make_unique<VmmDriver>(api, std::move(dialect), std::move(devices), library.file());
}

}  // namespace cco
