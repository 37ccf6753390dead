#include "client/src/memory.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/foreign_memory.h"

namespace cco::client {

absl::StatusOr<std::shared_ptr<Memory>> Memory::begin(std::shared_ptr<Client> client, int device,
                                                      uint64_t size_bytes) {
  const size_t count = client->driver().devices().size();
  if (device < 0 || static_cast<size_t>(device) >= count) {
    return absl::NotFoundError(
        absl::StrFormat("no device %d: this process sees %d, counted from 0", device, count));
  }
  if (size_bytes == 0) return absl::InvalidArgumentError("size_bytes is 0");
  return std::shared_ptr<Memory>(new Memory(std::move(client), device, size_bytes));
}

uint64_t Memory::granularity_bytes() const {
  return client_->driver().devices()[static_cast<size_t>(device_)].granularity_bytes;
}

absl::Status Memory::map() {
  GpuDriver& driver = client_->driver();
  CCO_ASSIGN_OR_RETURN(range_, driver.reserve(device_, memory_.size_bytes(), granularity_bytes()));
  CCO_ASSIGN_OR_RETURN(mapping_, driver.map(range_.address(), memory_));
  return driver.set_access(mapping_, device_, Access::kReadWrite);
}

absl::StatusOr<std::shared_ptr<Memory>> Memory::create(std::shared_ptr<Client> client, int device,
                                                       uint64_t size_bytes) {
  CCO_ASSIGN_OR_RETURN(std::shared_ptr<Memory> made, begin(std::move(client), device, size_bytes));
  GpuDriver& driver = made->client_->driver();
  const uint64_t unit = made->granularity_bytes();
  const uint64_t rounded = (size_bytes + unit - 1) / unit * unit;
  if (rounded < size_bytes) return absl::ResourceExhaustedError("that is more than there can be");
  CCO_ASSIGN_OR_RETURN(made->memory_, driver.allocate(device, rounded, MemoryKind::kData));
  CCO_ASSIGN_OR_RETURN(made->fd_, driver.export_fd(made->memory_));
  CCO_RETURN_IF_ERROR(made->map());
  return made;
}

absl::StatusOr<std::shared_ptr<Memory>> Memory::import(std::shared_ptr<Client> client, int device,
                                                       const void* address, uint64_t size_bytes) {
  CCO_ASSIGN_OR_RETURN(std::shared_ptr<Memory> made, begin(std::move(client), device, size_bytes));
  GpuDriver& driver = made->client_->driver();
  CCO_ASSIGN_OR_RETURN(ForeignMemory found,
                       find_foreign_memory(driver.name(), address, size_bytes));
  made->fd_ = std::move(found.fd);
  made->allocation_offset_ = found.offset;
  CCO_ASSIGN_OR_RETURN(made->memory_, driver.import_fd(device, made->fd_, found.allocation_bytes));
  CCO_RETURN_IF_ERROR(made->map());
  return made;
}

}  // namespace cco::client
