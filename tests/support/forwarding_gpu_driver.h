// A GpuDriver that passes every call on to a real one: what tests build theirs on.
#pragma once

#include "client/base/status_macros.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// Objects that it hands out belong to `real`, so ownership, ledgers and fds are the real driver's.
class ForwardingGpuDriver : public GpuDriver {
 public:
  explicit ForwardingGpuDriver(GpuDriver& real) : real_(real) {}

  std::string_view name() const override { return real_.name(); }
  std::string version() const override { return real_.version(); }
  std::string library() const override { return real_.library(); }
  const std::vector<GpuDevice>& devices() const override { return real_.devices(); }

  absl::StatusOr<GpuMemory> allocate(int device, uint64_t size_bytes, MemoryKind kind) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.allocate(device, size_bytes, kind);
  }
  absl::StatusOr<UniqueFd> export_fd(const GpuMemory& memory) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.export_fd(memory);
  }
  bool enforces_read_only() const override { return real_.enforces_read_only(); }
  absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd exported) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.read_only_fd(exported);
  }
  absl::StatusOr<GpuMemory> import_fd(int device, BorrowedFd fd, uint64_t size_bytes) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.import_fd(device, fd, size_bytes);
  }
  absl::StatusOr<VaRange> reserve(int device, uint64_t size_bytes,
                                  uint64_t alignment_bytes) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.reserve(device, size_bytes, alignment_bytes);
  }
  absl::StatusOr<GpuMapping> map(uint64_t address, const GpuMemory& memory) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.map(address, memory);
  }
  absl::Status set_access(const GpuMapping& mapping, int device, Access access) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.set_access(mapping, device, access);
  }
  absl::StatusOr<std::unique_ptr<GpuContext>> open(int device) override {
    CCO_RETURN_IF_ERROR(before_call());
    return real_.open(device);
  }

 private:
  /// Of every call that can fail; an error is the call's.
  virtual absl::Status before_call() { return absl::OkStatus(); }

  void release(GpuAllocationId) noexcept override {}  // Nothing is this driver's own.
  void free_range(uint64_t, uint64_t) noexcept override {}
  void unmap(uint64_t, uint64_t) noexcept override {}

  GpuDriver& real_;
};

}  // namespace cco
