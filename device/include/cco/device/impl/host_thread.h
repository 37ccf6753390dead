// What a GPU thread and block are on the host: one std::thread each, and what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cco/device/impl/host_warp.h"

namespace cco::device::host {

constexpr uint32_t kWarpSize = 32;

/// What the threads of one block share.
struct Block {
  Block(uint32_t threads, uint32_t shared_bytes) : all(threads) {
    const uint32_t warp_count = (threads + kWarpSize - 1) / kWarpSize;
    warps = std::make_unique<std::unique_ptr<Warp>[]>(warp_count);
    for (uint32_t warp = 0; warp < warp_count; ++warp) {
      const uint32_t left = threads - warp * kWarpSize;
      warps[warp] = std::make_unique<Warp>(left < kWarpSize ? left : kWarpSize);
    }
    if (shared_bytes != 0)
      shared = std::make_unique<std::max_align_t[]>(shared_slots(shared_bytes));
  }

  static size_t shared_slots(uint32_t bytes) {
    return (bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  }

  Barrier all;
  std::unique_ptr<std::unique_ptr<Warp>[]> warps;
  std::unique_ptr<std::max_align_t[]> shared;
};

/// Which GPU thread this host thread plays. Outside a launch: the only thread of the only block.
struct Thread {
  Block* block = nullptr;
  uint32_t block_index = 0;
  uint32_t block_count = 1;
  uint32_t thread_index = 0;
  uint32_t thread_count = 1;

  Warp& warp() const { return *block->warps[thread_index / kWarpSize]; }  ///< Inside a launch.
  uint32_t lane() const { return thread_index % kWarpSize; }
};

}  // namespace cco::device::host

/// One per thread and process, whichever library asks: a kernel in the program may be launched by
/// libcco_client.so. Hence the visibility and the C name.
extern "C" {
inline thread_local __attribute__((visibility("default")))
cco::device::host::Thread cco_host_thread;
}
