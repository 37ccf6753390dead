// Who is attached. A session is one process, as the kernel described it; its token is its only name
// outside.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "daemon/core/ids.h"
#include "daemon/core/limits.h"
#include "daemon/core/request_log.h"
#include "daemon/core/tenants.h"
#include "daemon/ports/executor.h"
#include "daemon/ports/identity.h"

namespace cco::memd {

/// kAway: an earlier daemon's, whose process has not come back yet. kLost: the connection has
/// ended, and the process has not.
enum class SessionState { kAttached, kAway, kLost };

struct Session {
  SessionId id{};
  std::string token;  // Secret.
  Identity who;
  TenantId tenant{};
  // pidfd; null where the kernel gives none. Shared with who watches it, who may learn later than
  // the broker that the session has gone.
  std::shared_ptr<const UniqueFd> process;
  TimePoint since;
  SessionState state = SessionState::kAttached;
  std::set<std::pair<GroupId, uint32_t>> ranks;
  std::set<AttachmentId> attachments;
  std::shared_ptr<RequestLog>
      requests;  // Shared with calls in progress, which may outlive the session.
  uint32_t running_calls = 0;

  /// Its process's end is waited for.
  bool may_map() const { return !ranks.empty() || !attachments.empty(); }
};

class SessionTable {
 public:
  /// Both outlive this.
  SessionTable(const Limits& limits, const Tenants& tenants) : limits_(limits), tenants_(tenants) {}

  /// `token` is fresh and random. RESOURCE_EXHAUSTED: limits.sessions, beyond which a few operators
  /// may go, or the tenant's quota, which is limits.sessions_per_tenant unless it has one of its
  /// own.
  absl::StatusOr<SessionId> open(const Identity& who, UniqueFd process, std::string token,
                                 TimePoint now);
  /// One that another table had; its process is away.
  void restore(Session session);

  /// The session of a token, if `who` (of the connection) is the process that the token was given
  /// to and it is not lost. UNAUTHENTICATED otherwise, without a word on what exists.
  absl::StatusOr<Session*> recognize(const std::string& token, const Identity& who);
  /// Of one that is attached: what its process may do is known once it has come back.
  absl::StatusOr<Session*> authenticate(const std::string& token, const Identity& who);

  Session* find(SessionId id);
  /// Makes the token void.
  void lose(SessionId id);
  void erase(SessionId id);

  uint64_t quota(TenantId tenant) const;
  uint32_t size() const { return static_cast<uint32_t>(sessions_.size()); }
  const std::map<SessionId, Session>& all() const { return sessions_; }
  uint64_t last_id() const { return last_id_; }
  void set_last_id(uint64_t id) { last_id_ = id; }

 private:
  absl::Status check_quota(TenantId tenant, int64_t pid) const;

  const Limits& limits_;
  const Tenants& tenants_;
  std::map<SessionId, Session> sessions_;
  std::unordered_map<std::string, SessionId> by_token_;
  uint64_t last_id_ = 0;
};

}  // namespace cco::memd
