// Broker: sessions, and what their end does to groups and slabs.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {

Broker::Broker(BrokerOptions options, Ports ports)
    : options_(std::move(options)),
      executor_(ports.executor),
      notices_(ports.notices),
      journal_(ports.journal),
      processes_(ports.processes),
      sessions_(options_.limits, options_.tenants),
      slabs_(ports.gpus, options_.limits, changes_),
      desk_(ports.executor, slabs_, options_.limits, options_.ticket_lifetime,
            [this] { return make_secret_(); }),
      make_secret_(std::move(ports.make_secret)) {
  slabs_.set_on_freed([this](int gpu) {
    queue_.note_freed(gpu);
    serve_soon();
  });
  slabs_.set_on_empty([this](int gpu) { finish_drain(gpu); });
}

Broker::~Broker() {
  stop();
  slabs_.set_on_freed([](int) {});  // What goes now makes room for nobody.
}

bool Broker::is_stalled(const Session& session) const {
  return session.state == SessionState::kAttached && session.process != nullptr &&
         processes_.is_stopped(session.who.pid, *session.process);
}

std::string Broker::describe_missing(GroupId id, uint32_t rank) const {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return "";
  const auto session = sessions_.all().find(group->second->ranks[rank].session);
  if (session == sessions_.all().end() || !is_stalled(session->second)) return "";
  return absl::StrCat(" (pid ", session->second.who.pid,
                      ", stopped by a signal: SIGCONT resumes it)");
}

absl::StatusOr<Broker::Welcome> Broker::open_session(const Identity& who, UniqueFd process) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  CCO_RETURN_IF_ERROR(check_kept_session(who));
  std::string token = make_secret_();
  CCO_ASSIGN_OR_RETURN(SessionId id,
                       sessions_.open(who, std::move(process), token, executor_.now()));
  changes_.sessions.insert(id);
  journal_.record(Severity::kDebug, "session_opened",
                  absl::StrCat("session=", number(id), " uid=", who.uid, " pid=", who.pid,
                               " tenant=", tenants().name(tenants().find(who))));
  return Welcome{id, std::move(token)};
}

absl::StatusOr<Broker::Welcome> Broker::resume_session(const std::string& token,
                                                       const Identity& who, UniqueFd process) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  CCO_ASSIGN_OR_RETURN(Session * session, sessions_.recognize(token, who));
  if (session->state != SessionState::kAway) {
    return absl::FailedPreconditionError(
        "the session of that token is attached; a session has one connection at a time");
  }
  session->state = SessionState::kAttached;
  // Who pays stays as it was when the process first came; what it may do is as it is now.
  if (std::exchange(session->who.is_operator, who.is_operator) != who.is_operator) {
    changes_.sessions.insert(session->id);
  }
  if (session->process == nullptr && process) {
    session->process = std::make_shared<UniqueFd>(std::move(process));
    changes_.sessions.insert(session->id);
  }
  journal_.record(
      Severity::kDebug, "session_resumed",
      absl::StrCat("session=", number(session->id), " uid=", who.uid, " pid=", who.pid));
  return Welcome{session->id, token};
}

void Broker::close_session(SessionId id) {
  Session* session = sessions_.find(id);
  if (session == nullptr || session->state == SessionState::kLost) return;
  sessions_.lose(id);
  changes_.sessions.insert(id);
  desk_.forget(id);
  for (auto& [key, forming] : forming_) {
    for (uint32_t rank = 0; rank < forming.call->size(); ++rank) {
      if (forming.call->has(rank) && forming.call->args(rank).session == id) {
        forming.call->drop(rank, absl::AbortedError("the session has ended"));
      }
    }
  }
  const bool owns_ranks = !session->ranks.empty();
  journal_.record(owns_ranks ? Severity::kWarning : Severity::kDebug,
                  owns_ranks ? "session_lost" : "session_closed",
                  absl::StrCat("session=", number(id), " uid=", session->who.uid,
                               " pid=", session->who.pid, " ranks=", session->ranks.size()));
  for (const auto& [group, rank] : session->ranks)
    set_out(*groups_.at(group), rank, MemberState::kLost);
  if (!session->may_map()) sessions_.erase(id);
}

