#include "device/runtime/hip_dialect.h"

#include <poll.h>
#include <sys/stat.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/runtime/fd_facts.h"

namespace cco {
namespace {

constexpr int kMoreTries = 5;
constexpr uint32_t kUsualClockKhz = 100'000;

/// HIP's current device belongs to the thread: ours for the call, then the caller's again.
class CurrentDevice final : public VmmScope {
 public:
  CurrentDevice(const hip::Api& hip, int device) : hip_(hip), device_(device) {}

  vmm::Result run(absl::FunctionRef<vmm::Result()> call) override {
    int previous = 0;
    if (const auto result = hip_.hipGetDevice(&previous); result != vmm::kSuccess) return result;
    if (previous == device_) return call();
    if (const auto result = hip_.hipSetDevice(device_); result != vmm::kSuccess) return result;
    const vmm::Result result = call();
    hip_.hipSetDevice(previous);
    return result;
  }

 private:
  const hip::Api& hip_;
  const int device_;
};

vmm::AllocationProp plain_properties(int device) {
  return {.type = vmm::kAllocationPinned,
          .requested_handle_types = vmm::kHandlePosixFd,
          .location = {vmm::kLocationDevice, device},
          .win32_metadata = nullptr,
          .compression_type = 0,
          .gpu_direct_rdma_capable = 0,
          .usage = 0,
          .reserved = {}};
}

}  // namespace

HipDialect::HipDialect(const vmm::Api& api, const hip::Api& hip, Options options)
    : api_(api),
      hip_(hip),
      options_(std::move(options)),
      abilities_(static_cast<size_t>(options_.device_count)) {}

void HipDialect::name_devices(const std::vector<GpuDevice>& devices) {
  for (const GpuDevice& device : devices) uuids_.push_back(device.uuid);
}

std::mutex& hip_memory_mutex() {
  static std::mutex& mutex = *new std::mutex;  // Memory is still given back at exit.
  return mutex;
}

std::string HipDialect::version() const {
  std::string text = absl::StrFormat(
      "HIP runtime %d.%d.%d (%s; ROCm 6.2 to 7.x are supported)", options_.version / 10'000'000,
      options_.version / 100'000 % 100, options_.version % 100'000, options_.library);
  const std::lock_guard lock(mutex_);
  for (size_t device = 0; device < uuids_.size(); ++device) {
    if (!abilities_[device].has_value()) continue;
    absl::StrAppend(&text, "; ", uuids_[device], ": control memory ",
                    abilities_[device]->uncached ? "uncached" : "cached", ", network access ",
                    abilities_[device]->rdma ? "yes" : "no");
  }
  return text;
}

vmm::Result HipDialect::run(int device, absl::FunctionRef<vmm::Result()> call) {
  const std::lock_guard lock(hip_memory_mutex());
  return CurrentDevice(hip_, device).run(call);
}

vmm::Result HipDialect::try_creation(int device) {
  return run(device, [&] {
    const vmm::AllocationProp prop = plain_properties(device);
    size_t size_bytes = 0;
    vmm::Handle handle = 0;
    vmm::Result result = api_.granularity(&size_bytes, &prop, vmm::kGranularityRecommended);
    if (result == vmm::kSuccess) result = api_.create(&handle, size_bytes, &prop, 0);
    if (result == vmm::kSuccess) api_.release(handle);
    return result;
  });
}

vmm::Result HipDialect::try_allocation(int device, const vmm::AllocationProp& prop) {
  return run(device, [&] {
    size_t size_bytes = 0;
    vmm::Handle handle = 0;
    vmm::Address address = 0;
    vmm::Result result = api_.granularity(&size_bytes, &prop, vmm::kGranularityRecommended);
    if (result != vmm::kSuccess) return result;
    result = api_.create(&handle, size_bytes, &prop, 0);
    if (result != vmm::kSuccess) return result;
    result = api_.reserve(&address, size_bytes, size_bytes, 0, 0);
    if (result == vmm::kSuccess) {
      result = api_.map(address, size_bytes, 0, handle, 0);
      if (result == vmm::kSuccess) {
        const vmm::AccessDesc access = {{vmm::kLocationDevice, device}, vmm::kAccessReadWrite};
        result = set_access(api_, address, size_bytes, access);
        if (api_.unmap(address, size_bytes) != vmm::kSuccess)
          return vmm::kInvalidValue;  // The range stays taken.
      }
      api_.free_range(address, size_bytes);
    }
    api_.release(handle);
    return result;
  });
}

std::optional<HipDialect::Abilities> HipDialect::probe(int device) {
  const std::lock_guard lock(mutex_);
  std::optional<Abilities>& known = abilities_[static_cast<size_t>(device)];
  if (known.has_value()) return known;
  Abilities found;
  vmm::AllocationProp prop = plain_properties(device);
  if (options_.rdma) {
    prop.gpu_direct_rdma_capable = 1;
    const vmm::Result result = try_allocation(device, prop);
    if (result == vmm::kOutOfMemory) return std::nullopt;
    found.rdma = result == vmm::kSuccess;
  }
  if (options_.version >= hip::kVersion71) {
    prop.gpu_direct_rdma_capable = found.rdma;
    prop.type = hip::kAllocationUncached;
    const vmm::Result result = try_allocation(device, prop);
    if (result == vmm::kOutOfMemory) return std::nullopt;
    found.uncached = result == vmm::kSuccess;
  }
  known = found;
  return known;
}

vmm::AllocationProp HipDialect::properties(int device, MemoryKind kind) {
  const Abilities abilities = probe(device).value_or(Abilities{});
  vmm::AllocationProp prop = plain_properties(device);
  prop.gpu_direct_rdma_capable = abilities.rdma;
  if (kind == MemoryKind::kControl && abilities.uncached) prop.type = hip::kAllocationUncached;
  return prop;
}

absl::Status HipDialect::check_import(BorrowedFd fd, uint64_t size_bytes) const {
  const std::string what = absl::StrFormat("import fd %d, %s", fd.get(), describe_fd(fd));
  switch (fd_type(fd)) {
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFDIR:
    case S_IFBLK:
    case S_IFCHR:
    case S_IFLNK:
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": not GPU memory; pass an fd that hipMemExportToShareableHandle returned"));
  }
  const off_t size = ::lseek(fd.get(), 0, SEEK_END);  // A dma-buf tells its size so.
  if (size < 0) return absl::OkStatus();
  ::lseek(fd.get(), 0, SEEK_SET);
  if (static_cast<uint64_t>(size) >= size_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: it has %d bytes, %d were asked for", what, size, size_bytes));
}

