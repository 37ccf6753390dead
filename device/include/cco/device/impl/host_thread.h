// What a GPU thread, warp and block are on the host: one std::thread each, and barriers between
// them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace cco::device::host {

constexpr uint32_t kWarpSize = 32;

/// A barrier for a fixed number of threads that also tells each of them whether any brought `true`.
/// Waiters sleep: a launch has many more threads than a laptop has cores.
class Barrier {
 public:
  explicit Barrier(uint32_t size) : size_(size), missing_(size) {}

  bool any(bool mine) {
    std::unique_lock<std::mutex> lock(mutex_);
    pending_ = pending_ || mine;
    if (--missing_ == 0) {
      end_round();
      return result_;
    }
    const uint64_t round = round_;
    all_here_.wait(lock, [&] { return round_ != round; });
    return result_;  // The next round cannot end before this thread joins it.
  }

  /// A thread that has left its kernel no longer counts, as on GPUs.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --size_;
    if (--missing_ == 0 && size_ != 0) end_round();
  }

 private:
  void end_round() {
    result_ = pending_;
    pending_ = false;
    missing_ = size_;
    ++round_;
    all_here_.notify_all();
  }

  std::mutex mutex_;
  uint32_t size_;
  std::condition_variable all_here_;
  uint32_t missing_;
  uint64_t round_ = 0;
  bool pending_ = false;
  bool result_ = false;
};

/// What the threads of one block share.
struct Block {
  Block(uint32_t threads, uint32_t shared_bytes) : all(threads) {
    const uint32_t warp_count = (threads + kWarpSize - 1) / kWarpSize;
    warps = std::make_unique<std::unique_ptr<Barrier>[]>(warp_count);
    for (uint32_t warp = 0; warp < warp_count; ++warp) {
      const uint32_t left = threads - warp * kWarpSize;
      warps[warp] = std::make_unique<Barrier>(left < kWarpSize ? left : kWarpSize);
    }
    if (shared_bytes != 0)
      shared = std::make_unique<std::max_align_t[]>(shared_slots(shared_bytes));
  }

  static size_t shared_slots(uint32_t bytes) {
    return (bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  }

  Barrier all;
  std::unique_ptr<std::unique_ptr<Barrier>[]> warps;
  std::unique_ptr<std::max_align_t[]> shared;
};

/// Which GPU thread this host thread plays. Outside a launch: the only thread of the only block.
struct Thread {
  Block* block = nullptr;
  uint32_t block_index = 0;
  uint32_t block_count = 1;
  uint32_t thread_index = 0;
  uint32_t thread_count = 1;
};

}  // namespace cco::device::host

/// One per thread and process, whichever library asks: a kernel in the program may be launched by
/// libcco_client.so. Hence the visibility and the C name.
extern "C" {
inline thread_local __attribute__((visibility("default")))
cco::device::host::Thread cco_host_thread;
}
