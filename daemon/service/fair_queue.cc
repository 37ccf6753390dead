#include "daemon/service/fair_queue.h"

#include <utility>

namespace cco::memd {

void FairQueue::add(Source source, Executor::Task task) {
  waiting_[source].push_back(std::move(task));
  if (!std::exchange(is_posted_, true)) executor_.post([this] { run(); });
}

size_t FairQueue::waiting(Source source) const {
  const auto found = waiting_.find(source);
  return found == waiting_.end() ? 0 : found->second.size();
}

void FairQueue::run() {
  for (size_t i = 0; i < kAtOnce && !waiting_.empty(); ++i) {
    auto next = waiting_.upper_bound(last_);
    if (next == waiting_.end()) next = waiting_.begin();
    last_ = next->first;
    Executor::Task task = std::move(next->second.front());
    next->second.pop_front();
    if (next->second.empty()) waiting_.erase(next);
    task();
  }
  is_posted_ = !waiting_.empty();
  if (is_posted_) executor_.post([this] { run(); });
}

}  // namespace cco::memd
