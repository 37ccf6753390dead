#include "device/runtime/host_driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/fd_facts.h"
#include "device/runtime/host_context.h"
#include "device/runtime/host_devices.h"

namespace cco {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL = 0x0008U;  // Linux 6.3
#endif

constexpr int kReservedFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

UniqueFd create_memfd() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create("cco-slab", kFlags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.reset(::memfd_create("cco-slab", kFlags));
  return fd;
}

/// Takes the pages now: later, lack of memory would be a SIGBUS in whoever touches them.
int take_pages(BorrowedFd fd, uint64_t size_bytes) {
  constexpr uint64_t kStepBytes = 32u
                                  << 20;  // A signal undoes a whole call: small steps get through.
  constexpr int kMaxInterruptions = 1000;
  int interruptions = 0;
  for (uint64_t offset = 0; offset < size_bytes;) {
    const uint64_t step = std::min(kStepBytes, size_bytes - offset);
    if (::fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(step)) == 0) {
      offset += step;
    } else if (errno != EINTR || ++interruptions > kMaxInterruptions) {
      return errno;
    }
  }
  return 0;
}

absl::StatusOr<UniqueFd> create_slab(const std::string& what, uint64_t size_bytes) {
  UniqueFd fd = create_memfd();
  if (!fd) return system_error(errno, absl::StrCat(what, ": memfd_create"));
  if (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
    return system_error(errno, absl::StrCat(what, ": ftruncate"));
  }
  if (const int error = take_pages(fd, size_bytes); error != 0) {
    return system_error(error, absl::StrCat(what, ": fallocate"));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_error(errno, absl::StrCat(what, ": seal"));
  }
  return fd;
}

/// Memory that somebody could shrink would be a SIGBUS in everybody who maps it: only what is, or
/// can be, sealed against that is taken.
absl::Status check_importable(BorrowedFd fd, uint64_t size_bytes) {
  struct stat facts {};
  const std::string what = absl::StrFormat("import fd %d, %s", fd.get(), describe_fd(fd));
  if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": the host driver's memory is a memfd; pass one made by memfd_create()"));
  }
  if (static_cast<uint64_t>(facts.st_size) < size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: it is smaller than the %d bytes asked for", what, size_bytes));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) return absl::OkStatus();
  if (seals >= 0 && ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what,
      ": it can be made smaller while it is mapped; make it with memfd_create(MFD_ALLOW_SEALING) "
      "and fcntl(F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)"));
}

}  // namespace

HostDriver::HostDriver(std::vector<GpuDevice> devices)
    : devices_(std::move(devices)), used_bytes_(devices_.size()) {}

absl::StatusOr<std::unique_ptr<HostDriver>> HostDriver::create(uint32_t device_count,
                                                               uint64_t bytes_per_device) {
  CCO_ASSIGN_OR_RETURN(std::vector<GpuDevice> devices,
                       make_host_devices(device_count, bytes_per_device));
  if (const char* visible = std::getenv("CCO_HOST_VISIBLE_DEVICES"); visible != nullptr) {
    CCO_ASSIGN_OR_RETURN(devices, select_devices(devices, visible));
  }
  return std::unique_ptr<HostDriver>(new HostDriver(std::move(devices)));
}

std::string HostDriver::version() const {
  struct utsname facts {};
  ::uname(&facts);
  return absl::StrCat("memfd on ", facts.sysname, " ", facts.release);
}

size_t HostDriver::allocation_count() const {
  const std::lock_guard lock(mutex_);
  return allocations_.size();
}

absl::Status HostDriver::charge(int device, uint64_t size_bytes) {
  const GpuDevice& facts = devices_[static_cast<size_t>(device)];
  const std::lock_guard lock(mutex_);
  uint64_t& used = used_bytes_[static_cast<size_t>(device)];
  const uint64_t free_bytes = facts.total_bytes - used;
  if (size_bytes > free_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "allocate %d bytes on %s: %d of %d bytes are free (granularity %d); free windows, "
        "or give the host driver more memory",
        size_bytes, facts.uuid, free_bytes, facts.total_bytes, facts.granularity_bytes));
  }
  used += size_bytes;
  return absl::OkStatus();
}

