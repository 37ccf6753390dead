#include "daemon/core/kept_windows.h"

#include <algorithm>
#include <utility>

#include "client/base/status_macros.h"

namespace cco::memd {

void KeptWindows::add(KeptWindow window) {
  const WindowId id = window.id;
  CCO_ASSERT(windows_.emplace(id, std::move(window)).second);
}

KeptWindow KeptWindows::take(WindowId id) {
  auto node = windows_.extract(id);
  CCO_ASSERT(!node.empty());
  return std::move(node.mapped());
}

const KeptWindow* KeptWindows::find(const Wanted& wanted) const {
  const KeptWindow* last = nullptr;
  bool fits = false;
  for (const auto& [id, window] : windows_) {  // Ids grow with every use.
    if (window.tenant != wanted.tenant || window.group != wanted.group ||
        window.name != wanted.name) {
      continue;
    }
    const bool this_fits = window.size_bytes == wanted.size_bytes && window.gpus == wanted.gpus;
    if (fits && !this_fits) continue;
    last = &window;
    fits = this_fits;
  }
  return last;
}

const KeptWindow* KeptWindows::find(WindowId id) const {
  const auto found = windows_.find(id);
  return found == windows_.end() ? nullptr : &found->second;
}

uint64_t KeptWindows::count(TenantId tenant) const {
  uint64_t count = 0;
  for (const auto& [id, window] : windows_) count += window.tenant == tenant ? 1 : 0;
  return count;
}

uint64_t KeptWindows::bytes(TenantId tenant, int gpu) const {
  uint64_t bytes = 0;
  for (const auto& [id, window] : windows_) {
    if (window.tenant != tenant) continue;
    const auto ranks = std::count(window.gpus.begin(), window.gpus.end(), gpu);
    bytes += window.slab_bytes * static_cast<uint64_t>(ranks);
  }
  return bytes;
}

}  // namespace cco::memd
