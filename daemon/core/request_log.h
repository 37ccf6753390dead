// Answers to a session's recent mutations, so that a retry with the same request id gets the first
// answer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace cco::memd {

/// What a call ended with: its status, and the encoded response if that is OK.
struct Outcome {
  absl::Status status;
  std::string response;
};

class RequestLog {
 public:
  using Waiter = absl::AnyInvocable<void(const Outcome&)>;

  explicit RequestLog(uint32_t capacity) : capacity_(capacity) {}

  /// Registers a call. True: it is new; run it and call end(). False: `waiter` has been, or will
  /// be, given the outcome of the first call with this id. An id that is used again for another
  /// `request` (its name and bytes, time-out apart) gives INVALID_ARGUMENT.
  bool begin(const std::string& id, const std::string& request, Waiter waiter);
  /// UNAVAILABLE is an answer, but no outcome: the same call may be made again with the same id.
  /// Returns the id that was forgotten for this one, if any.
  std::optional<std::string> end(const std::string& id, Outcome outcome);

  struct Entry {
    std::string request;
    bool ended = false;
    Outcome outcome;
    std::vector<Waiter> waiters;
  };
  /// Null: not known, or forgotten.
  const Entry* find(const std::string& id) const;
  /// What an earlier log knew, oldest first.
  void restore(const std::string& id, std::string request, Outcome outcome);

 private:
  uint32_t capacity_;
  std::unordered_map<std::string, Entry> entries_;
  std::deque<std::string> ended_;  // Oldest first; those running are never forgotten.
};

}  // namespace cco::memd
