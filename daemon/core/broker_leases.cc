// Broker: leases. Memory is kept from the moment that one is made; what a group under it has comes
// out of it, and nothing else does, until it ends.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

constexpr uint64_t kMinTtlMs = 1000, kMaxTtlMs = uint64_t{30} * 24 * 60 * 60 * 1000;
constexpr size_t kMaxCgroupBytes = 4095;

template <typename... Parts>
absl::Status invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

bool is_cgroup(const std::string& path) {
  return path.size() > 1 && path.size() <= kMaxCgroupBytes && path.front() == '/' &&
         path.back() != '/' && std::none_of(path.begin(), path.end(), absl::ascii_iscntrl);
}

// For a line of the log, whoever wrote it.
std::string logged(const std::string& text) {
  constexpr size_t kMostBytes = 256;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, kMostBytes)), "\"");
}

std::string describe(const LeaseRequest& request) {
  return absl::StrCat("gpus=", logged(absl::StrJoin(request.gpu_uuids, ",")),
                      " bytes_per_gpu=", request.bytes_per_gpu, " ttl_ms=", request.ttl_ms,
                      " for_tenant=", logged(request.tenant), " cgroup=", logged(request.cgroup));
}

absl::Status check_operator(const Session& session, const char* what) {
  if (session.who.is_operator) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("only operators ", what,
                   " leases: root, cco-memd's own user, and members of its operator_group"));
}

}  // namespace

absl::StatusOr<Lease> Broker::make_lease(const LeaseRequest& request) const {
  Lease lease;
  std::set<int> gpus;
  for (const std::string& uuid : request.gpu_uuids) {
    CCO_ASSIGN_OR_RETURN(const int gpu, slabs_.find_gpu(uuid));
    if (!gpus.insert(gpu).second) return invalid("GPU ", uuid, " is named twice");
  }
  for (size_t gpu = 0; request.gpu_uuids.empty() && gpu < slabs_.gpus().size(); ++gpu) {
    gpus.insert(static_cast<int>(gpu));
  }
  lease.gpus.assign(gpus.begin(), gpus.end());
  if (request.bytes_per_gpu < options_.control_bytes) {
    return invalid("bytes_per_gpu is ", request.bytes_per_gpu,
                   ", which is no room for a control region: control_bytes is ",
                   options_.control_bytes);
  }
  lease.bytes_per_gpu = request.bytes_per_gpu;
  if (request.ttl_ms < kMinTtlMs || request.ttl_ms > kMaxTtlMs) {
    return invalid("ttl_ms is ", request.ttl_ms, "; it takes ", kMinTtlMs, " to ", kMaxTtlMs,
                   " (30 days)");
  }
  lease.expires = executor_.now() + Milliseconds(request.ttl_ms);
  if (!request.tenant.empty() && !tenants().has(request.tenant)) {
    return absl::NotFoundError(absl::StrCat("there is no tenant '", request.tenant,
                                            "'; `ccoctl tenants` lists those that are configured, "
                                            "and a user's own is uid-<number>"));
  }
  lease.tenant = request.tenant;
  if (!request.cgroup.empty() && !is_cgroup(request.cgroup)) {
    return invalid("cgroup is '", request.cgroup,
                   "'; it takes a path as in /proc/<pid>/cgroup, as \"/jobs.slice\", of at most ",
                   kMaxCgroupBytes, " bytes without control characters, and not the root");
  }
  lease.cgroup = request.cgroup;
  if (leases_.all().size() >= options_.limits.leases) {
    return over_limit("leases", options_.limits.leases,
                      absl::StrCat("there are ", leases_.all().size(), " leases"));
  }
  CCO_RETURN_IF_ERROR(check_free(lease));
  return lease;
}

