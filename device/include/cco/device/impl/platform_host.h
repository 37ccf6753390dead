// The host: a std::thread plays each GPU thread. See host_launch.h.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cco/device/impl/host_thread.h"

namespace cco::device {

CCO_DEVICE uint32_t thread_index() { return cco_host_thread.thread_index; }
CCO_DEVICE uint32_t thread_count() { return cco_host_thread.thread_count; }
CCO_DEVICE uint32_t block_index() { return cco_host_thread.block_index; }
CCO_DEVICE uint32_t block_count() { return cco_host_thread.block_count; }
CCO_DEVICE uint32_t warp_size() { return host::kWarpSize; }

// A thread outside any launch is a block of one.
CCO_DEVICE bool warp_any(bool mine) {
  const host::Thread& self = cco_host_thread;
  if (self.block == nullptr) return mine;
  return self.warp().any(self.lane(), mine);
}
CCO_DEVICE void warp_sync() { warp_any(false); }
CCO_DEVICE bool block_any(bool mine) {
  const host::Thread& self = cco_host_thread;
  if (self.block == nullptr) return mine;
  return self.warp().any_at(self.block->all, self.lane(), mine);
}
CCO_DEVICE void block_sync() { block_any(false); }

/// Nanoseconds: DeviceComm.clock_khz is 1'000'000.
CCO_DEVICE uint64_t ticks() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

/// Between two looks of a polling thread. Launches have more threads than the machine has cores:
/// the one that is waited for must get to run.
CCO_DEVICE void pause() {
  const host::Thread& self = cco_host_thread;
  if (self.block != nullptr) self.warp().pause(self.lane());
  std::this_thread::yield();
}
constexpr uint32_t kPollsPerClockRead = 8;
constexpr uint32_t kClockReadsPerAbortRead = 1;

[[noreturn]] inline void check_failed(const char* what, uint64_t value, uint64_t limit) {
  std::fprintf(stderr, "cco/device: %s: %llu, limit %llu (block %u, thread %u)\n", what,
               static_cast<unsigned long long>(value), static_cast<unsigned long long>(limit),
               cco_host_thread.block_index, cco_host_thread.thread_index);
  std::abort();
}

CCO_DEVICE void drain_stores() {}  // A barrier between threads orders them already.

/// `value`, of which the compiler knows nothing. A thread that must act inside a loop, before its
/// warp's other threads have left it, sets a flag through this: otherwise the act may be moved
/// behind the loop, where a warp that runs in step arrives only when all its threads have.
CCO_DEVICE bool opaque(bool value) { return value; }

template <typename T>
CCO_DEVICE T* global_pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

/// What one load or store instruction moves at most on GPUs. May alias the caller's types.
struct __attribute__((may_alias, aligned(16))) Vector16 {
  uint32_t lane[4];
};

/// The block's dynamic shared memory, 16-byte aligned.
CCO_DEVICE void* dynamic_shared_memory() {
  const host::Thread& self = cco_host_thread;
  return self.block == nullptr ? nullptr : self.block->shared.get();
}

}  // namespace cco::device
