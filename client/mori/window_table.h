// What findWindow() walks in a kernel: a list of windows in device memory, kept up to date.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/mori/device_arena.h"
#include "mori/cco/types.hpp"

namespace cco::compat {

/// Not thread safe. A kernel that runs while the table changes sees a window or does not, never
/// half of one.
class WindowTable {
 public:
  /// `arena` outlives the table.
  explicit WindowTable(DeviceArena* arena) : arena_(arena) {}

  absl::StatusOr<mori::cco::ccoWindowTableNode*> head();
  absl::Status add(uint64_t base, uint64_t size_bytes, mori::cco::ccoWindow_t window);
  /// Every entry of the window.
  absl::Status remove(mori::cco::ccoWindow_t window);

 private:
  absl::Status grow();
  absl::Status point_to(size_t index, mori::cco::ccoWindow_t window);

  DeviceArena* const arena_;
  std::vector<uint64_t> nodes_;                  // Addresses.
  std::vector<mori::cco::ccoWindow_t> windows_;  // By entry; null: free.
};

}  // namespace cco::compat
