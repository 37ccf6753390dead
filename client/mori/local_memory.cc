#include "client/mori/local_memory.h"

#include <utility>

#include "client/base/status_macros.h"
#include "client/mori/foreign_memory.h"
#include "device/runtime/open_driver.h"

namespace cco::compat {

absl::StatusOr<UniqueFd> LocalPiece::export_fd() const {
  if (imported_fd_) return duplicate(imported_fd_);
  return driver_->export_fd(memory_);
}

absl::StatusOr<std::unique_ptr<LocalMemory>> LocalMemory::open(const std::string& driver,
                                                               uint32_t device_count, int device) {
  DriverOptions options;
  CCO_ASSIGN_OR_RETURN(options.kind, parse_driver_kind(driver));
  if (options.kind == DriverKind::kHost) options.host_devices = device_count;
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<GpuDriver> opened, open_driver(options));
  std::unique_ptr<LocalMemory> memory(new LocalMemory(std::move(opened), device));
  CCO_ASSIGN_OR_RETURN(memory->context_, memory->driver_->open(device));
  return memory;
}

absl::Status LocalMemory::map(LocalPiece* piece) {
  piece->driver_ = driver_.get();
  CCO_ASSIGN_OR_RETURN(piece->range_,
                       driver_->reserve(device_, piece->memory_.size_bytes(), granularity_bytes()));
  CCO_ASSIGN_OR_RETURN(piece->mapping_, driver_->map(piece->range_.address(), piece->memory_));
  return driver_->set_access(piece->mapping_, device_, Access::kReadWrite);
}

absl::StatusOr<std::unique_ptr<LocalPiece>> LocalMemory::allocate(uint64_t size_bytes) {
  const uint64_t unit = granularity_bytes();
  const uint64_t rounded = (size_bytes + unit - 1) / unit * unit;
  if (rounded < size_bytes) return absl::ResourceExhaustedError("that is more than there can be");
  std::unique_ptr<LocalPiece> piece(new LocalPiece);
  CCO_ASSIGN_OR_RETURN(piece->memory_, driver_->allocate(device_, rounded, MemoryKind::kData));
  piece->size_bytes_ = rounded;
  CCO_RETURN_IF_ERROR(map(piece.get()));
  return piece;
}

absl::StatusOr<std::unique_ptr<LocalPiece>> LocalMemory::import(const void* pointer,
                                                                uint64_t size_bytes) {
  CCO_ASSIGN_OR_RETURN(ForeignMemory found,
                       find_foreign_memory(driver_->name(), pointer, size_bytes));
  std::unique_ptr<LocalPiece> piece(new LocalPiece);
  CCO_ASSIGN_OR_RETURN(piece->memory_,
                       driver_->import_fd(device_, found.fd, found.allocation_bytes));
  piece->size_bytes_ = size_bytes;
  piece->allocation_offset_ = found.offset;
  CCO_RETURN_IF_ERROR(map(piece.get()));
  piece->imported_fd_ = std::move(found.fd);
  return piece;
}

}  // namespace cco::compat
