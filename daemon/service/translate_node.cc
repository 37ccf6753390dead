// What the node is and has: a tenant sees what is its own, an operator all.
#include <sys/resource.h>
#include <unistd.h>

#include <optional>

#include "daemon/service/translate.h"
#include "daemon/sys/descriptors.h"

namespace cco::memd {
namespace {

const char* service_name(GpuService service) {
  switch (service) {
    case GpuService::kServing:
      return "serving";
    case GpuService::kDraining:
      return "draining";
    case GpuService::kDrained:
      return "drained";
    case GpuService::kReturning:
      return "returning";
  }
  return "";
}

void add_limit(v1::GetNodeResponse* response, const char* name, uint64_t value, uint64_t used) {
  v1::Limit* limit = response->add_limits();
  limit->set_name(name);
  limit->set_value(value);
  limit->set_used(used);
}

// What there is, as far as it concerns the caller.
struct Counts {
  uint32_t sessions = 0, groups = 0, windows = 0, leases = 0, kept_windows = 0;
};
Counts counts(const Broker& broker, const Session& caller) {
  Counts counts;
  for (const auto& [id, session] : broker.sessions().all()) {
    counts.sessions += broker.may_see(caller, session.tenant);
  }
  for (const auto& [id, group] : broker.groups()) {
    if (!broker.may_see(caller, group->tenant)) continue;
    ++counts.groups;
    counts.windows += static_cast<uint32_t>(group->windows.size());
  }
  for (const auto& [key, forming] : broker.forming()) {
    counts.groups += broker.may_see(caller, forming.tenant);
  }
  for (const auto& [id, lease] : broker.leases().all()) {
    counts.leases += broker.may_see(caller, lease);
  }
  counts.kept_windows = static_cast<uint32_t>(
      broker.kept_window_count(caller.who.is_operator ? TenantId{} : caller.tenant));
  return counts;
}

}  // namespace

v1::Gpu render_gpu(int index, const Broker& broker, const Session& caller) {
  const GpuDevice& device = broker.slabs().gpus()[static_cast<size_t>(index)];
  const bool sees_all = caller.who.is_operator;
  const SlabTable::Usage usage =
      broker.slabs().usage(index, sees_all ? std::nullopt : std::optional(caller.tenant));
  v1::Gpu gpu;
  gpu.set_uuid(device.uuid);
  gpu.set_pci_bus_id(device.pci_bus_id);
  gpu.set_name(device.name);
  gpu.set_arch(device.arch);
  gpu.set_total_bytes(device.total_bytes);
  gpu.set_slab_bytes(usage.bytes);
  gpu.set_limit_bytes(broker.slabs().ledger().limit_bytes(index));
  gpu.set_granularity_bytes(device.granularity_bytes);
  gpu.set_slab_count(usage.slab_count);
  gpu.set_quarantined_bytes(usage.quarantined_bytes);
  gpu.set_held_bytes(usage.held_bytes);
  gpu.set_kept_bytes(usage.kept_bytes);
  const GpuService service = broker.service(index);
  gpu.set_state(service_name(service));
  gpu.set_drain_left_ms(milliseconds(broker.drain_left(index)));
  if (!sees_all) return gpu;
  gpu.set_reserved_bytes(broker.slabs().ledger().reserved_bytes(index));
  gpu.set_waiting_count(broker.queue().count(index));
  gpu.set_waiting_bytes(broker.queue().waiting_bytes(index));
  gpu.set_busy_ms(milliseconds(broker.slabs().busy(index)));
  gpu.set_revoked_bytes(usage.revoked_bytes);
  if (service == GpuService::kServing) return gpu;
  for (const GpuUser& user : broker.users(index)) {
    const Session& session = broker.sessions().all().at(user.session);
    v1::GpuUser* to = gpu.add_users();
    to->set_pid(session.who.pid);
    to->set_uid(session.who.uid);
    to->set_tenant(broker.tenants().name(session.tenant));
    to->set_group_id(number(user.group));
    to->set_group_name(broker.groups().at(user.group)->name);
    to->set_rank_count(user.rank_count);
    to->set_bytes(user.bytes);
  }
  return gpu;
}

v1::GetNodeResponse render_node(const Broker& broker, const NodeFacts& facts,
                                const Session& caller) {
  v1::GetNodeResponse response;
  response.set_version(facts.version);
  response.set_incarnation(broker.options().incarnation);
  response.set_driver(facts.driver);
  response.set_driver_version(facts.driver_version);
  response.set_driver_change(facts.driver_change());
  for (size_t i = 0; i < broker.slabs().gpus().size(); ++i) {
    *response.add_gpus() = render_gpu(static_cast<int>(i), broker, caller);
  }
  const Limits& limits = broker.options().limits;
  const Counts seen = counts(broker, caller);
  add_limit(&response, "sessions", limits.sessions, seen.sessions);
  add_limit(&response, "groups", limits.groups, seen.groups);
  add_limit(&response, "leases", limits.leases, seen.leases);
  add_limit(&response, "kept_windows", limits.kept_windows, seen.kept_windows);
  response.set_daemon_pid(::getpid());
  response.set_uptime_ms(milliseconds(broker.now() - facts.started));
  response.set_session_count(seen.sessions);
  response.set_group_count(seen.groups);
  response.set_window_count(seen.windows);
  response.set_caller_uid(caller.who.uid);
  response.set_caller_is_operator(caller.who.is_operator);
  if (caller.who.is_operator) response.set_open_fds(open_descriptors());
  rlimit fd_limit{};
  ::getrlimit(RLIMIT_NOFILE, &fd_limit);
  response.set_fd_limit(fd_limit.rlim_cur);
  return response;
}

}  // namespace cco::memd
