#include "daemon/state/recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

constexpr Milliseconds kRetryPause{100}, kVaultPause{1000};

}  // namespace

absl::StatusOr<Decoded> Recorder::load(const std::string& driver, const Gpus& gpus,
                                       NoticeBoard& notices) {
  CCO_ASSIGN_OR_RETURN(const std::vector<Record> records, ports_.store.load());
  auto fds = ports_.vault.take_over();
  CCO_RETURN_IF_ERROR(fds.status());
  for (const auto& [name, fd] : *fds) vaulted_.insert(name);
  CCO_ASSIGN_OR_RETURN(Decoded left, decode(records, &*fds, gpus, notices));
  if (left.facts.incarnation != 0 && left.facts.driver != driver) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state is of the driver '", left.facts.driver, "', and this daemon has opened '",
        driver, "'. Start it with that driver, or with another state_dir"));
  }
  driver_ = driver;
  return left;
}

absl::Status Recorder::restore(Broker& broker, Decoded left, uint64_t incarnation) {
  broker_ = &broker;
  last_answer_ = left.last_answer;
  unsaved_ = std::move(left.changes);
  broker.restore(std::move(left.state));
  for (LoggedAnswer& answer : left.answers) {
    answered_[answer.session].insert(answer.request_id);
    if (Session* session = broker.session(answer.session); session != nullptr) {
      session->requests->restore(answer.request_id, std::move(answer.request),
                                 std::move(answer.outcome));
    } else {
      unsaved_.sessions.insert(answer.session);
    }
  }
  for (const std::string& name : vaulted_) {  // Put, and not recorded, or not any more.
    if (left.vault_names.count(name) == 0) surplus_.insert(name);
  }
  vaulted_ = std::move(left.vault_names);
  incarnation_ = incarnation;
  recorded_facts_ = std::move(left.facts);
  CCO_RETURN_IF_ERROR(save());
  CCO_RETURN_IF_ERROR(hold(longest_keep()));
  clear_vault();
  return absl::OkStatus();
}

absl::Status Recorder::accepting() const {
  if (failure_.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cco-memd cannot record its state, so nothing new is begun until it can: ",
                   std::string(failure_.message())));
}

void Recorder::flush() {
  absl::Status status = save();
  clear_vault();
  if (!status.ok() && failure_.ok()) {
    ports_.journal.record(Severity::kError, "state_not_recorded",
                          absl::StrCat("reason=\"", std::string(status.message()), "\""));
  }
  if (status.ok() && !failure_.ok()) {
    ports_.journal.record(Severity::kInfo, "state_recorded_again", "");
  }
  failure_ = std::move(status);
  for (absl::AnyInvocable<void()>& view : std::exchange(views_, {})) view();
  if (failure_.ok() || stopping_) {
    const absl::Status recorded = accepting();
    for (Answer& answer : std::exchange(answers_, {})) answer(recorded);
  }
  if (!surplus_.empty() || !(failure_.ok() || stopping_)) retry_later();
}

void Recorder::retry_later() {
  if (std::exchange(retries_, true)) return;
  // A round is all it takes.
  ports_.executor.call_at(ports_.executor.now() + kRetryPause, [this] { retries_ = false; });
}

absl::Status Recorder::save() {
  unsaved_.add(broker_->take_changes());
  DaemonFacts facts{driver_, incarnation_, broker_->last_ids()};
  if (unsaved_.empty() && facts == recorded_facts_) return absl::OkStatus();
  CCO_RETURN_IF_ERROR(fill_vault());
  const Milliseconds keep = keep_after(unsaved_);
  if (keep > held_for_) CCO_RETURN_IF_ERROR(hold(keep));
  std::vector<RecordChange> changes = encode_changes();
  if (facts != recorded_facts_) changes.push_back({RecordKind::kDaemon, "", encode(facts)});
  CCO_RETURN_IF_ERROR(ports_.store.commit(changes));
  recorded_facts_ = std::move(facts);
  for_unsaved_fds([this](const std::string& name, const UniqueFd* fd) {
    if (fd == nullptr && vaulted_.erase(name) != 0) surplus_.insert(name);
    return absl::OkStatus();
  }).IgnoreError();
  if (keep < held_for_) hold(keep).IgnoreError();  // Longer than needed does little harm.
  for (const SessionId id : unsaved_.sessions) {
    if (broker_->session(id) == nullptr) answered_.erase(id);
  }
  unsaved_ = {};
  return absl::OkStatus();
}

