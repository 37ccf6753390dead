#include "daemon/core/lease_table.h"

#include "daemon/core/tenants.h"

namespace cco::memd {
namespace {

bool serves(const Lease& lease, const std::string& tenant) {
  return lease.tenant.empty() || lease.tenant == tenant;
}

}  // namespace

const Lease* LeaseTable::find(LeaseId id) const {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second;
}

const Lease* LeaseTable::find_by_token(const std::string& token, const std::string& tenant) const {
  for (const auto& [id, lease] : leases_) {
    if (lease.token == token && serves(lease, tenant)) return &lease;
  }
  return nullptr;
}

const Lease* LeaseTable::find_by_cgroup(const std::string& cgroup,
                                        const std::string& tenant) const {
  const Lease* innermost = nullptr;
  for (const auto& [id, lease] : leases_) {
    if (lease.cgroup.empty() || !is_below(cgroup, lease.cgroup) || !serves(lease, tenant)) continue;
    if (innermost == nullptr || lease.cgroup.size() > innermost->cgroup.size()) innermost = &lease;
  }
  return innermost;
}

}  // namespace cco::memd
