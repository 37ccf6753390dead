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
#include "daemon/core/ids.h"
#include "daemon/core/limits.h"
#include "daemon/core/request_log.h"
#include "daemon/ports/executor.h"
#include "daemon/ports/identity.h"

namespace cco::memd {

struct Session {
  SessionId id{};
  std::string token;  // Secret.
  Identity who;
  TimePoint since;
  bool connected = true;  // False: the connection has ended and the process has not.
  std::set<std::pair<GroupId, uint32_t>> ranks;
  std::shared_ptr<RequestLog>
      requests;  // Shared with calls in progress, which may outlive the session.
  uint32_t running_calls = 0;
};

class SessionTable {
 public:
  explicit SessionTable(const Limits& limits) : limits_(limits) {}

  /// `token` is fresh and random. RESOURCE_EXHAUSTED: limits.sessions or
  /// limits.sessions_per_tenant.
  absl::StatusOr<SessionId> open(const Identity& who, std::string token, TimePoint now);

  /// The session of a token, if `who` (of the RPC connection) is the process that the token was
  /// given to and it is still connected. UNAUTHENTICATED otherwise, without a word on what exists.
  absl::StatusOr<Session*> authenticate(const std::string& token, const Identity& who);

  Session* find(SessionId id);
  /// Makes the token void.
  void disconnect(SessionId id);
  void erase(SessionId id);

  uint32_t size() const { return static_cast<uint32_t>(sessions_.size()); }
  const std::map<SessionId, Session>& all() const { return sessions_; }

 private:
  const Limits& limits_;
  std::map<SessionId, Session> sessions_;
  std::unordered_map<std::string, SessionId> by_token_;
  uint64_t last_id_ = 0;
};

}  // namespace cco::memd
