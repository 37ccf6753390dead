// The `host` driver: memfd as HBM, threads as kernels. Complete: every feature runs on it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "device/runtime/address_table.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

class HostDriver final : public GpuDriver {
 public:
  /// `device_count`: 1..64. `bytes_per_device`: a multiple of 64 KiB; 0 shares out half of the
  /// machine's memory. $CCO_HOST_VISIBLE_DEVICES selects and orders what devices() shows.
  static absl::StatusOr<std::unique_ptr<HostDriver>> create(uint32_t device_count,
                                                            uint64_t bytes_per_device);

  std::string_view name() const override { return "host"; }
  std::string version() const override;
  std::string library() const override { return ""; }
  const std::vector<GpuDevice>& devices() const override { return devices_; }

  absl::StatusOr<GpuMemory> allocate(int device, uint64_t size_bytes, MemoryKind kind) override;
  absl::StatusOr<UniqueFd> export_fd(const GpuMemory& memory) override;
  bool enforces_read_only() const override { return true; }
  absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd exported) override;
  /// Takes any sealed memfd, also one that this driver did not make: see check_importable() for the
  /// rules.
  absl::StatusOr<GpuMemory> import_fd(int device, BorrowedFd fd, uint64_t size_bytes) override;
  absl::StatusOr<VaRange> reserve(int device, uint64_t size_bytes,
                                  uint64_t alignment_bytes) override;
  absl::StatusOr<GpuMapping> map(uint64_t address, const GpuMemory& memory) override;
  /// All devices of the host share one page table: a mapping is writable while any device may
  /// write.
  absl::Status set_access(const GpuMapping& mapping, int device, Access access) override;
  absl::StatusOr<std::unique_ptr<GpuContext>> open(int device) override;

  /// For tests: references that are alive, created or imported.
  size_t allocation_count() const;

 private:
  struct Allocation {
    UniqueFd fd;
    uint64_t size_bytes = 0;
    int device = 0;
    bool imported = false;
  };

  explicit HostDriver(std::vector<GpuDevice> devices);
  void release(GpuAllocationId id) noexcept override;
  void free_range(uint64_t address, uint64_t size_bytes) noexcept override;
  void unmap(uint64_t address, uint64_t size_bytes) noexcept override;

  GpuMemory add(Allocation allocation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Counts `size_bytes` against the device. RESOURCE_EXHAUSTED: it has less left.
  absl::Status charge(int device, uint64_t size_bytes);
  void uncharge(int device, uint64_t size_bytes);

  const std::vector<GpuDevice> devices_;
  mutable std::mutex mutex_;
  std::vector<uint64_t> used_bytes_ ABSL_GUARDED_BY(mutex_);  ///< By device; created memory only.
  std::map<GpuAllocationId, Allocation> allocations_ ABSL_GUARDED_BY(mutex_);
  AddressTable addresses_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cco
