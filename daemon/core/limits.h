// How much of everything a client can make.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cco::memd {

/// Sessions beyond limits.sessions, for operators, who want to see why nobody else gets in.
inline constexpr uint32_t kSessionsForOperators = 16;

struct Limits {
  uint32_t sessions = 1024;
  uint32_t sessions_per_tenant = 512;
  uint32_t groups = 1024;
  uint32_t ranks_per_group = 256;
  uint32_t windows_per_group = 2048;
  uint32_t slabs_per_group = 256;
  uint64_t bytes_per_gpu = 0;  // 0: all of the GPU's memory.
  uint32_t tickets_per_session = 1024;
  uint32_t requests_per_session = 256;
  uint32_t calls_per_session = 256;
  uint32_t leases = 256;
  uint32_t kept_windows = 1024;
  uint32_t grants_per_group = 256;
  uint32_t attachments_per_session = 256;
  uint32_t tenant_share_percent = 50;

  /// What one tenant may have of what there is for all, so that nobody takes the last of it from
  /// everybody.
  uint64_t share(uint64_t of_all) const { return (of_all * tenant_share_percent + 99) / 100; }
  /// Each call that may run may have an answer that its client has not read when the daemon ends:
  /// none of those may be forgotten, or it would be carried out twice.
  uint32_t answers_per_session() const { return std::max(requests_per_session, calls_per_session); }
};

inline absl::Status over_limit(const char* name, uint64_t limit, const std::string& what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": limits.", name, " is ", limit,
                   ". End some, or raise it in cco-memd's configuration"));
}

}  // namespace cco::memd