void Broker::process_exited(SessionId id) {
  close_session(id);
  Session* session = sessions_.find(id);
  if (session == nullptr) return;
  for (const auto& [group_id, rank] : std::exchange(session->ranks, {})) {
    Group& group = *groups_.at(group_id);
    group.ranks[rank].may_map = false;
    changes_.ranks.emplace(group_id, rank);
    excuse_from_shrink(group, rank);
    keep_unused_windows(group);
    review_slabs(group);
    retire(group);
  }
  for (const AttachmentId attachment : std::exchange(session->attachments, {})) {
    end_attachment(attachment);
  }
  changes_.sessions.insert(id);
  journal_.record(Severity::kDebug, "session_reclaimed", absl::StrCat("session=", number(id)));
  sessions_.erase(id);
}

void Broker::set_out(Group& group, uint32_t rank, MemberState state) {
  Rank& member = group.ranks[rank];
  if (member.state != MemberState::kLive) return;
  member.state = state;
  ++group.epoch;
  changes_.ranks.emplace(group.id, rank);
  changes_.groups.insert(group.id);
  for (Rank& other : group.ranks) other.notice->set_rank_out(rank, group.epoch);
  for (auto window = group.windows.begin(); window != group.windows.end();) {
    give_up(group, (window++)->second, rank);
  }
  if (state == MemberState::kLeft) {
    member.may_map = false;
    if (group.abort_reason.empty()) {
      group.abort_reason = absl::StrCat("rank ", rank, " has left the group");
      group.abort_rank = rank;
      end_calls(group);
    }
  } else {
    abort_group(group, CCO_ABORT_WORD(CCO_ABORT_PEER_LOST, rank),
                absl::StrCat("rank ", rank, " is lost: its process (pid ", member.who.pid,
                             ") or connection has ended"),
                rank);
  }
  excuse_from_shrink(group, rank);
  review_slabs(group);
}

void Broker::abort_group(Group& group, uint64_t word, const std::string& reason, uint32_t rank) {
  if (group.abort_word != 0) return;  // Once aborted, it stays aborted, for the first reason.
  changes_.groups.insert(group.id);
  group.abort_word = word;
  group.abort_reason = reason;
  group.abort_rank = rank;
  for (Rank& member : group.ranks) member.notice->set_abort(word);
  journal_.record(Severity::kWarning, "group_aborted",
                  absl::StrCat("group=", number(group.id), " reason=\"", reason, "\""));
  end_calls(group);
}

void Broker::end_calls(Group& group) {
  const absl::Status status = check_collective({&group, nullptr});
  for (auto call = group.window_calls.begin(); call != group.window_calls.end();) {
    call->second->fail(status);
    // One that waits for a GPU is erased when the GPU has answered.
    call = call->second->is_doing() ? std::next(call) : group.window_calls.erase(call);
  }
  for (auto& [sequence, call] : group.barrier_calls) call->fail(status);
  group.barrier_calls.clear();
  end_waits(group.id, status);
}

void Broker::review_slabs(Group& group) {
  for (auto& [index, set] : group.slabs) {
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
      if (set.ids[rank] == SlabId{}) continue;  // Freed before.
      const Rank& owner = group.ranks[rank];
      const OwnerState owner_state = owner.state == MemberState::kLive ? OwnerState::kLive
                                     : owner.may_map                   ? OwnerState::kLost
                                                                       : OwnerState::kGone;
      bool others_may_map = false;
      for (uint32_t other = 0; other < group.size(); ++other) {
        others_may_map |= other != rank && group.ranks[other].may_map;
      }
      const SlabState state = slab_state(owner_state, others_may_map, set.is_kept);
      if (state != SlabState::kFreed) {
        slabs_.set_state(set.ids[rank], state);
        continue;
      }
      free_slab(set.ids[rank]);
      set.ids[rank] = SlabId{};
      changes_.groups.insert(group.id);
    }
  }
}

void Broker::retire(Group& group) {
  for (const Rank& rank : group.ranks) {
    if (rank.may_map) return;
  }
  journal_.record(Severity::kInfo, "group_ended", absl::StrCat("group=", number(group.id)));
  changes_.groups.insert(group.id);
  for (uint32_t rank = 0; rank < group.size(); ++rank) changes_.ranks.emplace(group.id, rank);
  for (const auto& [id, window] : group.windows) changes_.windows.emplace(group.id, id);
  groups_.erase(group.id);
  for (const auto& [gpu, drain] : drains_) finish_drain(gpu);
}

