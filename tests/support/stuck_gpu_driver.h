// A GpuDriver with one device that hangs until a test lets it go on.
#pragma once

#include <condition_variable>
#include <mutex>

#include "device/runtime/gpu_driver.h"

namespace cco {

/// Passes everything on, but allocations on one device wait until they are let through.
class StuckGpuDriver final : public GpuDriver {
 public:
  StuckGpuDriver(GpuDriver& real, int device) : real_(real), device_(device) {}
  /// Until an allocation has come in and hangs.
  void wait_until_entered() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return entered_; });
  }
  void let_through() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  std::string_view name() const override { return real_.name(); }
  std::string version() const override { return real_.version(); }
  const std::vector<GpuDevice>& devices() const override { return real_.devices(); }
  absl::StatusOr<GpuMemory> allocate(int device, uint64_t size_bytes, MemoryKind kind) override {
    if (device == device_) {
      std::unique_lock<std::mutex> lock(mutex_);
      entered_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    return real_.allocate(device, size_bytes, kind);
  }
  absl::StatusOr<UniqueFd> export_fd(const GpuMemory& memory) override {
    return real_.export_fd(memory);
  }
  absl::StatusOr<GpuMemory> import_fd(int device, BorrowedFd fd, uint64_t size_bytes) override {
    return real_.import_fd(device, fd, size_bytes);
  }
  absl::StatusOr<VaRange> reserve(int device, uint64_t size, uint64_t alignment) override {
    return real_.reserve(device, size, alignment);
  }
  absl::StatusOr<GpuMapping> map(uint64_t address, const GpuMemory& memory) override {
    return real_.map(address, memory);
  }
  absl::Status set_access(const GpuMapping& mapping, int device, Access access) override {
    return real_.set_access(mapping, device, access);
  }
  absl::StatusOr<std::unique_ptr<GpuContext>> open(int device) override {
    return real_.open(device);
  }

 private:
  void release(GpuAllocationId) noexcept override {}  // Objects belong to `real_`.
  void free_range(uint64_t, uint64_t) noexcept override {}
  void unmap(uint64_t, uint64_t) noexcept override {}

  GpuDriver& real_;
  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool entered_ = false;
  bool open_ = false;
};

}  // namespace cco
