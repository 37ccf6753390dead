#include "daemon/core/session_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {

absl::StatusOr<SessionId> SessionTable::open(const Identity& who, UniqueFd process,
                                             std::string token, TimePoint now) {
  if (sessions_.size() >= limits_.sessions) {
    return over_limit("sessions", limits_.sessions,
                      absl::StrCat(sessions_.size(), " processes are attached"));
  }
  const auto same_tenant = [&](const auto& entry) { return entry.second.who.uid == who.uid; };
  const auto mine = std::count_if(sessions_.begin(), sessions_.end(), same_tenant);
  if (mine >= limits_.sessions_per_tenant) {
    return over_limit("sessions_per_tenant", limits_.sessions_per_tenant,
                      absl::StrCat("user ", who.uid, " has ", mine, " processes attached"));
  }
  const SessionId id{++last_id_};
  by_token_.emplace(token, id);
  Session session;
  session.id = id;
  session.token = std::move(token);
  session.who = who;
  session.process = std::move(process);
  session.since = now;
  session.requests = std::make_shared<RequestLog>(limits_.requests_per_session);
  sessions_.emplace(id, std::move(session));
  return id;
}

void SessionTable::restore(Session session) {
  if (session.state != SessionState::kLost) {
    session.state = SessionState::kAway;
    by_token_.emplace(session.token, session.id);
  }
  session.requests = std::make_shared<RequestLog>(limits_.requests_per_session);
  sessions_.emplace(session.id, std::move(session));
}

absl::StatusOr<Session*> SessionTable::authenticate(const std::string& token, const Identity& who) {
  const auto found = by_token_.find(token);
  Session* session = found == by_token_.end() ? nullptr : find(found->second);
  if (session == nullptr || session->who.uid != who.uid || session->who.pid != who.pid) {
    return absl::UnauthenticatedError(
        "no session of this process has that token: attach on the fd channel first, and again "
        "after cco-memd restarts");
  }
  return session;
}

Session* SessionTable::find(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

void SessionTable::lose(SessionId id) {
  if (Session* session = find(id); session != nullptr) {
    session->state = SessionState::kLost;
    by_token_.erase(session->token);
  }
}

void SessionTable::erase(SessionId id) {
  lose(id);
  sessions_.erase(id);
}

}  // namespace cco::memd
