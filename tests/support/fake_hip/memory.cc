// Virtual memory management over memfd and mmap.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "state.h"

namespace fake_hip {
namespace {

using cco::vmm::AccessDesc;
using cco::vmm::AllocationProp;

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

bool aligned(uint64_t value) { return value % kGranularityBytes == 0; }

ForeignFd foreign(int number) {
  struct stat facts {};
  return ::fstat(number, &facts) == 0 ? ForeignFd{number, facts.st_ino} : ForeignFd{};
}

bool valid(const AllocationProp& prop) {
  const bool uncached = prop.type == cco::hip::kAllocationUncached &&
                        claimed_version() >= cco::hip::kVersion71 &&
                        setting("FAKE_HIP_NO_UNCACHED", 0) == 0;
  return (prop.type == cco::vmm::kAllocationPinned || uncached) &&
         prop.requested_handle_types == cco::vmm::kHandlePosixFd &&
         prop.location.type == cco::vmm::kLocationDevice && valid_device(prop.location.id) &&
         prop.win32_metadata == nullptr && prop.compression_type == 0 && prop.usage == 0;
}

/// Other processes learn from the memfd's name whose memory it is.
bool read_name(int fd, int* device, bool* rdma) {
  char link[64];
  char name[128] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (::readlink(link, name, sizeof name - 1) <= 0) return false;
  int flag = 0;
  if (std::sscanf(name, "/memfd:fake-hip-%d-%d", device, &flag) != 2) return false;
  *rdma = flag != 0;
  return true;
}

template <typename Table>
auto overlapping(Table& table, uint64_t address, size_t size,
                 size_t (*size_of)(const typename Table::mapped_type&)) {
  auto next = table.upper_bound(address);
  if (next != table.begin()) {
    auto before = std::prev(next);
    if (address - before->first < size_of(before->second)) return before;
  }
  return next != table.end() && next->first - address < size ? next : table.end();
}
size_t range_size(const size_t& size) { return size; }
size_t mapping_size(const Mapping& mapping) { return mapping.size_bytes; }

/// Before ROCm 7.1 the argument points to the fd, from then on it is the fd. The wrong one must not
/// crash the fake.
int read_import_argument(void* argument) {
  const auto value = reinterpret_cast<uintptr_t>(argument);
  const bool is_small = value <= INT_MAX;
  if (claimed_version() >= cco::hip::kVersion71) return is_small ? static_cast<int>(value) : -1;
  return is_small || value % alignof(int) != 0 ? -1 : *static_cast<int*>(argument);
}

int protection(const Mapping& mapping) {
  int bits = PROT_NONE;
  for (const auto& [device, flags] : mapping.access) {
    if (flags == cco::vmm::kAccessRead) bits |= PROT_READ;
    if (flags == cco::vmm::kAccessReadWrite) bits |= PROT_READ | PROT_WRITE;
  }
  return bits;
}

}  // namespace
FAKE_HIP_EXPORT Result hipMemGetAllocationGranularity(size_t* size, const AllocationProp* prop,
                                                      int option) {
  if (Result injected = injected_failure("hipMemGetAllocationGranularity")) return injected;
  if (!valid(*prop) || (option != 0 && option != 1)) return kInvalidValue;
  *size =
      option == cco::vmm::kGranularityMinimum ? kGranularityBytes : kRecommendedGranularityBytes;
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemCreate(uint64_t* handle, size_t size, const AllocationProp* prop,
                                    unsigned long long flags) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemCreate")) return injected;
  if (size == 0 || !aligned(size) || flags != 0 || !valid(*prop)) return kInvalidValue;
  if (claimed_version() < kVersionShares) return kNotSupported;
  const int device = visible_devices()[static_cast<size_t>(prop->location.id)];
  const std::lock_guard<std::mutex> lock(state().mutex);
  size_t& used = state().used_bytes[device];
  if (used + size > static_cast<size_t>(setting("FAKE_HIP_MEMORY", 1l << 30))) return kOutOfMemory;
  char name[64];
  std::snprintf(name, sizeof name, "fake-hip-%d-%d", device, prop->gpu_direct_rdma_capable);
  cco::UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return kOutOfMemory;
  used += size;
  *handle = new_id();
  state().handles.emplace(*handle, Handle{.fd = std::make_shared<cco::UniqueFd>(std::move(fd)),
                                          .size_bytes = size,
                                          .device = device,
                                          .rdma = prop->gpu_direct_rdma_capable != 0,
                                          .imported = false,
                                          .retained = false,
                                          .foreign = {}});
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemRelease(uint64_t handle) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemRelease")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().handles.find(handle);
  if (found == state().handles.end())
    return misuse("hipMemRelease", "no such handle, or released already", handle);
  if (!found->second.imported && !found->second.retained)
    state().used_bytes[found->second.device] -= found->second.size_bytes;
  state().handles.erase(found);
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemExportToShareableHandle(void* out, uint64_t handle, int type,
                                                     unsigned long long flags) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemExportToShareableHandle")) return injected;
  if (type != cco::vmm::kHandlePosixFd || flags != 0) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().handles.find(handle);
  if (found == state().handles.end())
    return misuse("hipMemExportToShareableHandle", "no such handle", handle);
  Handle& memory = found->second;
  if (memory.imported) return kInvalidValue;
  const bool again = memory.foreign.number >= 0;
  if (again && claimed_version() < kVersionKeepsFd && !memory.foreign.still_open())
    return kInvalidValue;
  const int fd = ::dup(memory.fd->get());  // Without close-on-exec: real ones do not promise it.
  if (fd < 0) return kOutOfMemory;
  if (!again) memory.foreign = foreign(fd);
  *static_cast<int*>(out) = fd;
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemImportFromShareableHandle(uint64_t* handle, void* argument, int type) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemImportFromShareableHandle")) return injected;
  Handle memory;
  const int fd = read_import_argument(argument);
  if (type != cco::vmm::kHandlePosixFd || !read_name(fd, &memory.device, &memory.rdma))
    return kInvalidValue;
  struct stat facts {};
  memory.fd = std::make_shared<cco::UniqueFd>(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!*memory.fd || ::fstat(fd, &facts) != 0) return kOutOfMemory;
  memory.size_bytes = static_cast<size_t>(facts.st_size);
  memory.imported = true;
  memory.foreign = foreign(fd);
  const std::lock_guard<std::mutex> lock(state().mutex);
  *handle = new_id();
  state().handles.emplace(*handle, std::move(memory));
  return kSuccess;
}

/// Ignores the alignment, as older runtimes do.
FAKE_HIP_EXPORT Result hipMemAddressReserve(uint64_t* out, size_t size, size_t alignment,
                                            uint64_t hint, unsigned long long flags) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemAddressReserve")) return injected;
  if (size == 0 || !aligned(size) || (alignment & (alignment - 1)) != 0 || hint != 0 ||
      flags != 0) {
    return kInvalidValue;
  }
  void* start = ::mmap(nullptr, size, PROT_NONE, kReserved, -1, 0);
  if (start == MAP_FAILED) return kOutOfMemory;
  *out = reinterpret_cast<uint64_t>(start);
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().ranges.emplace(*out, size);
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemAddressFree(uint64_t address, size_t size) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemAddressFree")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().ranges.find(address);
  if (found == state().ranges.end() || found->second != size) {
    return misuse("hipMemAddressFree", "not exactly a reserved range", address);
  }
  if (overlapping(state().mappings, address, size, mapping_size) != state().mappings.end()) {
    return misuse("hipMemAddressFree", "memory is still mapped in this range", address);
  }
  state().ranges.erase(found);
  return ::munmap(pointer(address), size) == 0 ? kSuccess : kUnknown;
}

