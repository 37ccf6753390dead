// Device memory of this process alone: made here, or somebody else's under a second address.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "client/src/client.h"
#include "device/runtime/gpu_driver.h"

namespace cco::client {

/// Thread safe: constant once made.
class Memory {
 public:
  /// `size_bytes` is rounded up to the granularity. NOT_FOUND: no such device.
  static absl::StatusOr<std::shared_ptr<Memory>> create(std::shared_ptr<Client> client, int device,
                                                        uint64_t size_bytes);
  /// `size_bytes` of somebody's allocation, from `address`. Errors: those of find_foreign_memory().
  static absl::StatusOr<std::shared_ptr<Memory>> import(std::shared_ptr<Client> client, int device,
                                                        const void* address, uint64_t size_bytes);

  int device() const { return device_; }
  uint64_t address() const { return range_.address() + allocation_offset_; }
  uint64_t size_bytes() const { return size_bytes_; }
  BorrowedFd fd() const { return fd_; }
  uint64_t allocation_bytes() const { return memory_.size_bytes(); }
  uint64_t allocation_offset() const { return allocation_offset_; }

 private:
  Memory(std::shared_ptr<Client> client, int device, uint64_t size_bytes)
      : client_(std::move(client)), device_(device), size_bytes_(size_bytes) {}
  static absl::StatusOr<std::shared_ptr<Memory>> begin(std::shared_ptr<Client> client, int device,
                                                       uint64_t size_bytes);
  absl::Status map();
  uint64_t granularity_bytes() const;

  const std::shared_ptr<Client> client_;  // Its driver.
  const int device_;
  const uint64_t size_bytes_;
  UniqueFd fd_;  // An export: imported memory cannot be exported anew.
  GpuMemory memory_;
  VaRange range_;
  GpuMapping mapping_;
  uint64_t allocation_offset_ = 0;
};

}  // namespace cco::client
