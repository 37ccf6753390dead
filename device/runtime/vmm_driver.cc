#include "device/runtime/vmm_driver.h"

#include <fcntl.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/fd_facts.h"
#include "device/runtime/vmm_context.h"

namespace cco {

absl::StatusOr<const GpuDevice*> VmmDriver::usable(int device) const {
  CCO_RETURN_IF_ERROR(check_device(device, devices_.size()));
  const GpuDevice& facts = devices_[static_cast<size_t>(device)];
  if (facts.has_vmm) return &facts;
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s (%s; %s) has no virtual memory management with file descriptors: it cannot hold a heap",
      facts.uuid, facts.name, dialect_->version()));
}

GpuMemory VmmDriver::add(Allocation allocation) {
  const uint64_t size_bytes = allocation.size_bytes;
  const std::lock_guard lock(mutex_);
  const GpuAllocationId id{++last_id_};
  allocations_.emplace(id, std::move(allocation));
  return GpuMemory(this, id, size_bytes);
}

absl::StatusOr<GpuMemory> VmmDriver::allocate(int device, uint64_t size_bytes, MemoryKind kind) {
  CCO_ASSIGN_OR_RETURN(const GpuDevice* facts, usable(device));
  CCO_RETURN_IF_ERROR(check_granularity(size_bytes, facts->granularity_bytes));
  const vmm::AllocationProp prop = dialect_->properties(device, kind);
  vmm::Handle handle = 0;
  const vmm::Result result =
      dialect_->run(device, [&] { return api_.create(&handle, size_bytes, &prop, 0); });
  if (result != vmm::kSuccess) {
    return vmm_error(
        *dialect_, api_.create.symbol(), result,
        absl::StrFormat("allocate %d bytes on %s (%d in all, granularity %d)", size_bytes,
                        facts->uuid, facts->total_bytes, facts->granularity_bytes));
  }
  return add({.handle = handle, .size_bytes = size_bytes, .device = device, .exported = {}});
}

absl::StatusOr<UniqueFd> VmmDriver::export_fd(const GpuMemory& memory) {
  vmm::Handle handle = 0;
  int device = 0;
  {
    const std::lock_guard lock(mutex_);
    const Allocation& allocation = allocations_.at(memory.id());
    if (allocation.imported) {
      return absl::FailedPreconditionError(
          "export: this memory was imported; only the process that created it can export it");
    }
    if (allocation.exported) {
      UniqueFd copy(::fcntl(allocation.exported.get(), F_DUPFD_CLOEXEC, 0));
      if (!copy) return system_error(errno, "export: duplicate the memory's fd");
      return copy;
    }
    handle = allocation.handle;
    device = allocation.device;
  }
  int exported = -1;
  const vmm::Result result = dialect_->run(
      device, [&] { return api_.export_handle(&exported, handle, vmm::kHandlePosixFd, 0); });
  if (result != vmm::kSuccess) {
    return vmm_error(*dialect_, api_.export_handle.symbol(), result,
                     absl::StrFormat("export %d bytes of %s", memory.size_bytes(),
                                     devices_[static_cast<size_t>(device)].uuid));
  }
  UniqueFd fd(exported);
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);  // The libraries do not promise it.
  if (!dialect_->keeps_exported_fd()) return fd;
  UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return system_error(errno, "export: duplicate the memory's fd");
  const std::lock_guard lock(mutex_);
  Allocation& allocation = allocations_.at(memory.id());
  if (!allocation.exported) allocation.exported = std::move(fd);
  return copy;
}

