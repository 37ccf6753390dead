// Memory of this rank alone: made here, or somebody else's under a second address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "device/runtime/gpu_driver.h"

namespace cco::compat {

/// A piece that kernels of this process reach at `address`, and that can be handed to the daemon.
class LocalPiece {
 public:
  uint64_t address() const { return range_.address() + allocation_offset_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t allocation_bytes() const { return memory_.size_bytes(); }
  uint64_t allocation_offset() const { return allocation_offset_; }
  absl::StatusOr<UniqueFd> export_fd() const;

 private:
  friend class LocalMemory;
  LocalPiece() = default;

  GpuDriver* driver_ = nullptr;
  GpuMemory memory_;
  VaRange range_;
  GpuMapping mapping_;
  UniqueFd imported_fd_;  // Imported memory can not be exported anew.
  uint64_t size_bytes_ = 0;
  uint64_t allocation_offset_ = 0;
};

/// One device as one rank uses it. Thread safe.
class LocalMemory {
 public:
  /// `driver`: as the daemon names it, with its number of devices.
  static absl::StatusOr<std::unique_ptr<LocalMemory>> open(const std::string& driver,
                                                           uint32_t device_count, int device);

  uint64_t granularity_bytes() const { return driver_->devices()[device_].granularity_bytes; }
  /// `size_bytes` is rounded up to the granularity. Not zeroed.
  absl::StatusOr<std::unique_ptr<LocalPiece>> allocate(uint64_t size_bytes);
  /// `size_bytes` of somebody's allocation, from `pointer`.
  absl::StatusOr<std::unique_ptr<LocalPiece>> import(const void* pointer, uint64_t size_bytes);

  GpuContext& context() { return *context_; }

 private:
  LocalMemory(std::unique_ptr<GpuDriver> driver, int device)
      : driver_(std::move(driver)), device_(device) {}
  absl::Status map(LocalPiece* piece);

  const std::unique_ptr<GpuDriver> driver_;
  const int device_;
  std::unique_ptr<GpuContext> context_;
};

}  // namespace cco::compat
