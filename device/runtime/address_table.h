// Reserved address ranges and the mappings in them, of one process and one driver.
//
// Libraries differ in what they check: some map twice without a word. This table makes every such
// mistake an error with numbers, the same on every driver. Not thread safe; its driver locks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cco {

class AddressTable {
 public:
  /// What was reserved from the system, which may be more than what the caller sees.
  struct Range {
    uint64_t size_bytes = 0;
    uint64_t system_address = 0;
    uint64_t system_size_bytes = 0;
    int device = 0;  ///< It was reserved for.
  };
  struct Mapped {
    uint64_t size_bytes = 0;
    int memory_device = 0;  ///< Where the memory is.
    uint64_t writers = 0;   ///< Host only: bit per device that may write.
    bool stuck = false;     ///< The library refused to unmap it.
  };

  void add_range(uint64_t address, const Range& range) { ranges_.emplace(address, range); }
  /// Everything mapped in it is gone: a broken promise of ours otherwise. Nothing if an unmap
  /// failed in it: such a range stays out of use.
  std::optional<Range> remove_range(uint64_t address);

  /// INVALID_ARGUMENT: not inside one reserved range. ALREADY_EXISTS: overlaps a mapping.
  absl::Status check_free(uint64_t address, uint64_t size_bytes) const;
  void add_mapping(uint64_t address, const Mapped& mapped) { mappings_.emplace(address, mapped); }
  void remove_mapping(uint64_t address) { mappings_.erase(address); }
  /// Null when nothing is mapped exactly there.
  Mapped* find_mapping(uint64_t address, uint64_t size_bytes);

 private:
  std::map<uint64_t, Range> ranges_;
  std::map<uint64_t, Mapped> mappings_;
};

/// INVALID_ARGUMENT unless `size_bytes` is a positive multiple of `granularity_bytes`.
absl::Status check_granularity(uint64_t size_bytes, uint64_t granularity_bytes);

/// INVALID_ARGUMENT unless both are multiples of the granularity and `alignment_bytes` is a power
/// of two.
absl::Status check_reservation(uint64_t size_bytes, uint64_t alignment_bytes,
                               uint64_t granularity_bytes);

/// INVALID_ARGUMENT unless 0 <= device < device_count.
absl::Status check_device(int device, size_t device_count);

}  // namespace cco
