#include "device/runtime/host_context.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cco {
namespace {

constexpr uint32_t kTicksPerMillisecond = 1'000'000;  // ticks() on the host counts nanoseconds.

class HostContext final : public GpuContext {
 public:
  explicit HostContext(int device) : device_(device) {}

  int device() const override { return device_; }
  uint32_t clock_khz() const override { return kTicksPerMillisecond; }
  uint32_t multiprocessor_count() const override {
    return std::max(1u, std::thread::hardware_concurrency());
  }

  absl::Status copy_to_device(uint64_t destination, const void* source,
                              uint64_t size_bytes) override {
    std::memcpy(reinterpret_cast<void*>(destination), source, size_bytes);
    return absl::OkStatus();
  }
  absl::Status copy_to_host(void* destination, uint64_t source, uint64_t size_bytes) override {
    std::memcpy(destination, reinterpret_cast<const void*>(source), size_bytes);
    return absl::OkStatus();
  }
  absl::Status fill_zero(uint64_t destination, uint64_t size_bytes) override {
    std::memset(reinterpret_cast<void*>(destination), 0, size_bytes);
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> register_host(void* address, uint64_t) override {
    return reinterpret_cast<uint64_t>(address);
  }
  void unregister_host(void*) noexcept override {}

  absl::StatusOr<GpuFunction> load(const KernelModule& module, std::string_view kernel) override {
    if (module.host_functions.empty()) {
      const auto arch = [](std::string* out, const KernelImage& image) { out->append(image.arch); };
      return absl::FailedPreconditionError(
          absl::StrFormat("module \"%s\" has no kernels for the host, only for: %s", module.name,
                          absl::StrJoin(module.images, ", ", arch)));
    }
    for (const HostFunction& function : module.host_functions) {
      if (function.name == kernel) return GpuFunction(const_cast<HostFunction*>(&function));
    }
    const auto name = [](std::string* out, const HostFunction& function) {
      out->append(function.name);
    };
    return absl::NotFoundError(absl::StrFormat("module \"%s\" has no kernel \"%s\", only: %s",
                                               module.name, kernel,
                                               absl::StrJoin(module.host_functions, ", ", name)));
  }

  absl::StatusOr<std::unique_ptr<GpuStream>> create_stream(StreamUse) override {
    return create_host_stream();
  }

 private:
  const int device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuContext>> create_host_context(int device) {
  return std::unique_ptr<GpuContext>(new HostContext(device));
}

}  // namespace cco
