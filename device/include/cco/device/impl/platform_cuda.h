// NVIDIA, by inline PTX: neither CUDA headers nor libcu++ (seconds per file) are needed.
#pragma once

namespace cco::device {

#define CCO_SPECIAL_VECTOR(name, x)                       \
  CCO_DEVICE uint32_t name##_##x() {                      \
    uint32_t value;                                       \
    asm("mov.u32 %0, %%" #name "." #x ";" : "=r"(value)); \
    return value;                                         \
  }
namespace ptx {
CCO_SPECIAL_VECTOR(tid, x)
CCO_SPECIAL_VECTOR(tid, y)
CCO_SPECIAL_VECTOR(tid, z)
CCO_SPECIAL_VECTOR(ntid, x)
CCO_SPECIAL_VECTOR(ntid, y)
CCO_SPECIAL_VECTOR(ntid, z)
CCO_SPECIAL_VECTOR(ctaid, x)
CCO_SPECIAL_VECTOR(nctaid, x)
}  // namespace ptx
#undef CCO_SPECIAL_VECTOR

/// Index in the block, x fastest. Grids are one-dimensional.
CCO_DEVICE uint32_t thread_index() {
  return ptx::tid_x() + ptx::ntid_x() * (ptx::tid_y() + ptx::ntid_y() * ptx::tid_z());
}
CCO_DEVICE uint32_t thread_count() { return ptx::ntid_x() * ptx::ntid_y() * ptx::ntid_z(); }
CCO_DEVICE uint32_t block_index() { return ptx::ctaid_x(); }
CCO_DEVICE uint32_t block_count() { return ptx::nctaid_x(); }
CCO_DEVICE uint32_t warp_size() { return 32; }

CCO_DEVICE void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
CCO_DEVICE bool warp_any(bool mine) {
  uint32_t result;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff;"
      " selp.u32 %0, 1, 0, q; }"
      : "=r"(result)
      : "r"(static_cast<uint32_t>(mine))
      : "memory");
  warp_sync();  // A vote orders no memory.
  return result != 0;
}

CCO_DEVICE void block_sync() { asm volatile("bar.sync 0;" ::: "memory"); }
CCO_DEVICE bool block_any(bool mine) {
  uint32_t result;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 0, p; selp.u32 %0, 1, 0, q; }"
      : "=r"(result)
      : "r"(static_cast<uint32_t>(mine))
      : "memory");
  return result != 0;
}

// Threads of a warp that execute together, one bit each: see lanes.h.
using LaneMask = uint32_t;
CCO_DEVICE LaneMask active_lanes() {
  LaneMask mask;
  asm volatile("activemask.b32 %0;" : "=r"(mask));
  return mask;
}
CCO_DEVICE uint32_t lane_index() {
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
CCO_DEVICE uint32_t count_lanes(LaneMask mask) {
  uint32_t count;
  asm("popc.b32 %0, %1;" : "=r"(count) : "r"(mask));
  return count;
}
/// Of a mask that is not empty.
CCO_DEVICE uint32_t lowest_lane(LaneMask mask) { return count_lanes((mask & (0 - mask)) - 1); }
CCO_DEVICE void sync_lanes(LaneMask mask) {
  asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
}
CCO_DEVICE bool any_lane(LaneMask mask, bool mine) {
  uint32_t result;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, %2;"
      " selp.u32 %0, 1, 0, q; }"
      : "=r"(result)
      : "r"(static_cast<uint32_t>(mine)), "r"(mask)
      : "memory");
  sync_lanes(mask);  // A vote orders no memory.
  return result != 0;
}
CCO_DEVICE LaneMask matching_lanes(LaneMask mask, uint64_t key) {
  LaneMask matching;
  asm volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(matching) : "l"(key), "r"(mask));
  return matching;
}
/// The value of `lane`, which is in `mask`.
CCO_DEVICE uint64_t value_of_lane(LaneMask mask, uint64_t mine, uint32_t lane) {
  uint32_t half[2] = {static_cast<uint32_t>(mine), static_cast<uint32_t>(mine >> 32)};
  CCO_UNROLL for (uint32_t i = 0; i < 2; ++i) {
    asm volatile("shfl.sync.idx.b32 %0, %0, %1, 0x1f, %2;" : "+r"(half[i]) : "r"(lane), "r"(mask));
  }
  return uint64_t{half[1]} << 32 | half[0];
}

/// The device's wall clock, in ticks: DeviceComm.clock_khz.
CCO_DEVICE uint64_t ticks() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value)::"memory");
  return value;
}

/// Between two looks of a polling thread.
CCO_DEVICE void pause() {}
constexpr uint32_t kPollsPerClockRead = 32;
constexpr uint32_t kClockReadsPerAbortRead =
    64;  // The abort word is across PCIe: over 1 us a read.

CCO_DEVICE void check_failed(const char*, uint64_t, uint64_t) { asm volatile("trap;"); }

/// Makes what this thread has stored countable by a release of another thread of its block.
CCO_DEVICE void drain_stores() {}  // A PTX release is cumulative.

/// `value`, of which the compiler knows nothing. A thread that must act inside a loop, before its
/// warp's other threads have left it, sets a flag through this: otherwise the act may be moved
/// behind the loop, where the warp may wait for all its threads.
CCO_DEVICE bool opaque(bool value) {
  uint32_t word = value ? 1 : 0;
  asm volatile("" : "+r"(word));
  return word != 0;
}

/// Not through an address space: the LLVM in Triton 3.6 stops at casts to and fro (seen).
template <typename T>
CCO_DEVICE T* global_pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

/// What one load or store instruction moves at most. May alias the caller's types.
#if CCO_CLANG_CUDA
/// (Not a struct: arrays of it would stay in local memory.)
using Vector16 = uint32_t __attribute__((ext_vector_type(4), may_alias));
#else
struct __attribute__((may_alias, aligned(16))) Vector16 {
  uint32_t lane[4];
};
#endif

/// The block's dynamic shared memory, 16-byte aligned.
CCO_DEVICE void* dynamic_shared_memory() {
  extern __attribute__((shared)) __attribute__((aligned(16))) unsigned char cco_dynamic_shared[];
  return cco_dynamic_shared;
}

}  // namespace cco::device