FAKE_HIP_EXPORT Result hipMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle,
                                 unsigned long long flags) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemMap")) return injected;
  if (size == 0 || !aligned(size) || !aligned(address) || offset != 0 || flags != 0)
    return kInvalidValue;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().handles.find(handle);
  if (found == state().handles.end()) return misuse("hipMemMap", "no such handle", handle);
  if (size != found->second.size_bytes) return kInvalidValue;
  auto range = overlapping(state().ranges, address, size, range_size);
  const bool reserved = range != state().ranges.end() && address >= range->first &&
                        address + size <= range->first + range->second;
  if (!reserved) return misuse("hipMemMap", "not inside a reserved range", address);
  if (overlapping(state().mappings, address, size, mapping_size) != state().mappings.end()) {
    return misuse("hipMemMap", "mapped twice", address);
  }
  if (::mmap(pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.fd->get(),
             0) == MAP_FAILED) {
    return kOutOfMemory;
  }
  state().mappings.emplace(
      address, Mapping{.fd = found->second.fd,
                       .imported = found->second.imported,
                       .size_bytes = size,
                       .device = found->second.device,
                       .rdma = found->second.rdma,
                       .foreign = found->second.imported ? found->second.foreign : ForeignFd{},
                       .refusals = 0,
                       .access = {}});
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemGetAddressRange(uint64_t* base, size_t* size, uint64_t address) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = overlapping(state().mappings, address, 1, mapping_size);
  if (found == state().mappings.end()) return kInvalidValue;
  *base = found->first;
  *size = found->second.size_bytes;
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemRetainAllocationHandle(uint64_t* handle, void* address) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemRetainAllocationHandle")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().mappings.find(reinterpret_cast<uint64_t>(address));
  if (found == state().mappings.end()) return kInvalidValue;
  const Mapping& mapping = found->second;
  Handle memory{.fd = mapping.fd,
                .size_bytes = mapping.size_bytes,
                .device = mapping.device,
                .rdma = mapping.rdma,
                .imported = mapping.imported,
                .retained = true,
                .foreign = {}};
  *handle = new_id();
  state().handles.emplace(*handle, std::move(memory));
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipMemUnmap(uint64_t address, size_t size) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemUnmap")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().mappings.find(address);
  if (found == state().mappings.end() || found->second.size_bytes != size) {
    return misuse("hipMemUnmap", "not exactly a mapping", address);
  }
  state().mappings.erase(found);
  void* again = ::mmap(pointer(address), size, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
  return again == MAP_FAILED ? kUnknown : kSuccess;
}

