// A thread that polls queues which kernels write. Nothing a GPU stores wakes a CPU thread, so an
// idle engine naps, longer and longer, up to a limit.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace cco {

/// What an engine does while it finds nothing to do.
struct EnginePace {
  std::chrono::microseconds eager;  ///< How long after the last work it naps at the earliest.
  uint32_t looks_per_yield;         ///< Until then it offers its core to others this seldom.
};
/// Kernels are threads of this machine: they need its cores, sooner than an engine needs to know.
inline constexpr EnginePace kHostPace{std::chrono::microseconds(200), 1};
/// Kernels run elsewhere, and a step of a model between two of their calls lasts milliseconds: an
/// engine that naps answers up to a millisecond late. A yield takes longer than a look.
inline constexpr EnginePace kGpuPace{std::chrono::microseconds(5000), 64};

class EngineThread {
 public:
  /// `step` does what is waiting, in bounded time, and returns whether there was anything. It is
  /// called from the engine's thread alone.
  explicit EngineThread(std::function<bool()> step, const EnginePace& pace);
  /// Ends after the step that is running.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  void run();

  const std::function<bool()> step_;
  const EnginePace pace_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace cco
