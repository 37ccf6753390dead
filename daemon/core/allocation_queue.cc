#include "daemon/core/allocation_queue.h"

#include <algorithm>
#include <utility>

#include "client/base/status_macros.h"

namespace cco::memd {

uint64_t Allocation::bytes_on(int gpu) const {
  return size_bytes * static_cast<uint64_t>(std::count(gpus.begin(), gpus.end(), gpu));
}

void AllocationQueue::add(Entry entry) {
  if (entry->arrival == 0) entry->arrival = ++last_arrival_;
  const uint64_t arrival = entry->arrival;
  CCO_ASSERT(entries_.emplace(arrival, std::move(entry)).second);
}

void AllocationQueue::remove(const Allocation& entry) {
  entries_.erase(entry.arrival);
  if (entries_.empty()) served_.clear();  // Those who wait next owe each other nothing.
}

std::vector<AllocationQueue::Entry> AllocationQueue::remove_all_of(GroupId group) {
  std::vector<Entry> removed;
  for (const auto& [arrival, entry] : entries_) {
    if (entry->group == group && !entry->is_tried) removed.push_back(entry);
  }
  for (const Entry& entry : removed) remove(*entry);
  return removed;
}

uint64_t AllocationQueue::last_served(TenantId tenant) const {
  const auto found = served_.find(tenant);
  return found == served_.end() ? 0 : found->second;
}

bool AllocationQueue::goes_before(const Allocation& a, const Allocation& b) const {
  if (a.priority != b.priority) return a.priority > b.priority;
  const uint64_t a_served = last_served(a.payer.tenant), b_served = last_served(b.payer.tenant);
  if (a_served != b_served) return a_served < b_served;
  return a.arrival != 0 && (b.arrival == 0 || a.arrival < b.arrival);
}

AllocationQueue::Entry AllocationQueue::next(
    absl::FunctionRef<bool(const Allocation&)> has_room) const {
  Entry first;
  for (const auto& [arrival, entry] : entries_) {
    if (entry->is_tried || entry->waits_for_driver) continue;
    if (first != nullptr && !goes_before(*entry, *first)) continue;
    if (has_room(*entry)) first = entry;
  }
  return first;
}

uint64_t AllocationQueue::claimed_before(const Allocation& entry, int gpu) const {
  uint64_t bytes = 0;
  if (entry.kind == MemoryKind::kControl) return bytes;
  for (const auto& [arrival, other] : entries_) {
    if (!other->is_tried && goes_before(*other, entry)) bytes += other->bytes_on(gpu);
  }
  return bytes;
}

uint64_t AllocationQueue::claimed(int gpu) const {
  uint64_t bytes = 0;
  for (const auto& [arrival, entry] : entries_) {
    if (!entry->is_tried) bytes += entry->bytes_on(gpu);
  }
  return bytes;
}

size_t AllocationQueue::place(const Allocation& entry) const {
  size_t place = 1;
  for (const auto& [arrival, other] : entries_) {
    const bool competes = std::any_of(entry.gpus.begin(), entry.gpus.end(),
                                      [&](int gpu) { return other->bytes_on(gpu) != 0; });
    if (competes && !other->is_tried && goes_before(*other, entry)) ++place;
  }
  return place;
}

uint32_t AllocationQueue::count(int gpu) const {
  return static_cast<uint32_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [gpu](const auto& entry) { return entry.second->bytes_on(gpu) != 0; }));
}

uint64_t AllocationQueue::waiting_bytes(int gpu) const {
  uint64_t bytes = 0;
  for (const auto& [arrival, entry] : entries_) bytes += entry->bytes_on(gpu);
  return bytes;
}

uint64_t AllocationQueue::waiting_bytes(TenantId tenant, int gpu) const {
  uint64_t bytes = 0;
  for (const auto& [arrival, entry] : entries_) {
    if (entry->payer.tenant == tenant && !entry->is_tried) bytes += entry->bytes_on(gpu);
  }
  return bytes;
}

void AllocationQueue::note_freed(int gpu) {
  for (auto& [arrival, entry] : entries_) {
    if (entry->bytes_on(gpu) != 0) entry->waits_for_driver = false;
  }
}

}  // namespace cco::memd
