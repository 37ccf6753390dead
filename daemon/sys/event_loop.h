// The core's thread: file descriptors, timers and posted tasks, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "daemon/ports/executor.h"

namespace cco::memd {

class EventLoop final : public Executor {
 public:
  static absl::StatusOr<std::unique_ptr<EventLoop>> create();

  void post(Task task) override;
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  TimerId call_at(TimePoint when, Task task) override;
  void cancel(TimerId timer) override;

  /// Calls `ready` whenever `fd` can be read or has hung up. The caller keeps the fd open until
  /// unwatch().
  absl::Status watch(BorrowedFd fd, Task ready);
  void unwatch(BorrowedFd fd);

  /// Runs at the end of every round: after all that was ready, due or posted at its beginning.
  void set_after_round(Task task) { after_round_ = std::move(task); }

  /// Serves until quit(). Tasks that were posted before quit() still run.
  void run();
  void quit();  ///< From any thread.

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void run_posted();
  void run_timers();
  int next_timeout_ms() const;

  UniqueFd epoll_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mutex_);
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;
  Task after_round_;
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
  std::map<TimerId, TimePoint> timer_times_;
  std::map<uint64_t, std::shared_ptr<Task>> watches_;  // Shared: one may remove itself as it runs.
  std::map<int, uint64_t> watch_ids_;
  uint64_t last_timer_ = 0;
  uint64_t last_watch_ = 0;
};

}  // namespace cco::memd
