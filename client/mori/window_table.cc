#include "client/mori/window_table.h"

#include <algorithm>
#include <cstddef>

#include "client/base/status_macros.h"

namespace cco::compat {
namespace {

using mori::cco::CCO_WINDOW_TABLE_SIZE;
using mori::cco::ccoWindow_t;
using mori::cco::ccoWindowTableNode;
using Entry = ccoWindowTableNode::Entry;

static_assert(offsetof(Entry, window) == offsetof(Entry, size) + sizeof(uintptr_t),
              "base and size are written together");

}  // namespace

absl::StatusOr<ccoWindowTableNode*> WindowTable::head() {
  if (nodes_.empty()) CCO_RETURN_IF_ERROR(grow());
  return reinterpret_cast<ccoWindowTableNode*>(nodes_.front());
}

absl::Status WindowTable::grow() {
  const ccoWindowTableNode empty{};
  CCO_ASSIGN_OR_RETURN(const uint64_t address, arena_->place(&empty, sizeof empty));
  if (!nodes_.empty()) {
    CCO_RETURN_IF_ERROR(arena_->write(nodes_.back() + offsetof(ccoWindowTableNode, next), &address,
                                      sizeof address));
  }
  nodes_.push_back(address);
  windows_.resize(windows_.size() + CCO_WINDOW_TABLE_SIZE);
  return absl::OkStatus();
}

absl::Status WindowTable::point_to(size_t index, ccoWindow_t window) {
  const uint64_t entry = nodes_[index / CCO_WINDOW_TABLE_SIZE] +
                         offsetof(ccoWindowTableNode, entries) +
                         index % CCO_WINDOW_TABLE_SIZE * sizeof(Entry);
  CCO_RETURN_IF_ERROR(arena_->write(entry + offsetof(Entry, window), &window, sizeof window));
  windows_[index] = window;
  return absl::OkStatus();
}

absl::Status WindowTable::add(uint64_t base, uint64_t size_bytes, ccoWindow_t window) {
  size_t index = std::find(windows_.begin(), windows_.end(), nullptr) - windows_.begin();
  if (index == windows_.size()) CCO_RETURN_IF_ERROR(grow());
  const uint64_t range[] = {base, size_bytes};
  const uint64_t entry = nodes_[index / CCO_WINDOW_TABLE_SIZE] +
                         offsetof(ccoWindowTableNode, entries) +
                         index % CCO_WINDOW_TABLE_SIZE * sizeof(Entry);
  CCO_RETURN_IF_ERROR(arena_->write(entry, range, sizeof range));
  return point_to(index, window);  // Last: it makes the entry valid.
}

absl::Status WindowTable::remove(ccoWindow_t window) {
  for (size_t index = 0; index < windows_.size(); ++index) {
    if (windows_[index] == window) CCO_RETURN_IF_ERROR(point_to(index, nullptr));
  }
  return absl::OkStatus();
}

}  // namespace cco::compat
