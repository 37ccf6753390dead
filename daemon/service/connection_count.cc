#include "daemon/service/connection_count.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {

absl::Status ConnectionCount::check(BorrowedFd newest, const Identity& who, TenantId tenant) const {
  CCO_RETURN_IF_ERROR(check_descriptors(newest, who.is_operator));
  if (!who.is_operator) CCO_RETURN_IF_ERROR(check_all());
  return check_tenant(tenant);
}

// Descriptors get the lowest free number, so that a new one tells how many are left.
absl::Status ConnectionCount::check_descriptors(BorrowedFd newest, bool is_operator) const {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const uint64_t reserve = is_operator ? options_.reserve / 4 : options_.reserve;
  if (static_cast<uint64_t>(newest.get()) + reserve < limit.rlim_cur) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "cco-memd is at its limit of open file descriptors (RLIMIT_NOFILE=", limit.rlim_cur,
      "); raise LimitNOFILE, or end some clients"));
}

absl::Status ConnectionCount::check_all() const {
  const uint64_t limit = uint64_t{2} * broker_.options().limits.sessions;
  if (total_ < limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cco-memd has ", total_, " connections on its ", options_.where,
                   ", which is twice limits.sessions. End some processes, or raise it in "
                   "cco-memd's configuration"));
}

absl::Status ConnectionCount::check_tenant(TenantId tenant) const {
  const auto found = by_tenant_.find(tenant);
  const uint64_t count = found == by_tenant_.end() ? 0 : found->second;
  if (count < 2 * broker_.sessions().quota(tenant)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "tenant '", broker_.tenants().name(tenant), "' has ", count, " connections on cco-memd's ",
      options_.where,
      ", which is twice the sessions that it may have. End some processes, or raise its "
      "quotas.sessions or limits.sessions_per_tenant"));
}

void ConnectionCount::add(TenantId tenant) {
  ++total_;
  ++by_tenant_[tenant];
}

void ConnectionCount::remove(TenantId tenant) {
  --total_;
  const auto found = by_tenant_.find(tenant);
  if (--found->second == 0) by_tenant_.erase(found);
}

}  // namespace cco::memd
