// Memory of this rank alone: made here, or somebody else's under a second address.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "cco/client.hpp"
#include "device/runtime/gpu_driver.h"

namespace cco::compat {

/// A piece that kernels of this process reach at `address`, and that can be handed to the daemon.
class LocalPiece {
 public:
  uint64_t address() const { return info_.address; }
  uint64_t size_bytes() const { return info_.size_bytes; }
  uint64_t allocation_bytes() const { return info_.allocation_bytes; }
  uint64_t allocation_offset() const { return info_.allocation_offset; }
  int fd() const { return info_.fd; }  ///< An export of the allocation; the piece keeps it.

 private:
  friend class LocalMemory;
  LocalPiece(::cco::Memory memory, const cco_memory_info& info)
      : memory_(std::move(memory)), info_(info) {}

  ::cco::Memory memory_;
  cco_memory_info info_;
};

/// One device as one rank uses it. Thread safe.
class LocalMemory {
 public:
  /// `client` outlives it.
  static absl::StatusOr<std::unique_ptr<LocalMemory>> open(const ::cco::Client& client, int device);

  uint64_t granularity_bytes() const { return granularity_bytes_; }
  /// `size_bytes` is rounded up to the granularity. Not zeroed.
  absl::StatusOr<std::unique_ptr<LocalPiece>> allocate(uint64_t size_bytes);
  /// `size_bytes` of somebody's allocation, from `pointer`.
  absl::StatusOr<std::unique_ptr<LocalPiece>> import(const void* pointer, uint64_t size_bytes);

  GpuContext& context() { return *context_; }

 private:
  LocalMemory(const ::cco::Client& client, int device) : client_(client), device_(device) {}
  static absl::StatusOr<std::unique_ptr<LocalPiece>> describe(::cco::Memory memory);

  const ::cco::Client& client_;
  const int device_;
  uint64_t granularity_bytes_ = 0;
  std::unique_ptr<GpuDriver> driver_;  // For copies.
  std::unique_ptr<GpuContext> context_;
};

}  // namespace cco::compat