absl::StatusOr<GpuMemory> VmmDriver::import_fd(int device, BorrowedFd fd, uint64_t size_bytes) {
  CCO_ASSIGN_OR_RETURN(const GpuDevice* facts, usable(device));
  CCO_RETURN_IF_ERROR(check_granularity(size_bytes, facts->granularity_bytes));
  CCO_RETURN_IF_ERROR(dialect_->check_import(fd, size_bytes));
  vmm::Handle handle = 0;
  int number = fd.get();
  const vmm::Result result = dialect_->run(device, [&] {
    return api_.import_handle(&handle, dialect_->import_argument(number), vmm::kHandlePosixFd);
  });
  if (result != vmm::kSuccess) {
    const absl::Status status = vmm_error(
        *dialect_, api_.import_handle.symbol(), result,
        absl::StrFormat("import fd %d, %s, as %d bytes", fd.get(), describe_fd(fd), size_bytes));
    if (absl::IsResourceExhausted(status)) return status;
    return absl::InvalidArgumentError(absl::StrFormat("%s; pass an fd that %s returned",
                                                      std::string(status.message()),
                                                      api_.export_handle.symbol()));
  }
  return add({.handle = handle,
              .size_bytes = size_bytes,
              .device = dialect_->locate(handle, device),
              .imported = true,
              .exported = {}});
}

absl::StatusOr<vmm::Address> VmmDriver::reserve_in_library(int device, uint64_t size_bytes,
                                                           uint64_t alignment_bytes) {
  vmm::Address address = 0;
  const vmm::Result result = dialect_->run(
      device, [&] { return api_.reserve(&address, size_bytes, alignment_bytes, 0, 0); });
  if (result == vmm::kSuccess) return address;
  return vmm_error(*dialect_, api_.reserve.symbol(), result,
                   absl::StrFormat("reserve %d bytes of address space aligned to %d", size_bytes,
                                   alignment_bytes));
}

absl::StatusOr<VaRange> VmmDriver::reserve(int device, uint64_t size_bytes,
                                           uint64_t alignment_bytes) {
  CCO_ASSIGN_OR_RETURN(const GpuDevice* facts, usable(device));
  CCO_RETURN_IF_ERROR(check_reservation(size_bytes, alignment_bytes, facts->granularity_bytes));
  CCO_ASSIGN_OR_RETURN(vmm::Address address,
                       reserve_in_library(device, size_bytes, alignment_bytes));
  AddressTable::Range range = {.size_bytes = size_bytes,
                               .system_address = address,
                               .system_size_bytes = size_bytes,
                               .device = device};
  if (address % alignment_bytes !=
      0) {  // The alignment is a wish to some runtimes: take more, and cut.
    dialect_->run(device, [&] { return api_.free_range(address, size_bytes); });
    range.system_size_bytes = size_bytes + alignment_bytes;
    CCO_ASSIGN_OR_RETURN(range.system_address,
                         reserve_in_library(device, range.system_size_bytes, alignment_bytes));
    address = (range.system_address + alignment_bytes - 1) & ~(alignment_bytes - 1);
  }
  const std::lock_guard lock(mutex_);
  addresses_.add_range(address, range);
  return VaRange(this, address, size_bytes);
}

absl::StatusOr<GpuMapping> VmmDriver::map(uint64_t address, const GpuMemory& memory) {
  vmm::Handle handle = 0;
  int device = 0;
  bool imported = false;
  {
    const std::lock_guard lock(mutex_);
    const Allocation& allocation = allocations_.at(memory.id());
    handle = allocation.handle;
    device = allocation.device;
    imported = allocation.imported;
    const uint64_t granularity_bytes = devices_[static_cast<size_t>(device)].granularity_bytes;
    if (address % granularity_bytes != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "map at %#x: addresses are multiples of %d bytes", address, granularity_bytes));
    }
    CCO_RETURN_IF_ERROR(addresses_.check_free(address, memory.size_bytes()));
    addresses_.add_mapping(address, {.size_bytes = memory.size_bytes(), .memory_device = device});
  }
  const vmm::Result result =
      dialect_->run(device, [&] { return api_.map(address, memory.size_bytes(), 0, handle, 0); });
  if (result == vmm::kSuccess) return GpuMapping(this, address, memory.size_bytes());
  absl::Status status =
      vmm_error(*dialect_, api_.map.symbol(), result,
                absl::StrFormat("map %d bytes at %#x", memory.size_bytes(), address));
  const std::lock_guard lock(mutex_);
  addresses_.remove_mapping(address);
  // The libraries do not tell what an import's size is, and answer here in many ways (CUDA 13 on
  // H200: NOT_SUPPORTED) when it is less than its user thinks.
  if (!imported || absl::IsResourceExhausted(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(status.message()),
                   ": is the imported allocation smaller than that? Give its whole size"));
}

