#include "daemon/core/request_log.h"

#include "client/base/status_macros.h"

namespace cco::memd {

bool RequestLog::begin(const std::string& id, uint64_t fingerprint, Waiter waiter) {
  auto [found, is_new] = entries_.try_emplace(id);
  Entry& entry = found->second;
  if (is_new) {
    entry.fingerprint = fingerprint;
    entry.waiters.push_back(std::move(waiter));
    return true;
  }
  if (entry.fingerprint != fingerprint) {
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

void RequestLog::end(const std::string& id, Outcome outcome) {
  auto found = entries_.find(id);
  CCO_ASSERT(found != entries_.end() && !found->second.ended);
  Entry& entry = found->second;
  entry.ended = true;
  entry.outcome = std::move(outcome);
  for (Waiter& waiter : std::exchange(entry.waiters, {})) waiter(entry.outcome);
  ended_.push_back(id);
  if (ended_.size() > capacity_) {
    entries_.erase(ended_.front());
    ended_.pop_front();
  }
}

}  // namespace cco::memd