// Where nobody keeps anything no window has to be looked at but the new ones.
Milliseconds Recorder::keep_after(const Changes& changes) const {
  if (changes.windows.empty() && changes.kept_windows.empty()) return held_for_;
  if (held_for_.count() != 0) return longest_keep();
  Milliseconds longest{};
  for (const auto& [id, window_id] : changes.windows) {
    const Group* found = group(id);
    if (found == nullptr) continue;
    const auto window = found->windows.find(window_id);
    if (window != found->windows.end()) longest = std::max(longest, window->second.keep);
  }
  return longest;
}

Milliseconds Recorder::longest_keep() const {
  Milliseconds longest{};
  for (const auto& [id, window] : broker_->kept_windows().all()) {
    longest = std::max(longest, window.keep);
  }
  for (const auto& [id, group] : broker_->groups()) {
    for (const auto& [window_id, window] : group->windows) longest = std::max(longest, window.keep);
  }
  return longest;
}

absl::Status Recorder::hold(Milliseconds keep) {
  CCO_RETURN_IF_ERROR(ports_.vault.hold_for(keep));
  held_for_ = keep;
  return absl::OkStatus();
}

const Group* Recorder::group(GroupId id) const {
  const auto found = broker_->groups().find(id);
  return found == broker_->groups().end() ? nullptr : found->second.get();
}

const UniqueFd* Recorder::fd_of(SessionId id) const {
  const Session* session = broker_->session(id);
  return session == nullptr ? nullptr : session->process.get();
}

const UniqueFd* Recorder::fd_of(GroupId id, uint32_t rank) const {
  const Group* found = group(id);
  return found == nullptr ? nullptr : &found->ranks[rank].notice->fd();
}

absl::Status Recorder::for_unsaved_fds(FdVisitor visit) const {
  for (const SessionId id : unsaved_.sessions) {
    CCO_RETURN_IF_ERROR(visit(vault_name(id), fd_of(id)));
  }
  for (const SlabId id : unsaved_.slabs) {
    CCO_RETURN_IF_ERROR(visit(vault_name(id), broker_->slabs().fd(id)));
  }
  for (const auto& [id, rank] : unsaved_.ranks) {
    CCO_RETURN_IF_ERROR(visit(vault_name(id, rank), fd_of(id, rank)));
  }
  return absl::OkStatus();
}

absl::Status Recorder::fill_vault() {
  return for_unsaved_fds([this](const std::string& name, const UniqueFd* fd) {
    if (fd == nullptr || !*fd || vaulted_.count(name) != 0) return absl::OkStatus();
    CCO_RETURN_IF_ERROR(ports_.vault.put(name, *fd));
    vaulted_.insert(name);
    return absl::OkStatus();
  });
}

// What stays behind if this fails is memory that nobody has, so it is tried again.
void Recorder::clear_vault() {
  while (!surplus_.empty() && ports_.vault.remove(*surplus_.begin()).ok()) {
    surplus_.erase(surplus_.begin());
  }
}

