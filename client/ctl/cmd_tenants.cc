// ccoctl tenants: who is accounted together, what each may have, and has.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

std::string match_of(const v1::TenantInfo& tenant) {
  std::vector<std::string> parts;
  if (!tenant.uids().empty()) parts.push_back("uid " + absl::StrJoin(tenant.uids(), ","));
  if (!tenant.gids().empty()) parts.push_back("gid " + absl::StrJoin(tenant.gids(), ","));
  if (!tenant.cgroup().empty()) parts.push_back("cgroup " + tenant.cgroup());
  return parts.empty() ? "default" : absl::StrJoin(parts, " or ");
}

// "3/8"; of several, one for each GPU, the one that is used most.
std::string quota_of(const v1::TenantInfo& tenant, const std::string& name,
                     std::string (*show)(uint64_t)) {
  const v1::QuotaInfo* most = nullptr;
  for (const v1::QuotaInfo& quota : tenant.quotas()) {
    if (quota.name() == name && (most == nullptr || quota.used() > most->used())) most = &quota;
  }
  if (most == nullptr) return "";
  return absl::StrCat(show(most->used()), "/", most->value() == 0 ? "-" : show(most->value()));
}

std::string plain(uint64_t count) { return absl::StrCat(count); }

absl::StatusOr<int> run_tenants(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  const auto listed = list_all<v1::ListTenantsRequest, v1::ListTenantsResponse>(
      *connection, &v1::MemdService::Stub::ListTenants, {}, settings);
  CCO_RETURN_IF_ERROR(listed.status());
  if (settings.json) return print_json(*listed);
  Table table({{"NAME"},
               {"MATCH"},
               {"PRIORITY", Align::kRight},
               {"SESSIONS", Align::kRight},
               {"GROUPS", Align::kRight},
               {"WINDOWS", Align::kRight},
               {"MOST ON A GPU", Align::kRight},
               {"EXTERNAL MEMORY"}});
  for (const v1::TenantInfo& tenant : listed->tenants()) {
    table.add({tenant.name(), match_of(tenant), absl::StrCat(tenant.priority()),
               quota_of(tenant, "sessions", plain), quota_of(tenant, "groups", plain),
               quota_of(tenant, "windows", plain), quota_of(tenant, "bytes_per_gpu", human_bytes),
               tenant.external_memory() ? "yes" : "no"});
  }
  print(table.text());
  return kExitOk;
}

}  // namespace

Runner define_tenants(CLI::App&, const Settings& settings) {
  return [&settings] { return run_tenants(settings); };
}

}  // namespace cco::ctl
