// A thread that polls queues which kernels write. Nothing a GPU stores wakes a CPU thread, so an
// idle engine naps, longer and longer, up to a limit.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace cco {

class EngineThread {
 public:
  /// `step` does what is waiting, in bounded time, and returns whether there was anything. It is
  /// called from the engine's thread alone.
  explicit EngineThread(std::function<bool()> step);
  /// Ends after the step that is running.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  void run();

  const std::function<bool()> step_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace cco
