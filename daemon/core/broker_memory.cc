// Broker: memory for groups. Out of their lease, at once, or in their turn; and whom it is told
// that somebody waits.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

// Nobody tells when others on this machine give memory back to the driver.
constexpr Milliseconds kDriverPause{1000};
// Each is looked at, for each of the others, whenever memory is freed.
constexpr size_t kMostWaiting = 1024;

}  // namespace

void Broker::create_slabs(Allocation wanted) {
  wanted.done = [this, tenant = wanted.payer.tenant, gpus = wanted.gpus,
                 done = std::move(wanted.done)](absl::StatusOr<std::vector<SlabId>> slabs) mutable {
    if (slabs.ok()) return done(std::move(slabs));
    done(mention_kept(slabs.status(), tenant, gpus));
  };
  absl::Status status = check_slabs(wanted, false);
  if (status.ok()) status = check_lease(wanted.payer, wanted.gpus, wanted.size_bytes);
  if (!status.ok()) return wanted.done(status);
  const auto entry = std::make_shared<Allocation>(std::move(wanted));
  entry->priority = tenants().terms(entry->payer.tenant).priority;
  if (slabs_.ledger().reservation(entry->payer.lease) != nullptr || has_room(*entry)) {
    return try_driver(entry);
  }
  if (!may_wait(*entry)) return entry->done(no_room(*entry));
  status = check_slabs(*entry, true);
  if (status.ok() && queue_.size() >= kMostWaiting) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("there is no room now, and ", kMostWaiting,
                     " others wait for memory already, which are the most that may. Try later"));
  }
  if (!status.ok()) return entry->done(status);
  wait_in_turn(entry);
}

absl::Status Broker::check_slabs(const Allocation& wanted, bool will_wait) const {
  absl::Status status;
  for (const int gpu : wanted.gpus) status.Update(check_serving(gpu));
  status.Update(check_byte_quota(wanted.payer.tenant, wanted.gpus, wanted.size_bytes, will_wait));
  return status;
}

bool Broker::has_room(const Allocation& wanted) const {
  return std::all_of(wanted.gpus.begin(), wanted.gpus.end(), [&](int gpu) {
    const uint64_t free = slabs_.ledger().free_bytes(gpu);
    const uint64_t claimed = queue_.claimed_before(wanted, gpu);
    return claimed <= free && wanted.bytes_on(gpu) <= free - claimed;
  });
}

bool Broker::may_wait(const Allocation& wanted) const {
  const auto group = groups_.find(wanted.group);
  const bool is_wanted = group != groups_.end() && group->second->abort_reason.empty();
  return is_wanted && executor_.now() < wanted.deadline &&
         slabs_.ledger().reservation(wanted.payer.lease) == nullptr &&
         std::all_of(wanted.gpus.begin(), wanted.gpus.end(), [&](int gpu) {
           return wanted.bytes_on(gpu) <= slabs_.ledger().limit_bytes(gpu);
         });
}

void Broker::try_driver(const AllocationQueue::Entry& entry) {
  entry->is_tried = true;
  slabs_.create(entry->payer, entry->gpus, entry->size_bytes, entry->kind,
                [this, entry](absl::StatusOr<std::vector<SlabId>> slabs) {
                  finish_try(entry, std::move(slabs));
                });
}

void Broker::finish_try(const AllocationQueue::Entry& entry,
                        absl::StatusOr<std::vector<SlabId>> slabs) {
  entry->is_tried = false;
  if (!slabs.ok()) serve_soon();  // Its bytes are free again.
  if (absl::IsResourceExhausted(slabs.status()) && may_wait(*entry)) {
    entry->waits_for_driver = true;
    executor_.call_at(executor_.now() + kDriverPause, [this, entry] {
      entry->waits_for_driver = false;
      serve_soon();
    });
    if (entry->arrival == 0) wait_in_turn(entry);
    return;
  }
  if (entry->arrival != 0) {
    if (slabs.ok()) queue_.note_served(entry->payer.tenant);
    leave_queue(*entry);
  }
  entry->done(std::move(slabs));
}

void Broker::wait_in_turn(const AllocationQueue::Entry& entry) {
  entry->timer = executor_.call_at(entry->deadline, [this, entry] {
    if (entry->is_tried) return;  // The driver's answer ends it.
    const absl::Status status = no_room(*entry);
    queue_.note_served(entry->payer.tenant);  // It has had its turn.
    leave_queue(*entry);
    entry->done(status);
  });
  queue_.add(entry);
  review_pressure();
}

void Broker::leave_queue(const Allocation& entry) {
  executor_.cancel(entry.timer);
  queue_.remove(entry);
  serve_soon();
}