void HostDriver::uncharge(int device, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  used_bytes_[static_cast<size_t>(device)] -= size_bytes;
}

GpuMemory HostDriver::add(Allocation allocation) {
  const GpuAllocationId id{++last_id_};
  const uint64_t size_bytes = allocation.size_bytes;
  allocations_.emplace(id, std::move(allocation));
  return GpuMemory(this, id, size_bytes);
}

absl::StatusOr<GpuMemory> HostDriver::allocate(int device, uint64_t size_bytes, MemoryKind) {
  CCO_RETURN_IF_ERROR(check_device(device, devices_.size()));
  CCO_RETURN_IF_ERROR(check_granularity(size_bytes, kHostGranularityBytes));
  CCO_RETURN_IF_ERROR(charge(device, size_bytes));
  absl::StatusOr<UniqueFd> fd =
      create_slab(absl::StrFormat("allocate %d bytes on %s", size_bytes,
                                  devices_[static_cast<size_t>(device)].uuid),
                  size_bytes);
  if (!fd.ok()) {
    uncharge(device, size_bytes);
    return fd.status();
  }
  const std::lock_guard lock(mutex_);
  return add({.fd = *std::move(fd), .size_bytes = size_bytes, .device = device});
}

absl::StatusOr<UniqueFd> HostDriver::export_fd(const GpuMemory& memory) {
  const std::lock_guard lock(mutex_);
  const Allocation& allocation = allocations_.at(memory.id());
  if (allocation.imported) {
    return absl::FailedPreconditionError(
        "export: this memory was imported; only the process that created it can export it");
  }
  UniqueFd fd(::fcntl(allocation.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd) return system_error(errno, "export: duplicate the memory's fd");
  return fd;
}

absl::StatusOr<UniqueFd> HostDriver::read_only_fd(BorrowedFd exported) {
  // A memfd lets everybody in: who has a read-only fd could open it anew, for writing.
  if (::fchmod(exported.get(), S_IRUSR | S_IWUSR) != 0) {
    return system_error(errno, absl::StrFormat("fchmod of fd %d to 0600", exported.get()));
  }
  const std::string path = absl::StrCat("/proc/self/fd/", exported.get());
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error(errno, absl::StrCat("open ", path, " for reading"));
  return fd;
}

absl::StatusOr<GpuMemory> HostDriver::import_fd(int device, BorrowedFd fd, uint64_t size_bytes) {
  CCO_RETURN_IF_ERROR(check_device(device, devices_.size()));
  CCO_RETURN_IF_ERROR(check_granularity(size_bytes, kHostGranularityBytes));
  CCO_RETURN_IF_ERROR(check_importable(fd, size_bytes));
  UniqueFd own(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) return system_error(errno, absl::StrFormat("import fd %d: duplicate it", fd.get()));
  const std::lock_guard lock(mutex_);
  return add({.fd = std::move(own), .size_bytes = size_bytes, .device = device, .imported = true});
}

absl::StatusOr<VaRange> HostDriver::reserve(int device, uint64_t size_bytes,
                                            uint64_t alignment_bytes) {
  CCO_RETURN_IF_ERROR(check_device(device, devices_.size()));
  CCO_RETURN_IF_ERROR(check_reservation(size_bytes, alignment_bytes, kHostGranularityBytes));
  const uint64_t padded_bytes = size_bytes + alignment_bytes;
  if (padded_bytes < size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("reserve %d bytes aligned to %d: more than an address can hold", size_bytes,
                        alignment_bytes));
  }
  void* start = ::mmap(nullptr, padded_bytes, PROT_NONE, kReservedFlags, -1, 0);
  if (start == MAP_FAILED) {
    return system_error(errno, absl::StrFormat("reserve %d bytes of address space aligned to %d",
                                               size_bytes, alignment_bytes));
  }
  const auto system_address = reinterpret_cast<uint64_t>(start);
  const uint64_t address = (system_address + alignment_bytes - 1) & ~(alignment_bytes - 1);
  const std::lock_guard lock(mutex_);
  addresses_.add_range(address, {.size_bytes = size_bytes,
                                 .system_address = system_address,
                                 .system_size_bytes = padded_bytes});
  return VaRange(this, address, size_bytes);
}

