// Which windows an engine may touch, and where they lie: what every work item and key is checked
// against.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "absl/status/status.h"

namespace cco {

/// A remote key and local key of a window: the same on every rank, never 0. Keys of windows
/// 2^24 generations apart are equal; the registry refuses the second.
constexpr uint32_t window_key(uint64_t generation) {
  return static_cast<uint32_t>(generation & 0xffffff) << 8 | 0x5c;
}

struct WindowPlaces {
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  std::vector<uint64_t> bases;  ///< By world rank, device addresses of this process; 0: not here.
};

/// One for each rank of a group. Thread safe.
class WindowRegistry {
 public:
  /// ALREADY_EXISTS: a window of that generation or key is there.
  absl::Status add(WindowPlaces window);
  void remove(uint64_t generation);

  enum class Fault { kNone, kNoWindow, kNoRank, kRange };
  struct Range {
    Fault fault = Fault::kNone;
    uint64_t address = 0;  ///< With kNone.
  };
  /// `bytes` from `offset` in `rank`'s copy, if they lie inside it. No sum overflows.
  Range find(uint64_t generation, uint32_t rank, uint64_t offset, uint64_t bytes) const;
  Range find_by_key(uint32_t key, uint32_t rank, uint64_t offset, uint64_t bytes) const;
  /// Whether some rank's copy of one window holds all of the range.
  bool contains(uint64_t address, uint64_t bytes) const;

 private:
  static Range range_in(const WindowPlaces* window, uint32_t rank, uint64_t offset, uint64_t bytes);

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, WindowPlaces> by_generation_;
  std::map<uint32_t, uint64_t> generation_of_key_;
};

}  // namespace cco
