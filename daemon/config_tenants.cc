#include "daemon/config_tenants.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

namespace v1 = ::cco::memd::config::v1;

template <typename... Parts>
absl::Status invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status check_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxTenantNameBytes || !is_plain_name(name)) {
    return invalid("a tenant's name is '", name, "'; it takes 1 to ", kMaxTenantNameBytes,
                   " letters, digits, '.', '_' and '-'");
  }
  if (absl::StartsWith(name, "uid-")) {
    return invalid("tenant '", name,
                   "': names that begin with uid- are those of users whom no tenant takes");
  }
  return absl::OkStatus();
}

absl::Status check_cgroup(const Tenant& tenant) {
  const std::string& path = tenant.cgroup;
  if (path.empty() || (path.size() > 1 && path.front() == '/' && path.back() != '/')) {
    return absl::OkStatus();
  }
  return invalid("tenant '", tenant.name, "': cgroup is '", path,
                 "'; it takes a path as in /proc/<pid>/cgroup, as \"/jobs.slice\", and not the "
                 "root: for everybody else there is default_tenant");
}

// Of a quota that is there, `most` being the node's limit; 0: it has none.
absl::Status read_quota(const std::string& whose, const char* name, uint64_t value,
                        const char* limit, uint64_t most, uint64_t* to) {
  if (value == 0) {
    return invalid(whose, "quotas.", name,
                   " is 0, so that nothing could be done; leave it out to have no such quota");
  }
  if (most != 0 && value > most) {
    return invalid(whose, "quotas.", name, " is ", value, ", above the node's ", limit, ", ", most);
  }
  *to = value;
  return absl::OkStatus();
}

