#include "daemon/core/kept_windows.h"

#include <algorithm>
#include <utility>

#include "client/base/status_macros.h"

namespace cco::memd {

void KeptWindows::add(KeptWindow window) {
  CCO_ASSERT(find(window.tenant, window.group, window.name) == nullptr);
  const WindowId id = window.id;
  CCO_ASSERT(windows_.emplace(id, std::move(window)).second);
}

KeptWindow KeptWindows::take(WindowId id) {
  auto node = windows_.extract(id);
  CCO_ASSERT(!node.empty());
  return std::move(node.mapped());
}

const KeptWindow* KeptWindows::find(TenantId tenant, const std::string& group,
                                    const std::string& name) const {
  for (const auto& [id, window] : windows_) {
    if (window.tenant == tenant && window.group == group && window.name == name) return &window;
  }
  return nullptr;
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