absl::Status VmmDriver::access_error(const GpuMapping& mapping, int memory_device, int device,
                                     vmm::Result result) {
  const GpuDevice& from = devices_[static_cast<size_t>(device)];
  const GpuDevice& to = devices_[static_cast<size_t>(memory_device)];
  const absl::Status status =
      vmm_error(*dialect_, api_.set_access.symbol(), result,
                absl::StrFormat("let %s touch %d bytes of %s mapped at %#x", from.uuid,
                                mapping.size_bytes(), to.uuid, mapping.address()));
  if (memory_device == device || absl::IsResourceExhausted(status)) return status;
  int can = 0;
  dialect_->run(device, [&] { return api_.can_access_peer(&can, device, memory_device); });
  return absl::FailedPreconditionError(
      absl::StrFormat("%s; %s (%s) %s reach %s (%s): %s says %d", std::string(status.message()),
                      from.uuid, from.pci_bus_id, can != 0 ? "should" : "cannot", to.uuid,
                      to.pci_bus_id, api_.can_access_peer.symbol(), can));
}

absl::Status VmmDriver::set_access(const GpuMapping& mapping, int device, Access access) {
  CCO_RETURN_IF_ERROR(usable(device).status());
  int memory_device = 0;
  {
    const std::lock_guard lock(mutex_);
    const AddressTable::Mapped* mapped =
        addresses_.find_mapping(mapping.address(), mapping.size_bytes());
    CCO_ASSERT(mapped != nullptr);
    memory_device = mapped->memory_device;
  }
  const vmm::AccessDesc desc = {
      .location = {vmm::kLocationDevice, device},
      .flags = access == Access::kReadWrite ? vmm::kAccessReadWrite : vmm::kAccessRead};
  const vmm::Result result = dialect_->run(device, [&] {
    return dialect_->set_access(api_, mapping.address(), mapping.size_bytes(), desc);
  });
  if (result == vmm::kSuccess) return absl::OkStatus();
  return access_error(mapping, memory_device, device, result);
}

absl::StatusOr<std::unique_ptr<GpuContext>> VmmDriver::open(int device) {
  CCO_RETURN_IF_ERROR(check_device(device, devices_.size()));
  return create_vmm_context(api_, *dialect_, device, devices_[static_cast<size_t>(device)]);
}

// The three below cannot report: what a library refuses to take back, it keeps until the process
// ends.

void VmmDriver::release(GpuAllocationId id) noexcept {
  Allocation allocation;
  {
    const std::lock_guard lock(mutex_);
    auto found = allocations_.find(id);
    CCO_ASSERT(found != allocations_.end());
    allocation = std::move(found->second);
    allocations_.erase(found);
  }
  dialect_->run(allocation.device, [&] { return api_.release(allocation.handle); });
}

void VmmDriver::free_range(uint64_t address, uint64_t) noexcept {
  std::optional<AddressTable::Range> range;
  {
    const std::lock_guard lock(mutex_);
    range = addresses_.remove_range(address);
  }
  if (!range.has_value()) return;
  dialect_->run(range->device,
                [&] { return api_.free_range(range->system_address, range->system_size_bytes); });
}

void VmmDriver::unmap(uint64_t address, uint64_t size_bytes) noexcept {
  int device = 0;
  {
    const std::lock_guard lock(mutex_);
    const AddressTable::Mapped* mapped = addresses_.find_mapping(address, size_bytes);
    CCO_ASSERT(mapped != nullptr);
    device = mapped->memory_device;
  }
  const vmm::Result result = dialect_->run(device, [&] { return api_.unmap(address, size_bytes); });
  const std::lock_guard lock(mutex_);
  if (result == vmm::kSuccess) {
    addresses_.remove_mapping(address);  // Only now: until here, nobody may map over it.
  } else {
    addresses_.find_mapping(address, size_bytes)->stuck = true;
  }
}

}  // namespace cco
