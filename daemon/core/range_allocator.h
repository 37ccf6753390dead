// First-fit allocation of offsets in ranges, coalescing neighbours. Arithmetic only: touches no
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace cco::memd {

class RangeAllocator {
 public:
  RangeAllocator() = default;
  RangeAllocator(uint64_t offset, uint64_t size_bytes) { release(offset, size_bytes); }

  /// Lowest place for `size_bytes` (not 0) at a multiple of `alignment` (a power of two); none: no
  /// room.
  std::optional<uint64_t> allocate(uint64_t size_bytes, uint64_t alignment);

  /// Takes this very range. False: not all of it is free.
  bool take(uint64_t offset, uint64_t size_bytes);

  /// Gives a range back; it must not overlap a free one.
  void release(uint64_t offset, uint64_t size_bytes);

  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest_free_bytes() const;

 private:
  std::map<uint64_t, uint64_t> free_;  // Offset to size.
  uint64_t free_bytes_ = 0;
};

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace cco::memd
