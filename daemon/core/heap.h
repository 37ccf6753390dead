// Layout of one group's symmetric heap: what lies where in every rank's slot. Arithmetic only; the
// same for all ranks.
//
//   slot   [ control region = slab 0 | slab 1 | slab 2 | … free address space … ]
//   control region   [ self-test words | signals, barriers, window descriptors … ]
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/statusor.h"
#include "daemon/core/range_allocator.h"

namespace cco::memd {

/// Bytes at the start of the control region where members try each other's memory: 16 for each LSA
/// rank.
inline constexpr uint64_t kSelfTestBytes = 16 * 1024;
inline constexpr uint64_t kWindowAlignment = 256;

class Heap {
 public:
  /// All three are multiples of `granularity_bytes`; `control_bytes` exceeds kSelfTestBytes.
  Heap(uint64_t slot_bytes, uint64_t control_bytes, uint64_t granularity_bytes);

  struct Place {
    uint32_t slab_index;
    uint64_t offset;  // In the slot.
  };

  /// RESOURCE_EXHAUSTED: the control region is full.
  absl::StatusOr<uint64_t> allocate_control(uint64_t size_bytes, uint64_t alignment);
  void release_control(uint64_t offset, uint64_t size_bytes) {
    control_.release(offset, size_bytes);
  }

  /// A place in a slab that is there; none: a slab must be added first.
  std::optional<Place> allocate(uint64_t size_bytes, uint64_t alignment);
  void release(Place place, uint64_t size_bytes);

  /// Address space for a slab, or for external memory. RESOURCE_EXHAUSTED: the slot is full.
  absl::StatusOr<uint64_t> reserve(uint64_t size_bytes, uint64_t alignment = 1);
  void unreserve(uint64_t offset, uint64_t size_bytes) { slot_.release(offset, size_bytes); }

  /// Opens a reserved range, which memory has been found for, to allocate(). The index is the
  /// caller's.
  void add_slab(uint32_t slab_index, uint64_t offset, uint64_t size_bytes);

  // What an earlier heap had given out, taken anew. False: it does not fit, or is taken.
  bool take_control(uint64_t offset, uint64_t size_bytes) {
    return control_.take(offset, size_bytes);
  }
  bool take_reserved(uint64_t offset, uint64_t size_bytes) {
    return slot_.take(offset, size_bytes);
  }
  bool take(Place place, uint64_t size_bytes);

  uint64_t slot_bytes() const { return slot_bytes_; }
  uint64_t control_bytes() const { return control_bytes_; }
  uint64_t granularity_bytes() const { return granularity_bytes_; }

 private:
  uint64_t slot_bytes_;
  uint64_t control_bytes_;
  uint64_t granularity_bytes_;
  RangeAllocator control_;
  RangeAllocator slot_;
  std::map<uint32_t, RangeAllocator> slabs_;
};

}  // namespace cco::memd
