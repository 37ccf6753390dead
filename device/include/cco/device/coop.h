// Who calls a primitive: one thread, one warp, one block; for copies also the whole grid.
#pragma once

#include "cco/device/platform.h"

#if CCO_CONCEPTS
#include <concepts>
#endif

namespace cco::device {

#if CCO_CONCEPTS
/// Threads that share out a copy: all that put() and get() need.
template <typename C>
concept CopyCoop = requires(const C c) {
  { c.thread_rank() } -> std::same_as<uint32_t>;
  { c.size() } -> std::same_as<uint32_t>;
};
/// A converged set of threads. sync() and any() are barriers that order memory among the members;
/// any() tells all of them whether one brought `true`.
template <typename C>
concept Coop = CopyCoop<C> && requires(const C c, bool b) {
  { c.is_leader() } -> std::same_as<bool>;
  { c.any(b) } -> std::same_as<bool>;
  c.sync();
};
#define CCO_COPY_COOP ::cco::device::CopyCoop
#define CCO_COOP ::cco::device::Coop
#else
#define CCO_COPY_COOP typename
#define CCO_COOP typename
#endif

/// The calling thread alone.
struct ThreadCoop {
  CCO_DEVICE uint32_t thread_rank() const { return 0; }
  CCO_DEVICE uint32_t size() const { return 1; }
  CCO_DEVICE bool is_leader() const { return true; }
  CCO_DEVICE void sync() const {}
  CCO_DEVICE bool any(bool mine) const { return mine; }
};

/// A warp (wavefront): warp_size() consecutive threads, fewer in a block's last one.
struct WarpCoop {
  CCO_DEVICE uint32_t thread_rank() const { return thread_index() % warp_size(); }
  CCO_DEVICE uint32_t size() const {
    const uint32_t left = thread_count() - thread_index() / warp_size() * warp_size();
    return left < warp_size() ? left : warp_size();
  }
  CCO_DEVICE bool is_leader() const { return thread_rank() == 0; }
  CCO_DEVICE void sync() const { warp_sync(); }
  CCO_DEVICE bool any(bool mine) const { return warp_any(mine); }
};

/// All threads of the block.
struct BlockCoop {
  CCO_DEVICE uint32_t thread_rank() const { return thread_index(); }
  CCO_DEVICE uint32_t size() const { return thread_count(); }
  CCO_DEVICE bool is_leader() const { return thread_rank() == 0; }
  CCO_DEVICE void sync() const { block_sync(); }
  CCO_DEVICE bool any(bool mine) const { return block_any(mine); }
};

/// All threads of the grid, for put() and get() alone: a grid has no barrier. The fastest way to
/// move much, for all blocks sweep through the same memory together.
struct GridCoop {
  CCO_DEVICE uint32_t thread_rank() const {
    return block_index() * thread_count() + thread_index();
  }
  CCO_DEVICE uint32_t size() const { return block_count() * thread_count(); }
};

/// The smallest `mine` among the members, the same for all. For rare paths: 32 barriers.
template <CCO_COOP C>
CCO_DEVICE uint32_t minimum(C coop, uint32_t mine) {
  uint32_t result = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    // Does anybody still in the race have a zero here?
    const bool running = (mine & ~(bit - 1) & ~bit) == result;
    if (!coop.any(running && (mine & bit) == 0)) result |= bit;
  }
  return result;
}

}  // namespace cco::device