FAKE_HIP_EXPORT Result hipMemSetAccess(uint64_t address, size_t size, const AccessDesc* desc,
                                       size_t count) {
  const MemoryCall call;
  if (Result injected = injected_failure("hipMemSetAccess")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().mappings.find(address);
  if (found == state().mappings.end() || found->second.size_bytes != size || count == 0)
    return kInvalidValue;
  Mapping& mapping = found->second;
  if (mapping.refusals < setting("FAKE_HIP_FLAKY_ACCESS", 0)) {
    ++mapping.refusals;
    return kInvalidValue;
  }
  if (mapping.rdma && setting("FAKE_HIP_NO_RDMA", 0) != 0) return kInvalidValue;
  if (mapping.foreign.number >= 0 && claimed_version() < kVersionKeepsFd &&
      !mapping.foreign.still_open()) {
    return kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].location.type != cco::vmm::kLocationDevice || !valid_device(desc[i].location.id))
      return kInvalidValue;
    if (desc[i].flags != 0 && desc[i].flags != 1 && desc[i].flags != 3) return kInvalidValue;
    const int device = visible_devices()[static_cast<size_t>(desc[i].location.id)];
    if (!can_reach(device, mapping.device)) return kInvalidValue;
    mapping.access[device] = desc[i].flags;
  }
  return ::mprotect(pointer(address), size, protection(mapping)) == 0 ? kSuccess : kUnknown;
}

}  // namespace fake_hip
