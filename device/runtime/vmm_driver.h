// The memory half of the cuda and hip drivers.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "device/runtime/address_table.h"
#include "device/runtime/gpu_driver.h"
#include "device/runtime/vmm_dialect.h"

namespace cco {

class VmmDriver final : public GpuDriver {
 public:
  VmmDriver(const vmm::Api& api, std::unique_ptr<VmmDialect> dialect,
            std::vector<GpuDevice> devices, std::string library)
      : api_(api),
        dialect_(std::move(dialect)),
        devices_(std::move(devices)),
        library_(std::move(library)) {}

  std::string_view name() const override { return dialect_->name(); }
  std::string version() const override { return dialect_->version(); }
  std::string library() const override { return library_; }
  const std::vector<GpuDevice>& devices() const override { return devices_; }

  absl::StatusOr<GpuMemory> allocate(int device, uint64_t size_bytes, MemoryKind kind) override;
  absl::StatusOr<UniqueFd> export_fd(const GpuMemory& memory) override;
  /// Importers set the access of their mappings themselves.
  bool enforces_read_only() const override { return false; }
  absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd) override {
    return absl::UnimplementedError(
        "whoever imports memory of this driver can map it for writing: there is no read-only fd");
  }
  absl::StatusOr<GpuMemory> import_fd(int device, BorrowedFd fd, uint64_t size_bytes) override;
  absl::StatusOr<VaRange> reserve(int device, uint64_t size_bytes,
                                  uint64_t alignment_bytes) override;
  absl::StatusOr<GpuMapping> map(uint64_t address, const GpuMemory& memory) override;
  absl::Status set_access(const GpuMapping& mapping, int device, Access access) override;
  absl::StatusOr<std::unique_ptr<GpuContext>> open(int device) override;

 private:
  struct Allocation {
    vmm::Handle handle = 0;
    uint64_t size_bytes = 0;
    int device = 0;
    bool imported = false;
    UniqueFd exported;  ///< Where the dialect keeps it.
  };

  void release(GpuAllocationId id) noexcept override;
  void free_range(uint64_t address, uint64_t size_bytes) noexcept override;
  void unmap(uint64_t address, uint64_t size_bytes) noexcept override;

  /// INVALID_ARGUMENT: no such device. FAILED_PRECONDITION: it has no virtual memory management.
  absl::StatusOr<const GpuDevice*> usable(int device) const;
  GpuMemory add(Allocation allocation);
  absl::StatusOr<vmm::Address> reserve_in_library(int device, uint64_t size_bytes,
                                                  uint64_t alignment_bytes);
  absl::Status access_error(const GpuMapping& mapping, int memory_device, int device,
                            vmm::Result result);

  const vmm::Api api_;
  const std::unique_ptr<VmmDialect> dialect_;
  const std::vector<GpuDevice> devices_;
  const std::string library_;
  std::mutex mutex_;  ///< Never held across a call of the library: one stuck GPU delays no other.
  std::map<GpuAllocationId, Allocation> allocations_ ABSL_GUARDED_BY(mutex_);
  AddressTable addresses_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cco
