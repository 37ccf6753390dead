// Port: the thread that core runs on, its clock and its timers.
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/functional/any_invocable.h"

namespace cco::memd {

using TimePoint = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;
enum class TimerId : uint64_t {};

class Executor {
 public:
  using Task = absl::AnyInvocable<void()>;

  virtual ~Executor() = default;

  /// Runs `task` on the core's thread, after what was posted before. From any thread.
  virtual void post(Task task) = 0;

  // The rest is for the core's thread alone.
  virtual TimePoint now() const = 0;
  virtual TimerId call_at(TimePoint when, Task task) = 0;
  /// Harmless for timers that have fired.
  virtual void cancel(TimerId timer) = 0;
};

}  // namespace cco::memd
