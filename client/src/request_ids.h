// Which request_id an attempt at a call takes.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/src/connection.h"

namespace cco::client {

/// If no answer came to an attempt, nobody knows whether the daemon has carried it out. The next
/// attempt at the same call then repeats its id, and the daemon joins the two. Thread safe.
class RequestIds {
 public:
  /// `call`: what makes two calls the same, request_id, time-out and offer apart.
  std::string begin(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto entry = unanswered_.begin(); entry != unanswered_.end(); ++entry) {
      if (entry->first != call) continue;
      std::string id = std::move(entry->second);
      unanswered_.erase(entry);
      return id;
    }
    return new_request_id();
  }

  void end(const std::string& call, const std::string& id, const absl::Status& outcome) {
    if (answered_by_daemon(outcome)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (unanswered_.size() == kMaxUnanswered) unanswered_.pop_front();
    unanswered_.emplace_back(call, id);
  }

 private:
  static constexpr size_t kMaxUnanswered = 64;  // The daemon remembers no more answers by default.
  std::mutex mutex_;
  std::list<std::pair<std::string, std::string>> unanswered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cco::client
