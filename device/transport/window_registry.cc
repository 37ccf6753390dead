#include "device/transport/window_registry.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_format.h"

namespace cco {

absl::Status WindowRegistry::add(WindowPlaces window) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const uint64_t generation = window.generation;
  const auto [holder, is_new] = generation_of_key_.emplace(window_key(generation), generation);
  if (!is_new) {
    return absl::AlreadyExistsError(
        absl::StrFormat("a window of generation %d holds the key %#x of generation %d: destroy it "
                        "first",
                        holder->second, holder->first, generation));
  }
  by_generation_[generation] = std::move(window);
  return absl::OkStatus();
}

void WindowRegistry::remove(uint64_t generation) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (by_generation_.erase(generation) != 0) generation_of_key_.erase(window_key(generation));
}

WindowRegistry::Range WindowRegistry::find(uint64_t generation, uint32_t rank, uint64_t offset,
                                           uint64_t bytes) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = by_generation_.find(generation);
  return range_in(found == by_generation_.end() ? nullptr : &found->second, rank, offset, bytes);
}

WindowRegistry::Range WindowRegistry::find_by_key(uint32_t key, uint32_t rank, uint64_t offset,
                                                  uint64_t bytes) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = generation_of_key_.find(key);
  return range_in(found == generation_of_key_.end() ? nullptr : &by_generation_.at(found->second),
                  rank, offset, bytes);
}

bool WindowRegistry::contains(uint64_t address, uint64_t bytes) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  for (const auto& [generation, window] : by_generation_) {
    for (const uint64_t base : window.bases) {
      // Below the base the difference wraps: large.
      if (base != 0 && address - base <= window.size_bytes &&
          bytes <= window.size_bytes - (address - base)) {
        return true;
      }
    }
  }
  return false;
}

WindowRegistry::Range WindowRegistry::range_in(const WindowPlaces* window, uint32_t rank,
                                               uint64_t offset, uint64_t bytes) {
  if (window == nullptr) return {Fault::kNoWindow, 0};
  if (rank >= window->bases.size() || window->bases[rank] == 0) return {Fault::kNoRank, 0};
  if (offset > window->size_bytes || bytes > window->size_bytes - offset) {
    return {Fault::kRange, 0};
  }
  return {Fault::kNone, window->bases[rank] + offset};
}

}  // namespace cco