std::vector<RecordChange> Recorder::encode_changes() {
  std::vector<RecordChange> changes;
  const Gpus& gpus = broker_->slabs().gpus();
  for (const SessionId id : unsaved_.sessions) {
    const Session* session = broker_->session(id);
    RecordChange& change = changes.emplace_back(RecordKind::kSession, record_key(id));
    if (session != nullptr) change.body = encode(*session);
  }
  for (const SlabId id : unsaved_.slabs) {
    const auto slab = broker_->slabs().all().find(id);
    RecordChange& change = changes.emplace_back(RecordKind::kSlab, record_key(id));
    if (slab != broker_->slabs().all().end()) change.body = encode(id, slab->second, gpus);
  }
  for (const LeaseId id : unsaved_.leases) {
    const Lease* lease = broker_->leases().find(id);
    RecordChange& change = changes.emplace_back(RecordKind::kLease, record_key(id));
    if (lease != nullptr) change.body = encode(*lease, gpus);
  }
  for (const GroupId id : unsaved_.groups) {
    RecordChange& change = changes.emplace_back(RecordKind::kGroup, record_key(id));
    if (const Group* found = group(id); found != nullptr) change.body = encode(*found);
  }
  for (const auto& [id, rank] : unsaved_.ranks) {
    RecordChange& change = changes.emplace_back(RecordKind::kRank, record_key(id, rank));
    if (const Group* found = group(id); found != nullptr) change.body = encode(*found, rank, gpus);
  }
  for (const auto& [id, window_id] : unsaved_.windows) {
    RecordChange& change = changes.emplace_back(RecordKind::kWindow, record_key(id, window_id));
    const Group* found = group(id);
    if (found == nullptr) continue;
    const auto window = found->windows.find(window_id);
    if (window != found->windows.end()) change.body = encode(*found, window->second);
  }
  for (const WindowId id : unsaved_.kept_windows) {
    RecordChange& change = changes.emplace_back(RecordKind::kKeptWindow, record_key(id));
    const KeptWindow* kept = broker_->kept_windows().find(id);
    if (kept != nullptr) change.body = encode(*kept);
  }
  if (unsaved_.drains) encode_gpus(&changes);
  for (const AttachmentId id : unsaved_.attachments) {
    RecordChange& change = changes.emplace_back(RecordKind::kAttachment, record_key(id));
    const Attachment* attachment = broker_->attachments().find(id);
    if (attachment != nullptr) change.body = encode(*attachment);
  }
  encode_answers(&changes);
  return changes;
}

void Recorder::encode_gpus(std::vector<RecordChange>* changes) const {
  const Gpus& gpus = broker_->slabs().gpus();
  const GpuDrains& drains = broker_->drains();
  for (size_t i = 0; i < gpus.size(); ++i) {
    RecordChange& change = changes->emplace_back(RecordKind::kGpu, record_key(gpus[i]));
    const auto drain = drains.find(static_cast<int>(i));
    if (drains.empty()) continue;
    change.body = encode(gpus[i], drain == drains.end() ? nullptr : &drain->second);
  }
}

void Recorder::encode_answers(std::vector<RecordChange>* changes) {
  for (const auto& [id, request_id] : unsaved_.answers) {
    const Session* session = broker_->session(id);
    const RequestLog::Entry* answer =
        session == nullptr ? nullptr : session->requests->find(request_id);
    RecordChange& change = changes->emplace_back(RecordKind::kAnswer, record_key(id, request_id));
    if (answer == nullptr || !answer->ended) {
      answered_[id].erase(request_id);
      continue;
    }
    answered_[id].insert(request_id);
    change.body = encode(id, request_id, *answer, ++last_answer_);
  }
  for (const SessionId id : unsaved_.sessions) {
    if (broker_->session(id) != nullptr) continue;
    for (const std::string& request_id : answered_[id]) {
      changes->emplace_back(RecordKind::kAnswer, record_key(id, request_id));
    }
  }
}

void Recorder::recover_vault() {
  const std::map<std::string, BorrowedFd> all = fds();
  const absl::Status status = ports_.vault.recover(all);
  if (status.ok()) {
    vaulted_.clear();
    surplus_.clear();
    for (const auto& [name, fd] : all) vaulted_.insert(name);
    return ports_.journal.record(Severity::kWarning, "vault_refilled",
                                 absl::StrCat("descriptors=", all.size()));
  }
  ports_.journal.record(Severity::kError, "vault_broken",
                        absl::StrCat("reason=\"", std::string(status.message()), "\""));
  ports_.executor.call_at(ports_.executor.now() + kVaultPause, [this] { recover_vault(); });
}

// All that belongs into the vault.
std::map<std::string, BorrowedFd> Recorder::fds() const {
  std::map<std::string, BorrowedFd> fds;
  for (const auto& [id, session] : broker_->sessions().all()) {
    if (session.process != nullptr) fds.emplace(vault_name(id), *session.process);
  }
  for (const auto& [id, slab] : broker_->slabs().all()) {
    fds.emplace(vault_name(id), slab.memory.fd);
  }
  for (const auto& [id, group] : broker_->groups()) {
    for (uint32_t rank = 0; rank < group->size(); ++rank) {
      fds.emplace(vault_name(id, rank), group->ranks[rank].notice->fd());
    }
  }
  return fds;
}

}  // namespace cco::memd
