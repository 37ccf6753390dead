#include "daemon/sys/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll or eventfd: ", std::strerror(errno)));
  }
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake)));
  CCO_RETURN_IF_ERROR(loop->watch(loop->wake_, [raw = loop.get()] {
    uint64_t count;
    while (::read(raw->wake_.get(), &count, sizeof count) == sizeof count) {
    }
  }));
  return loop;
}

void EventLoop::post(Task task) {
  bool was_empty;
  {
    std::lock_guard lock(mutex_);
    was_empty = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (!was_empty) return;
  const uint64_t one = 1;
  CCO_ASSERT(::write(wake_.get(), &one, sizeof one) == sizeof one || errno == EAGAIN);
}

void EventLoop::quit() {
  post([this] {
    std::lock_guard lock(mutex_);
    quit_ = true;
  });
}

TimerId EventLoop::call_at(TimePoint when, Task task) {
  const TimerId id{++last_timer_};
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_.emplace(id, when);
  return id;
}

void EventLoop::cancel(TimerId timer) {
  const auto found = timer_times_.find(timer);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, timer});
  timer_times_.erase(found);
}

absl::Status EventLoop::watch(BorrowedFd fd, Task ready) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = ++last_watch_;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  }
  watch_ids_[fd.get()] = last_watch_;
  watches_[last_watch_] = std::make_shared<Task>(std::move(ready));
  return absl::OkStatus();
}

void EventLoop::unwatch(BorrowedFd fd) {
  const auto id = watch_ids_.find(fd.get());
  if (id == watch_ids_.end()) return;
  watches_.erase(id->second);
  watch_ids_.erase(id);
  CCO_ASSERT(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr) == 0);
}

int EventLoop::next_timeout_ms() const {
  if (timers_.empty()) return -1;
  const auto left = std::chrono::ceil<Milliseconds>(timers_.begin()->first.first - now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

void EventLoop::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now()) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::run() {
  for (;;) {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_.get(), events, std::size(events), next_timeout_ms());
    CCO_ASSERT(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; ++i) {
      // An earlier one of this batch may have removed this watch. Its fd's number may serve anew.
      const auto found = watches_.find(events[i].data.u64);
      if (found == watches_.end()) continue;
      const std::shared_ptr<Task> ready = found->second;
      (*ready)();
    }
    run_timers();
    run_posted();
    if (after_round_) after_round_();
    std::lock_guard lock(mutex_);
    if (quit_ && posted_.empty()) return;
  }
}

}  // namespace cco::memd