absl::Status Broker::check_free(const Lease& lease) const {
  const MemoryLedger& ledger = slabs_.ledger();
  for (const int gpu : lease.gpus) {
    const uint64_t free = ledger.free_bytes(gpu), claimed = queue_.claimed(gpu);
    if (claimed <= free && lease.bytes_per_gpu <= free - claimed) continue;
    std::vector<std::string> users;
    for (auto entry = ledger.by_tenant().lower_bound({gpu, TenantId{}});
         entry != ledger.by_tenant().end() && entry->first.first == gpu; ++entry) {
      users.push_back(
          absl::StrCat("tenant '", tenants().name(entry->first.second), "' uses ", entry->second));
    }
    for (const auto& [id, reservation] : ledger.reservations()) {
      const uint64_t unused = reservation.unused(gpu);
      if (unused != 0) users.push_back(absl::StrCat("lease ", number(id), " keeps ", unused));
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "a lease of ", lease.bytes_per_gpu, " bytes on ",
        slabs_.gpus()[static_cast<size_t>(gpu)].uuid, ": free ", free, " of ",
        ledger.limit_bytes(gpu),
        claimed == 0 ? "" : absl::StrCat(", for which others wait for ", claimed),
        users.empty() ? "" : "; ", absl::StrJoin(users, ", "), ". End some, or ask for less"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Broker::NewLease> Broker::create_lease(Session& session,
                                                      const LeaseRequest& request) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  absl::Status status = check_operator(session, "make");
  Lease lease;
  if (status.ok()) {
    absl::StatusOr<Lease> made = make_lease(request);
    status = made.status();
    if (made.ok()) lease = *std::move(made);
  }
  if (status.ok()) lease.id = leases_.next_id();
  audit(session, "CreateLease", absl::StrCat("lease=", number(lease.id), " ", describe(request)),
        status);
  if (!status.ok()) return status;
  lease.token = make_secret_();
  lease.timer = executor_.call_at(
      lease.expires, [this, id = lease.id] { close_lease(id, "its time to live is over"); });
  slabs_.ledger().reserve(lease.id, lease.gpus, lease.bytes_per_gpu);
  changes_.leases.insert(lease.id);
  NewLease answer{lease.id, lease.token};
  leases_.add(std::move(lease));
  serve_soon();  // Memory may be short now.
  return answer;
}

absl::Status Broker::end_lease(Session& session, LeaseId id) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  absl::Status status = check_operator(session, "end");
  if (status.ok() && leases_.find(id) == nullptr) {
    status = absl::NotFoundError(absl::StrCat(
        "no lease ", number(id), ": it never was, or has ended; `ccoctl lease list` lists them"));
  }
  audit(session, "EndLease", absl::StrCat("lease=", number(id)), status);
  if (status.ok()) close_lease(id, "an operator ended it");
  return status;
}

void Broker::close_lease(LeaseId id, const char* reason) {
  const Lease& lease = *leases_.find(id);
  uint64_t used = 0, unused = 0;
  for (const int gpu : lease.gpus) {
    unused += slabs_.ledger().reservation(id)->unused(gpu);
    used += slabs_.ledger().reservation(id)->used.at(gpu);
  }
  journal_.record(Severity::kInfo, "lease_ended",
                  absl::StrCat("lease=", number(id), " reason=\"", reason,
                               "\" bytes_returned=", unused, " bytes_still_used=", used));
  executor_.cancel(lease.timer);
  slabs_.ledger().release(id);
  serve_soon();
  leases_.erase(id);
  changes_.leases.insert(id);
}

void Broker::restore_lease(Lease lease) {
  const LeaseId id = lease.id;
  lease.timer =
      executor_.call_at(lease.expires, [this, id] { close_lease(id, "its time to live is over"); });
  slabs_.ledger().reserve(id, lease.gpus, lease.bytes_per_gpu);
  leases_.add(std::move(lease));
}

void Broker::end_old_leases() {
  for (auto lease = leases_.all().begin(); lease != leases_.all().end();) {
    const Lease& one = (lease++)->second;
    if (one.expires <= executor_.now()) {
      close_lease(one.id, "its time to live ended while no daemon ran");
    }
  }
}

absl::StatusOr<LeaseId> Broker::find_lease(const Session& session,
                                           const JoinRequest& request) const {
  const std::string tenant = tenants().name(session.tenant);
  const Lease* lease = request.lease.empty() ? leases_.find_by_cgroup(session.who.cgroup, tenant)
                                             : leases_.find_by_token(request.lease, tenant);
  if (lease == nullptr && request.lease.empty()) return LeaseId{};
  if (lease == nullptr) {
    return absl::NotFoundError(
        "no lease of that token for this process: it never was, has ended, or is another "
        "tenant's. Take the token that `ccoctl lease create` printed, or none");
  }
  if (std::binary_search(lease->gpus.begin(), lease->gpus.end(), request.gpu)) return lease->id;
  const std::string uuids = absl::StrJoin(lease->gpus, ", ", [this](std::string* out, int gpu) {
    out->append(slabs_.gpus()[static_cast<size_t>(gpu)].uuid);
  });
  return absl::FailedPreconditionError(
      absl::StrCat("lease ", number(lease->id), " has no bytes on ", request.gpu_uuid,
                   ", this rank's GPU: it is for ", uuids, ". Take one of those"));
}

absl::Status Broker::check_lease(const Payer& payer, const std::vector<int>& gpus,
                                 uint64_t size_bytes) const {
  const MemoryLedger::Reservation* reservation = slabs_.ledger().reservation(payer.lease);
  if (reservation == nullptr) return absl::OkStatus();
  std::map<int, uint64_t> asked;
  for (const int gpu : gpus) asked[gpu] += size_bytes;
  for (const auto& [gpu, bytes] : asked) {
    if (bytes <= reservation->unused(gpu)) continue;
    const auto used = reservation->used.find(gpu);
    const uint64_t used_bytes = used == reservation->used.end() ? 0 : used->second;
    const std::string users = describe_users(bytes_by_pid(payer.tenant, gpu, &payer), used_bytes,
                                             "other tenants' or on their way");
    return absl::ResourceExhaustedError(absl::StrCat(
        "slabs of ", bytes, " bytes on ", slabs_.gpus()[static_cast<size_t>(gpu)].uuid, ": lease ",
        number(payer.lease), " has ", reservation->bytes_per_gpu, " bytes there, used ", used_bytes,
        users.empty() ? "" : " (", users, users.empty() ? "" : ")",
        ". End some, or form the group without the lease, or under a larger one"));
  }
  return absl::OkStatus();
}

bool Broker::may_see(const Session& session, const Lease& lease) const {
  if (session.who.is_operator || lease.tenant == tenants().name(session.tenant)) return true;
  return lease.tenant.empty() && !lease.cgroup.empty() &&
         is_below(session.who.cgroup, lease.cgroup);
}

}  // namespace cco::memd