BrokerState::LastIds Broker::last_ids() const {
  return {sessions_.last_id(), slabs_.last_id(),  last_group_id_,     last_window_id_,
          last_generation_,    leases_.last_id(), last_attachment_id_};
}

// Who pays is found anew, as the configuration may be another: rank 0's tenant.
void Broker::restore_slabs(BrokerState* state) {
  for (const Attachment& attachment : state->attachments) {
    for (const SlabId id : attachment.slabs) {
      if (id != SlabId{}) state->slabs.at(id).payer.tenant = tenants().find(attachment.owner);
    }
  }
  for (std::unique_ptr<Group>& group : state->groups) {
    group->tenant = tenants().find(group->ranks[0].who);
    for (auto& [index, set] : group->slabs) {
      for (uint32_t rank = 0; rank < group->size(); ++rank) {
        if (set.ids[rank] != SlabId{}) {
          state->slabs.at(set.ids[rank]).payer.tenant = group->tenant;
        } else if (!set.is_external) {  // Revoked, or its descriptor is gone; it may be mapped.
          set.revoked.push_back(slabs_.charge({group->tenant, group->lease}, group->ranks[rank].gpu,
                                              set.sizes[rank]));
        }
      }
    }
  }
  for (KeptWindow& window : state->kept_windows) {
    window.tenant = tenants().find(window.owner);
    for (const SlabId id : window.slabs) state->slabs.at(id).payer.tenant = window.tenant;
  }
  for (auto& [id, slab] : state->slabs) slabs_.restore(id, std::move(slab));
  restore_attachments(state);
  for (KeptWindow& window : state->kept_windows) add_kept(std::move(window));
}

void Broker::restore(BrokerState state) {
  sessions_.set_last_id(state.last_ids.session);
  slabs_.set_last_id(state.last_ids.slab);
  last_group_id_ = state.last_ids.group;
  last_window_id_ = state.last_ids.window;
  last_generation_ = state.last_ids.generation;
  last_attachment_id_ = state.last_ids.attachment;
  for (Session& session : state.sessions) {
    executor_.call_at(executor_.now() + options_.return_timeout,
                      [this, id = session.id] { give_up_if_away(id); });
    sessions_.restore(std::move(session));
  }
  leases_.set_last_id(state.last_ids.lease);
  for (Lease& lease : state.leases) restore_lease(std::move(lease));
  restore_slabs(&state);
  for (std::unique_ptr<Group>& restored : state.groups) {
    Group& group = *groups_.emplace(restored->id, std::move(restored)).first->second;
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
      const Rank& member = group.ranks[rank];
      if (member.may_map) sessions_.find(member.session)->ranks.emplace(group.id, rank);
      member.notice->set_condition(~uint32_t{0}, false);  // Those that hold are found anew.
      // The page was perhaps not written any more.
      if (group.abort_word != 0) member.notice->set_abort(group.abort_word);
      for (uint32_t other = 0; other < group.size(); ++other) {
        if (group.ranks[other].state != MemberState::kLive) {
          member.notice->set_rank_out(other, group.epoch);
        }
      }
    }
    review_slabs(group);
  }
  end_old_leases();
  restore_drains(std::move(state.drains));
  serve_soon();
}

void Broker::give_up_if_away(SessionId id) {
  const Session* session = sessions_.find(id);
  if (session == nullptr || session->state == SessionState::kAttached) return;
  if (session->process != nullptr && session->may_map()) return;
  close_session(id);
  process_exited(id);
}

void Broker::stop() {
  stopping_ = true;
  const absl::Status status = absl::UnavailableError("cco-memd is stopping");
  for (auto& [key, forming] : forming_) forming.call->fail(status);
  for (auto& [id, group] : groups_) {
    for (auto& [key, call] : group->window_calls) call->fail(status);
    for (auto& [sequence, call] : group->barrier_calls) call->fail(status);
    end_waits(id, status);
    if (group->shrink_call != nullptr) group->shrink_call->fail(status);
  }
}

}  // namespace cco::memd
