#include "device/transport/memory_port.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/base/unique.h"
#include "device/transport/engine_stream.h"

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
    uint64_t word = 0;
    if (from.size() == sizeof word && destination % sizeof word == 0) {
      // Whole, as hardware stores it: a kernel may be polling it.
      std::memcpy(&word, from.data(), sizeof word);
      __atomic_store_n(reinterpret_cast<uint64_t*>(destination), word, __ATOMIC_RELEASE);
    } else {
      std::memcpy(pointer(destination), from.data(), from.size());
    }
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> fetch_add(uint64_t address, uint64_t delta) override {
    return __atomic_fetch_add(reinterpret_cast<uint64_t*>(address), delta, __ATOMIC_ACQ_REL);
  }
  absl::StatusOr<uint64_t> compare_swap(uint64_t address, uint64_t expected,
                                        uint64_t desired) override {
    __atomic_compare_exchange_n(reinterpret_cast<uint64_t*>(address), &expected, desired, false,
                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expected;
  }

 private:
  static void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }
};

// One at a time among all engines of the machine: no driver updates a word from the CPU, and a
// kernel that does may find no room beside the kernel that waits for it. Ranks may be processes,
// and what all of them can lock, whoever they are, is a file that is always there; the kernel
// unlocks it when its holder dies.
class MachineLock {
 public:
  /// UNAVAILABLE: another process has held it for a second; an update takes microseconds.
  absl::Status lock() {
    threads_.lock();
    file_.reset(::open(kFile, O_RDONLY | O_CLOEXEC));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if ((error == EWOULDBLOCK || error == EINTR) && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
        continue;
      }
      unlock();
      return absl::UnavailableError(absl::StrCat(
          "updating a word of GPU memory takes a lock on ", kFile, ", and for a second: ",
          std::strerror(error), ". If a process of this machine is stopped, let it go on"));
    }
    return absl::OkStatus();
  }
  void unlock() {
    file_.reset();
    threads_.unlock();
  }

 private:
  static constexpr const char* kFile = "/dev/null";
  std::mutex threads_;
  UniqueFd file_;
};

MachineLock& updating() {
  static MachineLock lock;
  return lock;
}

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
    return update(address, [delta](uint64_t before) { return before + delta; });
  }
  absl::StatusOr<uint64_t> compare_swap(uint64_t address, uint64_t expected,
                                        uint64_t desired) override {
    return update(address, [=](uint64_t before) { return before == expected ? desired : before; });
  }

 private:
  template <typename F>
  absl::StatusOr<uint64_t> update(uint64_t address, F after) {
    CCO_RETURN_IF_ERROR(updating().lock());
    absl::StatusOr<uint64_t> before = update_locked(address, after);
    updating().unlock();
    return before;
  }
  template <typename F>
  absl::StatusOr<uint64_t> update_locked(uint64_t address, F after) {
    uint64_t word = 0;
    CCO_RETURN_IF_ERROR(context_->copy_to_host(&word, address, sizeof word));
    const uint64_t before = word;
    word = after(before);
    CCO_RETURN_IF_ERROR(context_->copy_to_device(address, &word, sizeof word));
    return before;
  }

  GpuContext* const context_;
  const std::unique_ptr<GpuStream> stream_;
};

}  // namespace

std::unique_ptr<MemoryPort> open_host_port() { return std::make_unique<HostPort>(); }

absl::StatusOr<std::unique_ptr<MemoryPort>> open_memory_port(GpuContext* context, bool is_host,
                                                             uint64_t scratch) {
  if (is_host) return open_host_port();
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<GpuStream> stream, open_engine_stream(context, scratch));
  return std::unique_ptr<MemoryPort>(new GpuPort(context, std::move(stream)));
}

}  // namespace cco
