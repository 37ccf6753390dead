#include "daemon/core/range_allocator.h"

#include <algorithm>
#include <iterator>

#include "client/base/status_macros.h"

namespace cco::memd {

std::optional<uint64_t> RangeAllocator::allocate(uint64_t size_bytes, uint64_t alignment) {
  CCO_ASSERT(size_bytes != 0 && alignment != 0 && (alignment & (alignment - 1)) == 0);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [start, length] = *range;
    const uint64_t offset = round_up(start, alignment);
    if (offset < start || offset - start > length || length - (offset - start) < size_bytes)
      continue;
    CCO_ASSERT(take(offset, size_bytes));
    return offset;
  }
  return std::nullopt;
}

bool RangeAllocator::take(uint64_t offset, uint64_t size_bytes) {
  auto range = free_.upper_bound(offset);
  if (range == free_.begin() || size_bytes == 0) return false;
  --range;
  const auto [start, length] = *range;
  if (offset - start > length || length - (offset - start) < size_bytes) return false;
  free_.erase(range);
  if (offset > start) free_.emplace(start, offset - start);
  const uint64_t rest = length - (offset - start) - size_bytes;
  if (rest > 0) free_.emplace(offset + size_bytes, rest);
  free_bytes_ -= size_bytes;
  return true;
}

void RangeAllocator::release(uint64_t offset, uint64_t size_bytes) {
  if (size_bytes == 0) return;
  free_bytes_ += size_bytes;
  auto next = free_.lower_bound(offset);
  CCO_ASSERT(next == free_.end() || offset + size_bytes <= next->first);
  if (next != free_.end() && offset + size_bytes == next->first) {
    size_bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    CCO_ASSERT(previous->first + previous->second <= offset);
    if (previous->first + previous->second == offset) {
      previous->second += size_bytes;
      return;
    }
  }
  free_.emplace(offset, size_bytes);
}

uint64_t RangeAllocator::largest_free_bytes() const {
  uint64_t largest = 0;
  for (const auto& [offset, length] : free_) largest = std::max(largest, length);
  return largest;
}

}  // namespace cco::memd
