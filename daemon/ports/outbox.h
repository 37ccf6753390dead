// Port: the way out of the daemon. An answer promises that what it says has been recorded.
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

  /// UNAVAILABLE, with the reason, while nothing can be recorded: then nothing new is begun.
  virtual absl::Status accepting() const = 0;
};

/// For a daemon that keeps no records.
class DirectOutbox final : public Outbox {
 public:
  void post(Answer answer) override { answer(absl::OkStatus()); }
  absl::Status accepting() const override { return absl::OkStatus(); }
};

}  // namespace cco::memd
