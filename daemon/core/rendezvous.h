// A collective call in progress: ranks arrive with their arguments, wait, and all get their answers
// together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/core/error.h"
#include "daemon/ports/executor.h"

namespace cco::memd {

template <typename Result>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Result>)>;

inline std::string rank_list(const std::vector<uint32_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ","));
}

template <typename Args, typename Result>
class Rendezvous {
 public:
  /// `what` names the call in messages ("barrier #7"). `on_empty` runs when the last waiter has
  /// timed out or gone; it must not destroy this. `describe_missing`: what time-outs add of a rank
  /// that has not come.
  Rendezvous(Executor& executor, std::string what, uint32_t size,
             absl::AnyInvocable<void()> on_empty,
             absl::AnyInvocable<std::string(uint32_t rank)> describe_missing = nullptr)
      : executor_(executor),
        what_(std::move(what)),
        on_empty_(std::move(on_empty)),
        describe_missing_(std::move(describe_missing)),
        waiters_(size),
        excused_(size, false),
        gave_up_(size, false) {}
  ~Rendezvous() { fail(absl::CancelledError(absl::StrCat(what_, " was given up"))); }
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(waiters_.size()); }
  const std::string& what() const { return what_; }
  bool has(uint32_t rank) const { return waiters_[rank].has_value(); }
  bool complete() const { return missing().empty(); }
  bool empty() const { return ranks(true).empty(); }
  /// Nobody waits, and nothing is being done for those who did.
  bool is_idle() const { return empty() && !is_doing(); }
  const Args& args(uint32_t rank) const { return waiters_[rank]->args; }
  Args& args(uint32_t rank) { return waiters_[rank]->args; }

  /// The rank must not be waiting already.
  void arrive(uint32_t rank, Args args, Milliseconds timeout, Reply<Result> reply) {
    const TimePoint now = executor_.now();
    const TimerId timer =
        executor_.call_at(now + timeout, [this, rank, timeout] { time_out(rank, timeout); });
    waiters_[rank].emplace(Waiter{std::move(args), std::move(reply), timer, now, now + timeout});
    gave_up_[rank] = false;
  }

  /// The rank, which does not wait here, is not waited for.
  void excuse(uint32_t rank) { excused_[rank] = true; }

  /// All have come, and the answer takes time: from now on time-outs say `doing`.
  void set_doing(std::string doing) { doing_ = std::move(doing); }
  bool is_doing() const { return !doing_.empty(); }

  /// The rank that first differs from rank 0 in the sense of `same`, if any. Call when complete().
  template <typename Same>
  std::optional<uint32_t> first_different(Same same) const {
    for (uint32_t rank = 1; rank < size(); ++rank) {
      if (!same(args(0), args(rank))) return rank;
    }
    return std::nullopt;
  }

  /// When the first of the waiters times out. Call when complete().
  TimePoint first_deadline() const {
    TimePoint first = TimePoint::max();
    for (const auto& waiter : waiters_) first = std::min(first, waiter->deadline);
    return first;
  }

  void fail(const absl::Status& status) {
    for (uint32_t rank = 0; rank < size(); ++rank) answer(rank, status);
  }
  template <typename MakeResult>
  void finish(MakeResult make_result) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (has(rank)) answer(rank, make_result(rank));
    }
  }
  /// Ends one rank's wait.
  void drop(uint32_t rank, const absl::Status& status) {
    answer(rank, status);
    if (empty()) on_empty_();
  }

  std::vector<uint32_t> waiting() const { return ranks(true); }
  std::vector<uint32_t> missing() const { return ranks(false); }

  /// "barrier #7: ranks 0,1 wait since 3200 ms for ranks 2,3".
  std::string describe() const {
    TimePoint since = executor_.now();
    for (const auto& waiter : waiters_) {
      if (waiter.has_value()) since = std::min(since, waiter->since);
    }
    const auto waited = std::chrono::duration_cast<Milliseconds>(executor_.now() - since).count();
    return absl::StrCat(what_, ": ", rank_list(ranks(true)), " wait since ", waited, " ms for ",
                        is_doing() ? doing_ : rank_list(missing()));
  }

 private:
  struct Waiter {
    Args args;
    Reply<Result> reply;
    TimerId timer;
    TimePoint since;
    TimePoint deadline;
  };

  std::vector<uint32_t> ranks(bool waiting) const {
    std::vector<uint32_t> found;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (has(rank) == waiting && (waiting || !excused_[rank])) found.push_back(rank);
    }
    return found;
  }

  // Those missing but who came and timed out themselves: nobody has waited for these alone.
  std::vector<uint32_t> awaited() const {
    std::vector<uint32_t> late = missing();
    const auto gave_up = [this](uint32_t rank) { return gave_up_[rank]; };
    if (!absl::c_all_of(late, gave_up)) std::erase_if(late, gave_up);
    return late;
  }

  void answer(uint32_t rank, absl::StatusOr<Result> result) {
    if (!has(rank)) return;
    Waiter waiter = std::move(*waiters_[rank]);
    waiters_[rank].reset();
    executor_.cancel(waiter.timer);
    waiter.reply(std::move(result));
  }

  std::string late_list(const std::vector<uint32_t>& late) {
    if (describe_missing_ == nullptr) return rank_list(late);
    return absl::StrCat(late.size() == 1 ? "rank " : "ranks ",
                        absl::StrJoin(late, ",", [this](std::string* out, uint32_t rank) {
                          absl::StrAppend(out, rank, describe_missing_(rank));
                        }));
  }

  void time_out(uint32_t rank, Milliseconds timeout) {
    if (is_doing() || complete()) {  // Complete: what ends the call is about to run.
      return drop(rank, absl::DeadlineExceededError(absl::StrCat(
                            what_, ": all ranks came, but ", is_doing() ? doing_ : "it",
                            " has not ended within ", timeout.count(),
                            " ms. See `ccoctl gpus` for a GPU that is busy for long")));
    }
    const std::vector<uint32_t> late = awaited();
    gave_up_[rank] = true;
    drop(rank, about_rank(absl::DeadlineExceededError(absl::StrCat(
                              what_, ": ", late_list(late), late.size() == 1 ? " has" : " have",
                              " not come within ", timeout.count(), " ms")),
                          late.front()));
  }

  Executor& executor_;
  std::string what_;
  std::string doing_;
  absl::AnyInvocable<void()> on_empty_;
  absl::AnyInvocable<std::string(uint32_t rank)> describe_missing_;
  std::vector<std::optional<Waiter>> waiters_;
  std::vector<bool> excused_;
  std::vector<bool> gave_up_;  // Timed out, and has not come again.
};

}  // namespace cco::memd
