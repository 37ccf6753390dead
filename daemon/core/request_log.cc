#include "daemon/core/request_log.h"

#include "client/base/status_macros.h"

namespace cco::memd {

bool RequestLog::begin(const std::string& id, const std::string& request, Waiter waiter) {
  auto [found, is_new] = entries_.try_emplace(id);
  Entry& entry = found->second;
  if (is_new) {
    entry.request = request;
    entry.waiters.push_back(std::move(waiter));
    return true;
  }
  if (entry.request != request) {
    waiter({absl::InvalidArgumentError(
                "this request_id was used for another call; every call takes a fresh one"),
            ""});
  } else if (entry.ended) {
    waiter(entry.outcome);
  } else {
    entry.waiters.push_back(std::move(waiter));
  }
  return false;
}

std::optional<std::string> RequestLog::end(const std::string& id, Outcome outcome) {
  auto found = entries_.find(id);
  CCO_ASSERT(found != entries_.end() && !found->second.ended);
  Entry& entry = found->second;
  entry.ended = true;
  entry.outcome = std::move(outcome);
  for (Waiter& waiter : std::exchange(entry.waiters, {})) waiter(entry.outcome);
  if (absl::IsUnavailable(entry.outcome.status)) {
    entries_.erase(found);
    return std::nullopt;
  }
  ended_.push_back(id);
  if (ended_.size() <= capacity_) return std::nullopt;
  std::string oldest = std::move(ended_.front());
  ended_.pop_front();
  entries_.erase(oldest);
  return oldest;
}

const RequestLog::Entry* RequestLog::find(const std::string& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

void RequestLog::restore(const std::string& id, std::string request, Outcome outcome) {
  if (!begin(id, request, [](const Outcome&) {})) return;
  (void)end(id, std::move(outcome));
}

}  // namespace cco::memd
