// Kernels beside a client: cco.h hands out memory and groups, and leaves execution to its caller.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cco/client.hpp"
#include "client/base/unique.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

/// The client's GPUs, opened for execution by the driver that the daemon uses. Thread safe.
class GpuSet {
 public:
  /// FAILED_PRECONDITION: the driver does not open here. `client` need not outlive the set.
  static absl::StatusOr<std::unique_ptr<GpuSet>> open(const Client& client);

  const cco_client_info& info() const { return info_; }
  /// By the client's ordinals.
  const std::vector<cco_gpu_info>& gpus() const { return gpus_; }
  bool is_host() const { return std::string(info_.driver) == "host"; }
  /// Opened when first asked for.
  absl::StatusOr<GpuContext*> context(int device);

 private:
  GpuSet() = default;

  cco_client_info info_{};
  std::vector<cco_gpu_info> gpus_;
  std::vector<int> driver_devices_;  // The driver's ordinals, which need not be the client's.
  std::unique_ptr<GpuDriver> driver_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<GpuContext>> contexts_ ABSL_GUARDED_BY(mutex_);
};

/// Result words of kernels (encoded WaitResults) in host memory that they write. Not thread safe.
class ResultWords {
 public:
  static absl::StatusOr<ResultWords> create(GpuContext& context, size_t count);
  ResultWords(ResultWords&&) = default;
  ~ResultWords();

  /// A kernel parameter.
  uint64_t device_address() const { return device_address_; }
  /// Before a launch: marks all words as not written.
  void reset();
  /// After it: OK if all words say "arrived". DEADLINE_EXCEEDED or ABORTED name the rank.
  absl::Status check(const std::string& what) const;

 private:
  ResultWords() = default;
  GpuContext* context_ = nullptr;
  UniqueMapping memory_;
  size_t count_ = 0;
  uint64_t device_address_ = 0;
};

/// Launches with arguments of exactly the kernel's parameter types (addresses as uint64_t).
template <typename... Arguments>
absl::Status launch(GpuStream& stream, GpuFunction function, LaunchShape shape,
                    const Arguments&... arguments) {
  void* const pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return stream.launch(function, shape, pointers);
}

}  // namespace cco
