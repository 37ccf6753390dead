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
// Between two records that memory is short at one place.
constexpr Milliseconds kPressurePause{10000};

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
  serve_soon();  // Memory may be short now.
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

std::set<Broker::Shortage> Broker::shortages() const {
  const MemoryLedger& ledger = slabs_.ledger();
  const uint32_t percent = options_.memory_pressure_percent;
  const auto is_nearly = [percent](uint64_t used, uint64_t limit) {
    return percent != 0 && limit != 0 && used >= limit - limit / 100 * (100 - percent);
  };
  std::set<Shortage> found;
  for (int gpu = 0; gpu < static_cast<int>(slabs_.gpus().size()); ++gpu) {
    const uint64_t limit = ledger.limit_bytes(gpu);
    if (queue_.count(gpu) != 0 || is_nearly(limit - ledger.free_bytes(gpu), limit)) {
      found.emplace(gpu, TenantId{});
    }
  }
  for (const auto& [key, bytes] : ledger.by_tenant()) {
    const auto& [gpu, tenant] = key;
    if (is_nearly(bytes, tenants().terms(tenant).quotas.bytes_per_gpu)) found.emplace(gpu, tenant);
  }
  return found;
}

void Broker::review_pressure() {
  const std::set<Shortage> now = shortages();
  bool has_changed = false;
  for (auto entry = pressed_.begin(); entry != pressed_.end();) {
    const Shortage shortage = (entry++)->first;
    if (now.count(shortage) != 0) continue;
    end_pressure(shortage);
    has_changed = true;
  }
  for (const Shortage& shortage : now) {
    if (pressed_.count(shortage) != 0) continue;
    begin_pressure(shortage);
    has_changed = true;
  }
  if (!has_changed) return;
  for (auto& [id, group] : groups_) {
    for (Rank& rank : group->ranks) tell_pressure(*group, rank);
  }
}

// What comes and goes is recorded now and then, and what lasts in any case.
void Broker::begin_pressure(const Shortage& shortage) {
  Pressure& pressure = pressed_[shortage];
  const auto last = pressure_recorded_.find(shortage);
  if (last == pressure_recorded_.end() || executor_.now() >= last->second + kPressurePause) {
    return record_pressure(shortage);
  }
  pressure.timer = executor_.call_at(last->second + kPressurePause, [this, shortage] {
    pressed_.at(shortage).timer.reset();
    record_pressure(shortage);
  });
}

void Broker::end_pressure(const Shortage& shortage) {
  const Pressure pressure = pressed_.at(shortage);
  pressed_.erase(shortage);
  if (pressure.timer.has_value()) executor_.cancel(*pressure.timer);
  if (!pressure.is_recorded) return;
  const auto& [gpu, tenant] = shortage;
  journal_.record(Severity::kInfo, "memory_pressure_over",
                  absl::StrCat("gpu=", slabs_.gpus()[static_cast<size_t>(gpu)].uuid,
                               tenant == TenantId{} ? "" : " tenant=",
                               tenant == TenantId{} ? "" : tenants().name(tenant)));
}

void Broker::record_pressure(const Shortage& shortage) {
  const auto& [gpu, tenant] = shortage;
  pressed_.at(shortage).is_recorded = true;
  pressure_recorded_[shortage] = executor_.now();
  std::string text = absl::StrCat("gpu=", slabs_.gpus()[static_cast<size_t>(gpu)].uuid);
  if (tenant == TenantId{}) {
    absl::StrAppend(&text, " bytes_asked=", queue_.waiting_bytes(gpu),
                    " bytes_free=", slabs_.ledger().free_bytes(gpu));
  } else {
    absl::StrAppend(&text, " tenant=", tenants().name(tenant),
                    " bytes_used=", slabs_.ledger().tenant_bytes(tenant, gpu),
                    " bytes_quota=", tenants().terms(tenant).quotas.bytes_per_gpu);
  }
  journal_.record(Severity::kWarning, "memory_pressure", text);
}

void Broker::tell_pressure(const Group& group, Rank& rank) {
  const bool is_pressed =
      pressed_.count({rank.gpu, TenantId{}}) != 0 || pressed_.count({rank.gpu, group.tenant}) != 0;
  rank.notice->set_condition(CCO_CONDITION_MEMORY_PRESSURE, is_pressed);
}

std::map<int64_t, uint64_t> Broker::bytes_by_pid(TenantId tenant, int gpu,
                                                 const Payer* of_lease) const {
  std::map<int64_t, uint64_t> owners;
  for (const auto& [id, group] : groups_) {
    if (group->tenant != tenant || (of_lease != nullptr && group->lease != of_lease->lease)) {
      continue;
    }
    for (const auto& [index, set] : group->slabs) {
      for (uint32_t rank = 0; rank < group->size() && !set.is_external; ++rank) {
        const Rank& owner = group->ranks[rank];
        if (owner.gpu == gpu) owners[owner.who.pid] += set.sizes[rank];
      }
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
