// Broker: what tenants and groups have, whether they may have more, and a record of what operators
// do.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

using Groups = std::map<GroupId, std::unique_ptr<Group>>;

// Windows that wait for memory, each for a slab of its own: they will be there once it has come.
uint64_t in_the_making(const Group& group) {
  uint64_t count = 0;
  for (const auto& [key, call] : group.window_calls) count += call->is_doing() ? 1 : 0;
  return count;
}

uint64_t windows_of(const Group& group) { return group.windows.size() + in_the_making(group); }

// Each group's amount, for each of its processes.
std::map<int64_t, uint64_t> by_pid(const Groups& groups, TenantId tenant,
                                   absl::FunctionRef<uint64_t(const Group&)> amount) {
  std::map<int64_t, uint64_t> amounts;
  for (const auto& [id, group] : groups) {
    const uint64_t mine = group->tenant == tenant ? amount(*group) : 0;
    if (mine == 0) continue;
    std::set<int64_t> pids;
    for (const Rank& rank : group->ranks) {
      if (rank.may_map) pids.insert(rank.who.pid);
    }
    for (const int64_t pid : pids) amounts[pid] += mine;
  }
  return amounts;
}

}  // namespace

absl::Status check_name(const std::string& what, const std::string& name) {
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, "'s name has ", name.size(),
                                                   " bytes; at most ", kMaxNameBytes,
                                                   " are allowed"));
  }
  const auto control = std::find_if(name.begin(), name.end(), absl::ascii_iscntrl);
  if (control == name.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, "'s name has a control character (",
                                                 static_cast<int>(*control), ") at byte ",
                                                 control - name.begin(), "; take another name"));
}

void Broker::audit(const Session& session, const char* call, const std::string& object,
                   const absl::Status& result) {
  const std::string fields = absl::StrCat(
      "uid=", session.who.uid, " pid=", session.who.pid, " tenant=", tenants().name(session.tenant),
      " call=", call, " ", object, " result=", absl::StatusCodeToString(result.code()));
  if (result.ok()) return journal_.record(Severity::kNotice, "audit", fields);
  journal_.record_refusal(Severity::kNotice, "audit",
                          absl::StrCat("uid=", session.who.uid, " call=", call), fields);
}

Broker::TenantUse Broker::use_of(TenantId tenant) const {
  TenantUse use;
  for (const auto& [id, session] : sessions_.all()) use.sessions += session.tenant == tenant;
  for (const auto& [id, group] : groups_) {
    if (group->tenant != tenant) continue;
    ++use.groups;
    use.windows += windows_of(*group);
  }
  use.windows += kept_windows_.count(tenant);
  for (const auto& [key, forming] : forming_) use.groups += forming.tenant == tenant;
  for (size_t gpu = 0; gpu < slabs_.gpus().size(); ++gpu) {
    use.bytes.push_back(slabs_.bytes(tenant, static_cast<int>(gpu)));
  }
  return use;
}

uint64_t Broker::descriptor_count(TenantId tenant) const {
  const auto counts = [tenant](TenantId one) { return tenant == TenantId{} || one == tenant; };
  uint64_t count = 0;
  for (const auto& [id, session] : sessions_.all()) count += counts(session.tenant) ? 1 : 0;
  for (const auto& [id, slab] : slabs_.all()) {
    count += !slab.is_external && counts(slab.payer.tenant) ? 1 : 0;
  }
  for (const auto& [id, group] : groups_) {
    if (!counts(group->tenant)) continue;
    for (const auto& [index, set] : group->slabs) {
      if (!set.is_external) continue;  // Nobody pays for those that are.
      count += set.ids.size() - std::count(set.ids.begin(), set.ids.end(), SlabId{});
    }
    const bool shrinks = group->shrink_call != nullptr && group->shrink_call->is_doing();
    count += group->size() * (1 + in_the_making(*group) + (shrinks ? 2 : 0));
  }
  for (const auto& [key, forming] : forming_) {
    count += counts(forming.tenant) ? uint64_t{2} * forming.call->size() : 0;
  }
  return count;
}

// The last few are for operators, who may want to see why.
absl::Status Broker::check_all_kept(uint64_t more, bool is_operator,
                                    const std::string& what) const {
  const uint64_t limit = options_.kept_descriptors;
  if (limit == 0) return absl::OkStatus();
  const uint64_t used = descriptor_count(TenantId{}) + (is_operator ? 0 : limit / 64);
  if (more <= limit - std::min(used, limit)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " takes ", more, " more of the ", limit, " descriptors that can outlive cco-memd, and ",
      used,
      " are taken by sessions, ranks and slabs. End some, or raise it "
      "(FileDescriptorStoreMax and FDSTORE of its unit; without systemd, LimitNOFILE)"));
}

