// Port: the way out of the daemon. An answer promises that what it says, or shows, is recorded.
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace cco::memd {

class Outbox {
 public:
  /// Called with OK, or with why what it would have promised was not recorded.
  using Answer = absl::AnyInvocable<void(const absl::Status&)>;

  virtual ~Outbox() = default;

  /// Calls `answer` on the core's thread once all that has changed so far is recorded: now, at the
  /// end of this round, or when that works again. Only a daemon that stops gives up.
  virtual void post(Answer answer) = 0;

  /// For an answer that only shows what is: calls it at the same time, so that nobody is shown what
  /// the next daemon may not know. While nothing can be recorded it leaves all the same, at the end
  /// of this round: operators must be able to look at a node whose disk is full.
  virtual void post_view(absl::AnyInvocable<void()> view) = 0;

  /// UNAVAILABLE, with the reason, while nothing can be recorded: then nothing new is begun.
  virtual absl::Status accepting() const = 0;
};

/// For a daemon that keeps no records.
class DirectOutbox final : public Outbox {
 public:
  void post(Answer answer) override { answer(absl::OkStatus()); }
  void post_view(absl::AnyInvocable<void()> view) override { view(); }
  absl::Status accepting() const override { return absl::OkStatus(); }
};

}  // namespace cco::memd
