// Keeps the records and the vault in step with the broker, and answers back until they are.
//
// A round of the event loop changes things and makes answers; at its end: new descriptors go into
// the vault, all records are committed together, what has gone leaves the vault, the answers leave.
// So whatever a client has been told outlives the daemon, however it ends.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/core/broker.h"
#include "daemon/ports/fd_vault.h"
#include "daemon/ports/journal.h"
#include "daemon/ports/outbox.h"
#include "daemon/ports/state_store.h"
#include "daemon/state/records.h"

namespace cco::memd {

class Recorder final : public Outbox {
 public:
  struct Ports {
    Executor& executor;
    StateStore& store;
    FdVault& vault;
    Journal& journal;
  };
  /// All outlive this.
  explicit Recorder(Ports ports) : ports_(ports) {}

  /// What an earlier daemon left. Once, first. FAILED_PRECONDITION: it is of another driver; other
  /// errors as of the ports and of decode(). On an error nothing has been changed.
  absl::StatusOr<Decoded> load(const std::string& driver, const Gpus& gpus, NoticeBoard& notices);

  /// Brings `broker`, which is new and outlives this, to that state, and records it from now on.
  /// `incarnation` is this daemon's. An error: it could not be recorded.
  absl::Status restore(Broker& broker, Decoded left, uint64_t incarnation);

  void post(Answer answer) override { answers_.push_back(std::move(answer)); }
  void post_view(absl::AnyInvocable<void()> view) override { views_.push_back(std::move(view)); }
  absl::Status accepting() const override;

  /// At the end of each round.
  void flush();
  /// From now on answers that cannot be recorded leave as errors.
  void stop() { stopping_ = true; }

  /// The vault is broken: puts everything into it again, now or as soon as that works.
  void recover_vault();

 private:
  using FdVisitor = absl::FunctionRef<absl::Status(const std::string& name, const UniqueFd* fd)>;
  /// Of all that is unsaved: the name in the vault, and what belongs there; null: nothing.
  absl::Status for_unsaved_fds(FdVisitor visit) const;
  const UniqueFd* fd_of(SessionId id) const;
  const UniqueFd* fd_of(GroupId id, uint32_t rank) const;
  std::map<std::string, BorrowedFd> fds() const;
  absl::Status save();
  absl::Status fill_vault();
  void clear_vault();
  void retry_later();
  std::vector<RecordChange> encode_changes();
  void encode_answers(std::vector<RecordChange>* changes);
  void encode_gpus(std::vector<RecordChange>* changes) const;
  const Group* group(GroupId id) const;
  /// Of all windows, kept or to be kept.
  Milliseconds longest_keep() const;
  Milliseconds keep_after(const Changes& changes) const;
  absl::Status hold(Milliseconds keep);

  Ports ports_;
  Broker* broker_ = nullptr;
  std::string driver_;
  uint64_t incarnation_ = 0;
  DaemonFacts recorded_facts_;
  Changes unsaved_;
  std::set<std::string> vaulted_;
  std::set<std::string> surplus_;  // Nobody's, and in the vault still.
  Milliseconds held_for_{};        // As the vault was told last.
  // Request ids of the answers that are recorded.
  std::map<SessionId, std::set<std::string>> answered_;
  uint64_t last_answer_ = 0;
  std::vector<Answer> answers_;
  std::vector<absl::AnyInvocable<void()>> views_;
  absl::Status failure_;  // Of the last attempt.
  bool retries_ = false;
  bool stopping_ = false;
};

}  // namespace cco::memd
