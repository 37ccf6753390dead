// HIP's own ways: what its versions and its known faults ask for.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "device/runtime/hip_api.h"
#include "device/runtime/vmm_dialect.h"

namespace cco {

/// Held around HIP's memory calls: it has races between the process's threads, whichever driver
/// object they use.
std::mutex& hip_memory_mutex();

class HipDialect final : public VmmDialect {
 public:
  struct Options {
    std::string library;  ///< Its path, for people.
    int version = 0;      ///< hipRuntimeGetVersion().
    int device_count = 0;
    bool rdma = true;  ///< Whether to try memory that network adapters can reach.
  };

  HipDialect(const vmm::Api& api, const hip::Api& hip, Options options);
  /// For version(), before the first use.
  void name_devices(const std::vector<GpuDevice>& devices);

  std::string_view name() const override { return "hip"; }
  /// Says for every device that has been allocated on what it was found to give.
  std::string version() const override;
  std::string error_name(vmm::Result result) const override { return hip_.hipGetErrorName(result); }

  /// One at a time in the whole process: ROCr's memory management races between threads (ROCm/mori
  /// pull requests 455 and 476 saw 13 % of calls fail with 4 threads, 47 % with 8).
  vmm::Result run(int device, absl::FunctionRef<vmm::Result()> call) override;

  vmm::AllocationProp properties(int device, MemoryKind kind) override;
  absl::Status check_import(BorrowedFd fd, uint64_t size_bytes) const override;
  /// A pointer to the fd before ROCm 7.1, its value from then on; the runtime decides, not the
  /// headers.
  void* import_argument(int& fd) const override;
  int locate(vmm::Handle, int importer) override { return importer; }
  /// Five more tries within 31 ms: it fails spuriously (ROCm/rocm-systems issues 2516 and 2667).
  vmm::Result set_access(const vmm::Api& api, vmm::Address address, uint64_t size_bytes,
                         const vmm::AccessDesc& access) override;
  /// Older runtimes cannot export again once the first fd is closed (ROCm/rocm-systems pull request
  /// 8440).
  bool keeps_exported_fd() const override { return true; }

  absl::StatusOr<std::unique_ptr<VmmScope>> open_scope(int device) override;
  uint32_t clock_khz(int device) const override;
  uint32_t multiprocessor_count(int device) const override;
  vmm::Result prepare(vmm::Function) override { return vmm::kSuccess; }
  /// One at a time: hipStreamBatchMemOp is new, beta, and its documentation promises no order.
  vmm::Result write_words(vmm::Stream, absl::Span<const StreamWord>) override {
    return vmm::kNotSupported;
  }
  vmm::Result allow_shared(vmm::Function, uint32_t) override { return vmm::kSuccess; }

  /// Makes and frees one smallest allocation that can be exported.
  vmm::Result try_creation(int device);

 private:
  /// Found by trying; attributes do not tell.
  struct Abilities {
    bool uncached = false;
    bool rdma = false;
  };

  /// Nothing if there was no memory left to try with: then the next call tries again.
  std::optional<Abilities> probe(int device);
  /// Makes, maps and frees one smallest allocation.
  vmm::Result try_allocation(int device, const vmm::AllocationProp& prop);

  const vmm::Api api_;
  const hip::Api hip_;
  const Options options_;
  std::vector<std::string> uuids_;
  mutable std::mutex mutex_;
  std::vector<std::optional<Abilities>> abilities_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cco
