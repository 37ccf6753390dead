#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cco/device/host_launch.h"
#include "client/base/status_macros.h"
#include "device/runtime/host_context.h"
#include "device/runtime/stream_words.h"

namespace cco {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxQueuedWork = 1024;  // Beyond it, the caller waits: as on GPUs.
constexpr uint32_t kMaxThreadsPerBlock = 1024;

/// A launch's own copy of its arguments.
class ArgumentCopy {
 public:
  ArgumentCopy(absl::Span<const uint32_t> sizes, absl::Span<void* const> arguments) {
    size_t units = 0;
    for (uint32_t size : sizes) units += units_of(size);
    storage_.resize(units);
    pointers_.reserve(sizes.size());
    size_t next = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::memcpy(&storage_[next], arguments[i], sizes[i]);
      pointers_.push_back(&storage_[next]);
      next += units_of(sizes[i]);
    }
  }
  void** pointers() { return pointers_.data(); }

 private:
  using Unit = std::max_align_t;
  static size_t units_of(uint32_t size) { return (size + sizeof(Unit) - 1) / sizeof(Unit); }

  std::vector<Unit> storage_;
  std::vector<void*> pointers_;
};

class HostStream final : public GpuStream {
 public:
  HostStream() : worker_([this] { run(); }) {}

  ~HostStream() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  absl::Status launch(GpuFunction function, LaunchShape shape,
                      absl::Span<void* const> arguments) override {
    const auto& kernel = *static_cast<const HostFunction*>(function.handle());
    if (shape.blocks == 0 || shape.threads == 0 || shape.threads > kMaxThreadsPerBlock) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "launch \"%s\" with %d blocks of %d threads: at least 1 block, and 1 to %d threads",
          kernel.name, shape.blocks, shape.threads, kMaxThreadsPerBlock));
    }
    if (arguments.size() != kernel.argument_bytes.size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("launch \"%s\" with %d arguments: it takes %d", kernel.name,
                          arguments.size(), kernel.argument_bytes.size()));
    }
    // Shared, because std::function may copy; the pointers inside must keep pointing into it.
    auto copy = std::make_shared<ArgumentCopy>(kernel.argument_bytes, arguments);
    enqueue([&kernel, shape, copy] {
      device::launch_on_host({shape.blocks, shape.threads, shape.shared_bytes}, kernel.function,
                             copy->pointers());
    });
    return absl::OkStatus();
  }

  absl::Status copy(uint64_t destination, uint64_t source, uint64_t size_bytes) override {
    enqueue([=] {
      std::memmove(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source),
                   size_bytes);
    });
    return absl::OkStatus();
  }

  absl::Status write_words(absl::Span<const StreamWord> words) override {
    CCO_RETURN_IF_ERROR(check_words(words));
    enqueue([copy = std::vector<StreamWord>(words.begin(), words.end())] {
      for (const StreamWord& word : copy) {
        __atomic_store_n(reinterpret_cast<uint64_t*>(word.address), word.value, __ATOMIC_RELEASE);
      }
    });
    return absl::OkStatus();
  }

  absl::Status synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.empty() && !busy_; });
    return std::exchange(failure_, absl::OkStatus());
  }

  absl::Status mark(int index) override {
    if (index != 0 && index != 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("mark %d: a stream has marks 0 and 1", index));
    }
    enqueue([this, index] {
      const std::lock_guard lock(mutex_);
      marks_[index] = Clock::now();
    });
    return absl::OkStatus();
  }

  absl::StatusOr<double> elapsed_us() override {
    const std::lock_guard lock(mutex_);
    if (!marks_[0].has_value() || !marks_[1].has_value()) {
      return absl::FailedPreconditionError(
          "elapsed time: mark(0) and mark(1) must have been passed first");
    }
    return std::chrono::duration<double, std::micro>(*marks_[1] - *marks_[0]).count();
  }

 private:
  void enqueue(std::function<void()> work) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.size() < kMaxQueuedWork; });
    work_.push_back(std::move(work));
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !work_.empty() || ending_; });
      if (work_.empty()) return;
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      const absl::Status result = perform(work);
      lock.lock();
      busy_ = false;
      failure_.Update(result);
      changed_.notify_all();
    }
  }

  static absl::Status perform(const std::function<void()>& work) {
    try {
      work();
      return absl::OkStatus();
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(error.what());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  ///< The first since the last synchronize().
  std::optional<Clock::time_point> marks_[2] ABSL_GUARDED_BY(mutex_);
  std::thread worker_;  ///< Last: it uses all of the above.
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuStream>> create_host_stream() {
  try {
    return std::unique_ptr<GpuStream>(new HostStream);
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("start a stream's thread: ", error.what()));
  }
}

}  // namespace cco
