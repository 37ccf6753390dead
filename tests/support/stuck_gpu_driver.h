// A GpuDriver with one device that hangs until a test lets it go on.
#pragma once

#include <condition_variable>
#include <mutex>

#include "tests/support/forwarding_gpu_driver.h"

namespace cco {

/// Passes everything on, but allocations on one device wait until they are let through.
class StuckGpuDriver final : public ForwardingGpuDriver {
 public:
  StuckGpuDriver(GpuDriver& real, int device) : ForwardingGpuDriver(real), device_(device) {}
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

  absl::StatusOr<GpuMemory> allocate(int device, uint64_t size_bytes, MemoryKind kind) override {
    if (device == device_) {
      std::unique_lock<std::mutex> lock(mutex_);
      entered_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    return ForwardingGpuDriver::allocate(device, size_bytes, kind);
  }

 private:
  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool entered_ = false;
  bool open_ = false;
};

}  // namespace cco
