#include "daemon/core/tenants.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cco::memd {
namespace {

// Ids of users' own tenants lie above those of the named.
constexpr uint64_t kFirstOfUsers = uint64_t{1} << 32;

bool takes(const Tenant& tenant, const Identity& who) {
  return absl::c_linear_search(tenant.uids, who.uid) ||
         absl::c_linear_search(tenant.gids, who.gid) ||
         (!tenant.cgroup.empty() && is_below(who.cgroup, tenant.cgroup));
}

}  // namespace

bool is_plain_name(const std::string& name) {
  return absl::c_all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

bool is_below(const std::string& cgroup, const std::string& ancestor) {
  return absl::StartsWith(cgroup, ancestor) &&
         (cgroup.size() == ancestor.size() || cgroup[ancestor.size()] == '/');
}

TenantId Tenants::find(const Identity& who) const {
  for (size_t i = 0; i < named_.size(); ++i) {
    if (takes(named_[i], who)) return id(i);
  }
  return TenantId{kFirstOfUsers + who.uid};
}

const Tenant& Tenants::terms(TenantId id) const {
  return number(id) >= kFirstOfUsers ? others_ : named_.at(number(id) - 1);
}

bool Tenants::has(const std::string& name) const {
  for (const Tenant& tenant : named_) {
    if (tenant.name == name) return true;
  }
  uint32_t uid = 0;
  return absl::StartsWith(name, "uid-") && absl::SimpleAtoi(name.substr(4), &uid) &&
         name == absl::StrCat("uid-", uid);
}

std::string Tenants::name(TenantId id) const {
  if (number(id) >= kFirstOfUsers) return absl::StrCat("uid-", number(id) - kFirstOfUsers);
  return terms(id).name;
}

std::string describe_users(const std::map<int64_t, uint64_t>& by_pid, uint64_t used,
                           const char* rest) {
  constexpr size_t kMaxUsers = 4;
  std::vector<std::pair<uint64_t, int64_t>> users;
  uint64_t known = 0;
  for (const auto& [pid, amount] : by_pid) {
    users.emplace_back(amount, pid);
    known += amount;
  }
  std::sort(users.rbegin(), users.rend());
  std::string text;
  for (size_t i = 0; i < users.size() && i < kMaxUsers; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "pid ", users[i].second, " ", users[i].first);
  }
  if (users.size() > kMaxUsers) absl::StrAppend(&text, ", ", users.size() - kMaxUsers, " more");
  if (known < used) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", rest, " ", used - known);
  }
  return text;
}

absl::Status over_quota(const Excess& excess) {
  const std::string users =
      excess.by_pid.empty() ? "" : describe_users(excess.by_pid, excess.used, "on their way");
  return absl::ResourceExhaustedError(
      absl::StrCat(excess.what, ": tenant '", excess.tenant, "' has ", excess.used, " ", excess.of,
                   users.empty() ? "" : " (", users, users.empty() ? "" : ")", "; ", excess.quota,
                   " is ", excess.limit, ". End some, or raise it in cco-memd's configuration"));
}

}  // namespace cco::memd
