#include "daemon/core/session_table.h"

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

constexpr char kNotAttached[] =
    "no session of this process has that token: attach on the fd channel first, and again after "
    "cco-memd restarts";

}  // namespace

absl::StatusOr<SessionId> SessionTable::open(const Identity& who, UniqueFd process,
                                             std::string token, TimePoint now) {
  const uint64_t reserve = who.is_operator ? kSessionsForOperators : 0;
  if (sessions_.size() >= limits_.sessions + reserve) {
    return over_limit("sessions", limits_.sessions,
                      absl::StrCat(sessions_.size(), " processes are attached"));
  }
  const TenantId tenant = tenants_.find(who);
  CCO_RETURN_IF_ERROR(check_quota(tenant, who.pid));
  const SessionId id{++last_id_};
  by_token_.emplace(token, id);
  Session session;
  session.id = id;
  session.token = std::move(token);
  session.who = who;
  session.tenant = tenant;
  if (process) session.process = std::make_shared<UniqueFd>(std::move(process));
  session.since = now;
  session.requests = std::make_shared<RequestLog>(limits_.answers_per_session());
  sessions_.emplace(id, std::move(session));
  return id;
}

uint64_t SessionTable::quota(TenantId tenant) const {
  const uint64_t own = tenants_.terms(tenant).quotas.sessions;
  return own != 0 ? own : limits_.sessions_per_tenant;
}

absl::Status SessionTable::check_quota(TenantId tenant, int64_t pid) const {
  Excess excess;
  for (const auto& [id, session] : sessions_) {
    if (session.tenant != tenant) continue;
    ++excess.used;
    ++excess.by_pid[session.who.pid];
  }
  excess.limit = quota(tenant);
  if (excess.used < excess.limit) return absl::OkStatus();
  excess.what = absl::StrCat("attaching pid ", pid);
  excess.tenant = tenants_.name(tenant);
  excess.quota = tenants_.terms(tenant).quotas.sessions != 0 ? "its quotas.sessions"
                                                             : "limits.sessions_per_tenant";
  excess.of = "sessions attached";
  return over_quota(excess);
}

void SessionTable::restore(Session session) {
  session.tenant = tenants_.find(session.who);
  if (session.state != SessionState::kLost) {
    session.state = SessionState::kAway;
    by_token_.emplace(session.token, session.id);
  }
  session.requests = std::make_shared<RequestLog>(limits_.answers_per_session());
  sessions_.emplace(session.id, std::move(session));
}

absl::StatusOr<Session*> SessionTable::recognize(const std::string& token, const Identity& who) {
  const auto found = by_token_.find(token);
  Session* session = found == by_token_.end() ? nullptr : find(found->second);
  if (session == nullptr || session->who.uid != who.uid || session->who.pid != who.pid) {
    return absl::UnauthenticatedError(kNotAttached);
  }
  return session;
}

absl::StatusOr<Session*> SessionTable::authenticate(const std::string& token, const Identity& who) {
  CCO_ASSIGN_OR_RETURN(Session * session, recognize(token, who));
  if (session->state != SessionState::kAttached) return absl::UnauthenticatedError(kNotAttached);
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