absl::Status Broker::check_kept(TenantId tenant, uint64_t more, const std::string& what) const {
  if (absl::Status all = check_all_kept(more, false, what); !all.ok()) return all;
  if (options_.kept_descriptors == 0) return absl::OkStatus();
  const uint64_t share = options_.limits.share(options_.kept_descriptors);
  const uint64_t used = descriptor_count(tenant);
  if (more <= share - std::min(used, share)) return absl::OkStatus();
  return over_quota({absl::StrCat(what, " takes ", more, " more of the ", options_.kept_descriptors,
                                  " descriptors that can outlive cco-memd"),
                     tenants().name(tenant),
                     "limits.tenant_share_percent of them",
                     share,
                     used,
                     "of them for its sessions, ranks and slabs",
                     {}});
}

absl::Status Broker::check_kept_session(const Identity& who) const {
  if (who.is_operator) return check_all_kept(1, true, "a session");
  return check_kept(tenants().find(who), 1, "a session");
}

absl::Status Broker::check_another_group(TenantId tenant, const std::string& what) const {
  if (groups_.size() + forming_.size() >= options_.limits.groups) {
    return over_limit(
        "groups", options_.limits.groups,
        absl::StrCat(groups_.size(), " groups run and ", forming_.size(), " are forming"));
  }
  const uint64_t own = tenants().terms(tenant).quotas.groups;
  const uint64_t limit = own != 0 ? own : options_.limits.share(options_.limits.groups);
  const uint64_t used = use_of(tenant).groups;
  if (used < limit) return absl::OkStatus();
  return over_quota(
      {what, tenants().name(tenant),
       own != 0 ? "its quotas.groups" : "limits.tenant_share_percent of limits.groups", limit, used,
       "groups that run or are forming", by_pid(groups_, tenant, [](const Group&) { return 1; })});
}

absl::Status Broker::check_another_window(const Group& group, const std::string& what,
                                          bool was_kept) const {
  if (windows_of(group) >= options_.limits.windows_per_group) {
    return over_limit("windows_per_group", options_.limits.windows_per_group,
                      absl::StrCat(what, ": group ", number(group.id), " has ", windows_of(group),
                                   " windows, those in the making included"));
  }
  const TenantId tenant = group.tenant;
  const uint64_t limit = tenants().terms(tenant).quotas.windows;
  if (limit == 0 || was_kept) return absl::OkStatus();
  const uint64_t used = use_of(tenant).windows;
  if (used < limit) return absl::OkStatus();
  return over_quota({what, tenants().name(tenant), "its quotas.windows", limit, used,
                     "windows in use or kept", by_pid(groups_, tenant, windows_of)});
}

absl::Status Broker::check_another_slab(const Group& group, const std::string& what,
                                        bool has_memory) const {
  for (const Rank& rank : group.ranks) {
    if (absl::Status status = check_serving(rank.gpu); !status.ok()) return status;
  }
  const uint64_t count = group.slabs.size() + in_the_making(group);
  if (count < options_.limits.slabs_per_group) {
    return has_memory ? absl::OkStatus() : check_kept(group.tenant, group.size(), what);
  }
  return over_limit("slabs_per_group", options_.limits.slabs_per_group,
                    absl::StrCat(what, " needs another slab; the group has ", count,
                                 ", those in the making included"));
}

absl::Status Broker::check_byte_quota(TenantId tenant, const std::vector<int>& gpus,
                                      uint64_t size_bytes, bool will_wait) const {
  const uint64_t limit = tenants().terms(tenant).quotas.bytes_per_gpu;
  if (limit == 0) return absl::OkStatus();
  std::map<int, uint64_t> asked;
  for (const int gpu : gpus) asked[gpu] += size_bytes;
  for (const auto& [gpu, bytes] : asked) {
    const uint64_t waiting = will_wait ? queue_.waiting_bytes(tenant, gpu) : 0;
    const uint64_t used = slabs_.bytes(tenant, gpu) + waiting;
    if (bytes <= limit - std::min(used, limit)) continue;
    const std::string& uuid = slabs_.gpus()[static_cast<size_t>(gpu)].uuid;
    return over_quota(
        {absl::StrCat("slabs of ", bytes, " bytes on ", uuid), tenants().name(tenant),
         "its quotas.bytes_per_gpu", limit, used,
         absl::StrCat("bytes on ", uuid, will_wait ? ", those waited for included" : ""),
         bytes_by_pid(tenant, gpu, nullptr)});
  }
  return absl::OkStatus();
}

}  // namespace cco::memd
