// Allocations that wait for memory of GPUs, and the order in which they are served: by their
// tenants' priority, then the tenant that was served longest ago, then by arrival.
//
// The order is strict: who stands behind, or has just come and does not wait, gets what is left on
// a GPU once all before it have there what they wait for, and no more. So nobody is starved by
// smaller requests, and on a GPU that a request waits for, less lies idle for it than it has asked
// for. Its deadline bounds that. Control regions alone are not held up: they are small, cannot
// wait, and without one nobody could form a group and stand in line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/core/ids.h"
#include "daemon/core/slab_table.h"
#include "daemon/ports/executor.h"

namespace cco::memd {

/// Slabs that somebody asks for: one on each of `gpus`, which may repeat.
struct Allocation {
  Payer payer;
  GroupId group{};  // Whose they will be.
  std::vector<int> gpus;
  uint64_t size_bytes = 0;  // Of each.
  MemoryKind kind = MemoryKind::kData;
  TimePoint deadline{};  // Until when it waits.
  uint32_t priority = 0;
  SlabTable::Done done;
  // While it is in the queue.
  uint64_t arrival = 0;           // 0: it has not been there yet.
  bool is_tried = false;          // The driver is at it; its bytes are charged.
  bool waits_for_driver = false;  // Which had none: until memory has been given back there.
  TimerId timer{};

  uint64_t bytes_on(int gpu) const;
};

class AllocationQueue {
 public:
  /// Shared with an attempt at it, which may outlast its place here.
  using Entry = std::shared_ptr<Allocation>;

  void add(Entry entry);
  void remove(const Allocation& entry);
  /// All that the group waits for, those that are being tried apart.
  std::vector<Entry> remove_all_of(GroupId group);

  /// The first in order for which `has_room`; null: there is none.
  Entry next(absl::FunctionRef<bool(const Allocation&)> has_room) const;
  /// How many bytes those wait for there that go before it; it need not be in the queue.
  uint64_t claimed_before(const Allocation& entry, int gpu) const;
  /// Of those that wait for one of its GPUs, counted from 1.
  size_t place(const Allocation& entry) const;
  /// How many bytes they wait for there, those that are being tried apart.
  uint64_t claimed(int gpu) const;
  /// How many wait for that GPU, those that are being tried included.
  uint32_t count(int gpu) const;
  uint64_t waiting_bytes(int gpu) const;
  /// Of one tenant, but for those that are being tried.
  uint64_t waiting_bytes(TenantId tenant, int gpu) const;
  size_t size() const { return entries_.size(); }

  void note_served(TenantId tenant) { served_[tenant] = ++last_service_; }
  /// The driver has got memory back there.
  void note_freed(int gpu);

 private:
  bool goes_before(const Allocation& a, const Allocation& b) const;
  uint64_t last_served(TenantId tenant) const;

  std::map<uint64_t, Entry> entries_;  // By arrival.
  std::map<TenantId, uint64_t> served_;
  uint64_t last_arrival_ = 0;
  uint64_t last_service_ = 0;
};

}  // namespace cco::memd