absl::Status read_quotas(const std::string& whose, const v1::Quotas& from, const Limits& limits,
                         uint64_t control_bytes, Quotas* to) {
  if (from.has_bytes_per_gpu()) {
    CCO_RETURN_IF_ERROR(read_quota(whose, "bytes_per_gpu", from.bytes_per_gpu(),
                                   "limits.bytes_per_gpu", limits.bytes_per_gpu,
                                   &to->bytes_per_gpu));
    if (to->bytes_per_gpu < control_bytes) {
      return invalid(whose, "quotas.bytes_per_gpu is ", to->bytes_per_gpu,
                     ", which is no room for a control region: control_bytes is ", control_bytes);
    }
  }
  if (from.has_groups()) {
    CCO_RETURN_IF_ERROR(
        read_quota(whose, "groups", from.groups(), "limits.groups", limits.groups, &to->groups));
  }
  if (from.has_windows()) {
    CCO_RETURN_IF_ERROR(
        read_quota(whose, "windows", from.windows(), "limits.groups times limits.windows_per_group",
                   uint64_t{limits.groups} * limits.windows_per_group, &to->windows));
  }
  if (from.has_sessions()) {
    CCO_RETURN_IF_ERROR(read_quota(whose, "sessions", from.sessions(), "limits.sessions",
                                   limits.sessions, &to->sessions));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tenant> read_tenant(const std::string& whose, const v1::Tenant& from,
                                   const Limits& limits, uint64_t control_bytes) {
  Tenant tenant;
  tenant.name = from.name();
  tenant.uids.assign(from.uid().begin(), from.uid().end());
  tenant.gids.assign(from.gid().begin(), from.gid().end());
  tenant.cgroup = from.cgroup();
  tenant.priority = from.priority();
  if (from.has_external_memory()) tenant.external_memory = from.external_memory();
  CCO_RETURN_IF_ERROR(read_quotas(whose, from.quotas(), limits, control_bytes, &tenant.quotas));
  return tenant;
}

// What a later tenant names must not be an earlier one's already: it would never get it.
class Claims {
 public:
  absl::Status add(const Tenant& tenant) {
    CCO_RETURN_IF_ERROR(claim("name", tenant.name, tenant.name));
    for (const uint32_t uid : tenant.uids) {
      CCO_RETURN_IF_ERROR(claim("uid", absl::StrCat(uid), tenant.name));
    }
    for (const uint32_t gid : tenant.gids) {
      CCO_RETURN_IF_ERROR(claim("gid", absl::StrCat(gid), tenant.name));
    }
    if (tenant.cgroup.empty()) return absl::OkStatus();
    for (const auto& [path, owner] : cgroups_) {
      if (!is_below(tenant.cgroup, path)) continue;
      return invalid("tenant '", tenant.name, "': its cgroup ", tenant.cgroup, " lies in ", path,
                     " of tenant '", owner, "', which stands before it and takes it; put '",
                     tenant.name, "' first");
    }
    cgroups_.emplace(tenant.cgroup, tenant.name);
    return absl::OkStatus();
  }

 private:
  absl::Status claim(const char* kind, const std::string& value, const std::string& tenant) {
    const auto [entry, is_new] = owners_.emplace(std::pair(std::string(kind), value), tenant);
    if (is_new) return absl::OkStatus();
    return invalid(kind, " ", value, " is given twice, to tenants '", entry->second, "' and '",
                   tenant, "'; take it from one of them");
  }

  std::map<std::pair<std::string, std::string>, std::string> owners_;
  std::map<std::string, std::string> cgroups_;
};

void print_tenant(const Tenant& tenant, v1::Tenant* to) {
  if (!tenant.name.empty()) to->set_name(tenant.name);
  to->mutable_uid()->Add(tenant.uids.begin(), tenant.uids.end());
  to->mutable_gid()->Add(tenant.gids.begin(), tenant.gids.end());
  if (!tenant.cgroup.empty()) to->set_cgroup(tenant.cgroup);
  to->set_priority(tenant.priority);
  to->set_external_memory(tenant.external_memory);
  const Quotas& quotas = tenant.quotas;
  if (quotas.bytes_per_gpu != 0) to->mutable_quotas()->set_bytes_per_gpu(quotas.bytes_per_gpu);
  if (quotas.groups != 0) to->mutable_quotas()->set_groups(quotas.groups);
  if (quotas.windows != 0) to->mutable_quotas()->set_windows(quotas.windows);
  if (quotas.sessions != 0) to->mutable_quotas()->set_sessions(quotas.sessions);
}

}  // namespace

absl::StatusOr<Tenants> read_tenants(const v1::Config& from, const Limits& limits,
                                     uint64_t control_bytes) {
  std::vector<Tenant> named;
  Claims claims;
  for (const v1::Tenant& message : from.tenants()) {
    CCO_RETURN_IF_ERROR(check_name(message.name()));
    CCO_ASSIGN_OR_RETURN(Tenant tenant, read_tenant(absl::StrCat("tenant '", message.name(), "': "),
                                                    message, limits, control_bytes));
    if (tenant.uids.empty() && tenant.gids.empty() && tenant.cgroup.empty()) {
      return invalid("tenant '", tenant.name, "' takes nobody: give it a uid, a gid or a cgroup");
    }
    CCO_RETURN_IF_ERROR(check_cgroup(tenant));
    CCO_RETURN_IF_ERROR(claims.add(tenant));
    named.push_back(std::move(tenant));
  }
  const v1::Tenant& others = from.default_tenant();
  if (others.has_name() || !others.uid().empty() || !others.gid().empty() || others.has_cgroup()) {
    return invalid(
        "default_tenant has a name, uid, gid or cgroup; it stands for each user whom no tenant "
        "takes, and has terms alone");
  }
  CCO_ASSIGN_OR_RETURN(Tenant terms,
                       read_tenant("default_tenant: ", others, limits, control_bytes));
  return Tenants(std::move(named), std::move(terms));
}

void print_tenants(const Tenants& tenants, v1::Config* to) {
  for (const Tenant& tenant : tenants.named()) print_tenant(tenant, to->add_tenants());
  print_tenant(tenants.others(), to->mutable_default_tenant());
}

}  // namespace cco::memd