void* HipDialect::import_argument(int& fd) const {
  if (options_.version < hip::kVersion71) return &fd;
  return reinterpret_cast<void*>(static_cast<uintptr_t>(fd));
}

vmm::Result HipDialect::set_access(const vmm::Api& api, vmm::Address address, uint64_t size_bytes,
                                   const vmm::AccessDesc& access) {
  vmm::Result result = api.set_access(address, size_bytes, &access, 1);
  for (int i = 0; i < kMoreTries && result != vmm::kSuccess; ++i) {
    ::poll(nullptr, 0, 1 << i);  // Milliseconds; no event tells when it would succeed.
    result = api.set_access(address, size_bytes, &access, 1);
  }
  return result;
}

absl::StatusOr<std::unique_ptr<VmmScope>> HipDialect::open_scope(int device) {
  return std::make_unique<CurrentDevice>(hip_, device);
}

uint32_t HipDialect::clock_khz(int device) const {
  int value = 0;
  const auto result = api_.device_attribute(&value, hip::kAttributeWallClockKhz, device);
  return result == vmm::kSuccess && value > 0 ? static_cast<uint32_t>(value) : kUsualClockKhz;
}

uint32_t HipDialect::multiprocessor_count(int device) const {
  int value = 0;
  const auto result = api_.device_attribute(&value, hip::kAttributeMultiprocessorCount, device);
  return result == vmm::kSuccess && value > 0 ? static_cast<uint32_t>(value) : 1;
}

}  // namespace cco
