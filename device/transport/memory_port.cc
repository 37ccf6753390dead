#include "device/transport/memory_port.h"

#include <cstring>
#include <mutex>

#include "client/base/status_macros.h"

namespace cco {
namespace {

class HostPort final : public MemoryPort {
 public:
  absl::Status copy(uint64_t destination, uint64_t source, uint64_t bytes) override {
    std::memmove(pointer(destination), pointer(source), bytes);
    return absl::OkStatus();
  }
  absl::Status read(absl::Span<uint8_t> into, uint64_t source) override {
    std::memcpy(into.data(), pointer(source), into.size());
    return absl::OkStatus();
  }
  absl::Status write(uint64_t destination, absl::Span<const uint8_t> from) override {
    std::memcpy(pointer(destination), from.data(), from.size());
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> fetch_add(uint64_t address, uint64_t delta) override {
    return __atomic_fetch_add(reinterpret_cast<uint64_t*>(address), delta, __ATOMIC_ACQ_REL);
  }

 private:
  static void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }
};

class GpuPort final : public MemoryPort {
 public:
  GpuPort(GpuContext* context, std::unique_ptr<GpuStream> stream)
      : context_(context), stream_(std::move(stream)) {}

  absl::Status copy(uint64_t destination, uint64_t source, uint64_t bytes) override {
    CCO_RETURN_IF_ERROR(stream_->copy(destination, source, bytes));
    return stream_->synchronize();
  }
  absl::Status read(absl::Span<uint8_t> into, uint64_t source) override {
    return context_->copy_to_host(into.data(), source, into.size());
  }
  absl::Status write(uint64_t destination, absl::Span<const uint8_t> from) override {
    return context_->copy_to_device(destination, from.data(), from.size());
  }
  absl::StatusOr<uint64_t> fetch_add(uint64_t address, uint64_t delta) override {
    // No driver adds from the CPU, and a kernel that adds may find no room beside the kernel that
    // waits for it. Among the engines of this process a mutex does.
    static std::mutex adding;
    const std::lock_guard<std::mutex> lock(adding);
    uint64_t before = 0;
    CCO_RETURN_IF_ERROR(context_->copy_to_host(&before, address, sizeof before));
    const uint64_t after = before + delta;
    CCO_RETURN_IF_ERROR(context_->copy_to_device(address, &after, sizeof after));
    return before;
  }

 private:
  GpuContext* const context_;
  const std::unique_ptr<GpuStream> stream_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryPort>> open_memory_port(GpuContext* context, bool is_host) {
  if (is_host) return std::unique_ptr<MemoryPort>(new HostPort);
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<GpuStream> stream, context->create_stream());
  return std::unique_ptr<MemoryPort>(new GpuPort(context, std::move(stream)));
}

}  // namespace cco
