#include "daemon/service/fair_queue.h"

#include <utility>

namespace cco::memd {
namespace {

template <typename Map>
typename Map::iterator next_after(Map& map, uint64_t* last) {
  auto next = map.upper_bound(*last);
  if (next == map.end()) next = map.begin();
  *last = next->first;
  return next;
}

}  // namespace

void FairQueue::add(const Source& source, Executor::Task task) {
  owners_[source.owner].waiting[source.connection].push_back(std::move(task));
  if (!std::exchange(is_posted_, true)) executor_.post([this] { run(); });
}

size_t FairQueue::waiting(const Source& source) const {
  const auto owner = owners_.find(source.owner);
  if (owner == owners_.end()) return 0;
  const auto found = owner->second.waiting.find(source.connection);
  return found == owner->second.waiting.end() ? 0 : found->second.size();
}

void FairQueue::run() {
  for (size_t i = 0; i < kAtOnce && !owners_.empty(); ++i) {
    const auto owner = next_after(owners_, &last_);
    auto& waiting = owner->second.waiting;
    const auto next = next_after(waiting, &owner->second.last);
    Executor::Task task = std::move(next->second.front());
    next->second.pop_front();
    if (next->second.empty()) waiting.erase(next);
    task();
    if (waiting.empty())
      owners_.erase(owner);  // Not before: what the task adds comes behind others'.
  }
  is_posted_ = !owners_.empty();
  if (is_posted_) executor_.post([this] { run(); });
}

}  // namespace cco::memd
