#include "daemon/sys/gpu_workers.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/base/status_macros.h"

namespace cco::memd {

class GpuWorkers::Worker {
 public:
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void run(Executor::Task task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    wake_.notify_all();
  }

  Milliseconds busy() const {
    std::lock_guard lock(mutex_);
    if (!running_since_.has_value()) return Milliseconds(0);
    return std::chrono::ceil<Milliseconds>(std::chrono::steady_clock::now() - *running_since_);
  }

  bool wait_idle(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    return wake_.wait_until(lock, deadline,
                            [this] { return tasks_.empty() && !running_since_.has_value(); });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      Executor::Task task = std::move(tasks_.front());
      tasks_.pop_front();
      running_since_ = std::chrono::steady_clock::now();
      lock.unlock();
      task();
      task = nullptr;  // What it holds may call the driver, too.
      lock.lock();
      running_since_.reset();
      wake_.notify_all();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Executor::Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::optional<TimePoint> running_since_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

GpuWorkers::GpuWorkers(GpuDriver& driver, const std::vector<GpuDevice>& closed, Executor& executor)
    : driver_(driver), executor_(executor), gpus_(driver.devices()) {
  gpus_.insert(gpus_.end(), closed.begin(), closed.end());
  for (size_t i = 0; i < gpus_.size(); ++i) workers_.push_back(std::make_unique<Worker>());
}

GpuWorkers::~GpuWorkers() = default;

void GpuWorkers::run(int gpu, Executor::Task task) { workers_[gpu]->run(std::move(task)); }

void GpuWorkers::allocate(int gpu, uint64_t size_bytes, MemoryKind kind, Done done) {
  run(gpu, [this, gpu, size_bytes, kind, done = std::move(done)]() mutable {
    const auto make = [&]() -> absl::StatusOr<SlabMemory> {
      CCO_ASSIGN_OR_RETURN(GpuMemory memory, driver_.allocate(gpu, size_bytes, kind));
      CCO_ASSIGN_OR_RETURN(UniqueFd fd, driver_.export_fd(memory));
      return SlabMemory{std::move(memory), std::move(fd)};
    };
    executor_.post([done = std::move(done), made = make()]() mutable { done(std::move(made)); });
  });
}

void GpuWorkers::adopt(int gpu, UniqueFd fd, uint64_t size_bytes, Done done) {
  run(gpu, [this, gpu, fd = std::move(fd), size_bytes, done = std::move(done)]() mutable {
    const auto make = [&]() -> absl::StatusOr<SlabMemory> {
      CCO_ASSIGN_OR_RETURN(GpuMemory memory, driver_.import_fd(gpu, fd, size_bytes));
      return SlabMemory{std::move(memory), std::move(fd)};
    };
    executor_.post([done = std::move(done), made = make()]() mutable { done(std::move(made)); });
  });
}

void GpuWorkers::release(int gpu, SlabMemory memory) {
  run(gpu, [memory = std::move(memory)]() mutable { memory = SlabMemory(); });
}

void GpuWorkers::when_idle(int gpu, Executor::Task done) {
  run(gpu, [this, done = std::move(done)]() mutable { executor_.post(std::move(done)); });
}

Milliseconds GpuWorkers::busy(int gpu) const { return workers_[gpu]->busy(); }

bool GpuWorkers::drain(Milliseconds timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  bool idle = true;
  for (auto& worker : workers_) idle &= worker->wait_idle(deadline);
  return idle;
}

}  // namespace cco::memd
