#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/service/translate.h"

namespace cco::memd {
namespace {

v1::LeaseInfo render_lease(const Lease& lease, const Broker& broker) {
  v1::LeaseInfo info;
  info.set_lease_id(number(lease.id));
  info.set_tenant(lease.tenant);
  info.set_cgroup(lease.cgroup);
  info.set_bytes_per_gpu(lease.bytes_per_gpu);
  const auto left = std::chrono::duration_cast<Milliseconds>(lease.expires - broker.now());
  info.set_expires_in_ms(static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)));
  for (const auto& [gpu, used] : broker.slabs().ledger().reservation(lease.id)->used) {
    v1::LeaseUse* use = info.add_uses();
    use->set_gpu_uuid(broker.slabs().gpus()[static_cast<size_t>(gpu)].uuid);
    use->set_used_bytes(used);
  }
  uint32_t groups = 0;
  for (const auto& [id, group] : broker.groups()) groups += group->lease == lease.id ? 1 : 0;
  info.set_group_count(groups);
  return info;
}

}  // namespace

LeaseRequest parse(const v1::CreateLeaseRequest& request) {
  return {.gpu_uuids = {request.gpu_uuids().begin(), request.gpu_uuids().end()},
          .bytes_per_gpu = request.bytes_per_gpu(),
          .ttl_ms = request.ttl_ms(),
          .tenant = request.tenant(),
          .cgroup = request.cgroup()};
}

absl::StatusOr<v1::ListLeasesResponse> render_leases(const v1::ListLeasesRequest& request,
                                                     const Broker& broker, const Session& caller) {
  CCO_ASSIGN_OR_RETURN(const Page page, parse_page(request.page_size(), request.page_token()));
  v1::ListLeasesResponse response;
  const auto& all = broker.leases().all();
  for (auto entry = all.upper_bound(LeaseId{page.after}); entry != all.end(); ++entry) {
    if (!broker.may_see(caller, entry->second)) continue;
    if (response.leases_size() == static_cast<int>(page.size)) {
      response.set_next_page_token(
          absl::StrCat(response.leases(response.leases_size() - 1).lease_id()));
      break;
    }
    *response.add_leases() = render_lease(entry->second, broker);
  }
  return response;
}

}  // namespace cco::memd
