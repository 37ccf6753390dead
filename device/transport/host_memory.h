// Pinned host memory that kernels and engines share: rings, completions, doorbells.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// Owner of zeroed pages that `context`'s kernels reach. The context must outlive it.
class HostMemory {
 public:
  HostMemory() = default;
  static absl::StatusOr<HostMemory> allocate(GpuContext* context, uint64_t size_bytes);
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~HostMemory();

  char* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  /// For kernels.
  uint64_t address() const { return address_; }

 private:
  GpuContext* context_ = nullptr;
  char* data_ = nullptr;
  uint64_t size_bytes_ = 0;
  uint64_t address_ = 0;
};

}  // namespace cco
