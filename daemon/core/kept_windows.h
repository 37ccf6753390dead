// Windows that nobody uses and whose memory is kept, so that the next group of their name finds the
// contents. Knows whose they are and how long they stay; the memory is the slab table's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/ids.h"
#include "daemon/ports/executor.h"
#include "daemon/ports/identity.h"

namespace cco::memd {

struct KeptWindow {
  WindowId id{};  // That it had when it was last used.
  TenantId tenant{};
  Identity owner;  // Of rank 0: after a restart, who pays is found anew from it.
  std::string group;
  std::string name;
  uint64_t size_bytes = 0;
  std::vector<SlabId> slabs;  // By rank, as the next.
  std::vector<int> gpus;
  uint64_t offset = 0;  // Of the slabs, in each rank's slot.
  uint64_t slab_bytes = 0;
  Milliseconds keep{};
  TimePoint expires;
  TimerId timer{};

  uint64_t all_bytes() const { return slab_bytes * slabs.size(); }
};

class KeptWindows {
 public:
  void add(KeptWindow window);
  /// The window must be there.
  KeptWindow take(WindowId id);

  struct Wanted {
    TenantId tenant{};
    std::string group;
    std::string name;
    uint64_t size_bytes = 0;
    std::vector<int> gpus;
  };
  /// Of those of the tenant that have the names, the one that was used last; one of that size on
  /// those GPUs goes before others. Null: there is none. There are several where a configuration
  /// has made two tenants one, or two groups of one name ended one after the other.
  const KeptWindow* find(const Wanted& wanted) const;
  const KeptWindow* find(WindowId id) const;
  const std::map<WindowId, KeptWindow>& all() const { return windows_; }

  uint64_t count(TenantId tenant) const;
  /// Of slabs on `gpu`.
  uint64_t bytes(TenantId tenant, int gpu) const;

 private:
  std::map<WindowId, KeptWindow> windows_;
};

}  // namespace cco::memd