absl::StatusOr<GpuMapping> HostDriver::map(uint64_t address, const GpuMemory& memory) {
  const std::lock_guard lock(mutex_);
  const Allocation& allocation = allocations_.at(memory.id());
  if (address % kHostGranularityBytes != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "map at %#x: addresses are multiples of %d bytes", address, kHostGranularityBytes));
  }
  CCO_RETURN_IF_ERROR(addresses_.check_free(address, allocation.size_bytes));
  void* mapped = ::mmap(pointer(address), allocation.size_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                        allocation.fd.get(), 0);
  if (mapped == MAP_FAILED) {
    return system_error(errno,
                        absl::StrFormat("map %d bytes at %#x", allocation.size_bytes, address));
  }
  addresses_.add_mapping(address,
                         {.size_bytes = allocation.size_bytes, .memory_device = allocation.device});
  return GpuMapping(this, address, allocation.size_bytes);
}

absl::Status HostDriver::set_access(const GpuMapping& mapping, int device, Access access) {
  CCO_RETURN_IF_ERROR(check_device(device, devices_.size()));
  const std::lock_guard lock(mutex_);
  AddressTable::Mapped* mapped = addresses_.find_mapping(mapping.address(), mapping.size_bytes());
  CCO_ASSERT(mapped != nullptr);
  const uint64_t bit = uint64_t{1} << device;
  const uint64_t writers =
      access == Access::kReadWrite ? mapped->writers | bit : mapped->writers & ~bit;
  const int protection = writers != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mprotect(pointer(mapping.address()), mapping.size_bytes(), protection) != 0) {
    const int error = errno;
    const std::string what = absl::StrFormat(
        "set access of %#x, %d bytes, to %s", mapping.address(), mapping.size_bytes(),
        access == Access::kReadWrite ? "read-write" : "read-only");
    if (error != EACCES) return system_error(error, what);
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": the memory's fd was opened read-only"));
  }
  mapped->writers = writers;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GpuContext>> HostDriver::open(int device) {
  CCO_RETURN_IF_ERROR(check_device(device, devices_.size()));
  return create_host_context(device);
}

void HostDriver::release(GpuAllocationId id) noexcept {
  const std::lock_guard lock(mutex_);
  auto found = allocations_.find(id);
  CCO_ASSERT(found != allocations_.end());
  const Allocation& allocation = found->second;
  if (!allocation.imported) {
    used_bytes_[static_cast<size_t>(allocation.device)] -= allocation.size_bytes;
  }
  allocations_.erase(found);
}

void HostDriver::free_range(uint64_t address, uint64_t) noexcept {
  const std::lock_guard lock(mutex_);
  const std::optional<AddressTable::Range> range = addresses_.remove_range(address);
  CCO_ASSERT(range.has_value());
  CCO_ASSERT(::munmap(pointer(range->system_address), range->system_size_bytes) == 0);
}

void HostDriver::unmap(uint64_t address, uint64_t size_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  addresses_.remove_mapping(address);
  // Reserved again, in one step: nobody else's mmap can land in between.
  void* reserved =
      ::mmap(pointer(address), size_bytes, PROT_NONE, kReservedFlags | MAP_FIXED, -1, 0);
  CCO_ASSERT(reserved != MAP_FAILED);
}

}  // namespace cco