void Broker::end_waits(GroupId group, const absl::Status& status) {
  for (const AllocationQueue::Entry& entry : queue_.remove_all_of(group)) {
    leave_queue(*entry);
    entry->done(status);
  }
}

// Later, as it is called in the middle of what frees memory.
void Broker::serve_soon() {
  if (std::exchange(will_serve_, true)) return;
  executor_.post([this] {
    will_serve_ = false;
    serve();
  });
}

void Broker::serve() {
  const auto fits = [this](const Allocation& entry) { return has_room(entry); };
  while (const AllocationQueue::Entry entry = queue_.next(fits)) {
    const absl::Status status = check_slabs(*entry, false);
    if (status.ok()) {
      try_driver(entry);
    } else {
      leave_queue(*entry);
      entry->done(status);
    }
  }
  review_pressure();
}

void Broker::review_pressure() {
  for (int gpu = 0; gpu < static_cast<int>(slabs_.gpus().size()); ++gpu) {
    const bool waits = queue_.count(gpu) != 0;
    if (waits == (pressed_.count(gpu) != 0)) continue;
    const std::string& uuid = slabs_.gpus()[static_cast<size_t>(gpu)].uuid;
    if (waits) {
      pressed_.insert(gpu);
      journal_.record(Severity::kWarning, "memory_pressure",
                      absl::StrCat("gpu=", uuid, " bytes_asked=", queue_.waiting_bytes(gpu),
                                   " bytes_free=", slabs_.ledger().free_bytes(gpu)));
    } else {
      pressed_.erase(gpu);
      journal_.record(Severity::kInfo, "memory_pressure_over", absl::StrCat("gpu=", uuid));
    }
    for (auto& [id, group] : groups_) {
      for (Rank& rank : group->ranks) {
        if (rank.gpu == gpu) tell_pressure(rank);
      }
    }
  }
}

void Broker::tell_pressure(Rank& rank) {
  rank.notice->set_condition(CCO_CONDITION_MEMORY_PRESSURE, pressed_.count(rank.gpu) != 0);
}

std::map<int64_t, uint64_t> Broker::bytes_by_pid(TenantId tenant, int gpu,
                                                 const Payer* of_lease) const {
  std::map<int64_t, uint64_t> owners;
  for (const auto& [id, group] : groups_) {
    if (group->tenant != tenant || (of_lease != nullptr && group->lease != of_lease->lease)) {
      continue;
    }
    for (uint32_t rank = 0; rank < group->size(); ++rank) {
      const uint64_t mine = group->ranks[rank].gpu == gpu ? slab_bytes(*group, rank) : 0;
      if (mine != 0) owners[group->ranks[rank].who.pid] += mine;
    }
  }
  return owners;
}

// Of the first of its GPUs that has none for it. Of other tenants' there only a sum is told.
absl::Status Broker::no_room(const Allocation& wanted) const {
  const MemoryLedger& ledger = slabs_.ledger();
  const auto lacks = [&](int gpu) {
    const uint64_t free = ledger.free_bytes(gpu);
    return queue_.claimed_before(wanted, gpu) + wanted.bytes_on(gpu) > free;
  };
  const auto found = std::find_if(wanted.gpus.begin(), wanted.gpus.end(), lacks);
  const int gpu = found == wanted.gpus.end() ? wanted.gpus.front() : *found;
  const uint64_t mine = ledger.tenant_bytes(wanted.payer.tenant, gpu);
  const uint64_t others = ledger.slab_bytes(gpu) - mine, limit = ledger.limit_bytes(gpu);
  const std::string users =
      describe_users(bytes_by_pid(wanted.payer.tenant, gpu, nullptr), mine, "on their way");
  const uint64_t claimed = queue_.claimed_before(wanted, gpu);
  return absl::ResourceExhaustedError(absl::StrCat(
      "slab of ", wanted.bytes_on(gpu), " bytes on ", slabs_.gpus()[static_cast<size_t>(gpu)].uuid,
      ": free ", ledger.free_bytes(gpu), " of ", limit,
      " bytes there (limits.bytes_per_gpu, or all of the GPU's memory)",
      claimed == 0 ? "" : absl::StrCat(", for which others wait before it for ", claimed),
      wanted.arrival == 0 ? "" : absl::StrCat("; it was number ", queue_.place(wanted), " in turn"),
      wanted.waits_for_driver ? "; the driver gave less than that" : "", ". Tenant '",
      tenants().name(wanted.payer.tenant), "' has ", mine, users.empty() ? "" : " (", users,
      users.empty() ? "" : ")", ", others ", others, ", leases keep ", ledger.reserved_bytes(gpu),
      " more. ",
      wanted.bytes_on(gpu) > limit ? "Ask for less"
                                   : "End some groups or leases, or wait for memory longer"));
}

}  // namespace cco::memd
