// AMD, by compiler builtins: neither HIP headers nor device libraries are needed. In HIP's host
// pass these functions are parsed and never run.
#pragma once

namespace cco::device {

/// Index in the block, x fastest. Grids are one-dimensional.
CCO_DEVICE uint32_t thread_index() {
  return __builtin_amdgcn_workitem_id_x() +
         __builtin_amdgcn_workgroup_size_x() *
             (__builtin_amdgcn_workitem_id_y() +
              __builtin_amdgcn_workgroup_size_y() * __builtin_amdgcn_workitem_id_z());
}
CCO_DEVICE uint32_t thread_count() {
  return uint32_t{__builtin_amdgcn_workgroup_size_x()} * __builtin_amdgcn_workgroup_size_y() *
         __builtin_amdgcn_workgroup_size_z();
}
CCO_DEVICE uint32_t block_index() { return __builtin_amdgcn_workgroup_id_x(); }
CCO_DEVICE uint32_t block_count() {
  return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}
CCO_DEVICE uint32_t warp_size() { return __builtin_amdgcn_wavefrontsize(); }

CCO_DEVICE void warp_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
CCO_DEVICE bool warp_any(bool mine) {
  warp_sync();
#if CCO_GFX12
  return __builtin_amdgcn_ballot_w32(mine) != 0;
#else
  return __builtin_amdgcn_ballot_w64(mine) != 0;
#endif
}

CCO_DEVICE void block_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
CCO_DEVICE bool block_any(bool mine) {
  if (thread_count() <= warp_size()) return warp_any(mine);
  // Counts the waves that ever brought `true`; only its change matters, so it is never reset.
  static __attribute__((shared)) uint32_t raised;
  const uint32_t before =
      __hip_atomic_load(&raised, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  block_sync();
  if (mine) __hip_atomic_fetch_add(&raised, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  block_sync();
  return __hip_atomic_load(&raised, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP) != before;
}

// Threads of a wave that execute together, one bit each: see lanes.h. A wave runs in step, so
// groups that are apart but execute the same instruction share its ballots.
using LaneMask = uint64_t;
CCO_DEVICE LaneMask ballot(bool mine) {
#if CCO_GFX12
  return __builtin_amdgcn_ballot_w32(mine);
#else
  return __builtin_amdgcn_ballot_w64(mine);
#endif
}
CCO_DEVICE LaneMask active_lanes() { return ballot(true); }
CCO_DEVICE uint32_t lane_index() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}
CCO_DEVICE uint32_t count_lanes(LaneMask mask) {
  return static_cast<uint32_t>(__builtin_popcountll(mask));
}
/// Of a mask that is not empty.
CCO_DEVICE uint32_t lowest_lane(LaneMask mask) {
  return static_cast<uint32_t>(__builtin_ctzll(mask));
}
CCO_DEVICE void sync_lanes(LaneMask) { warp_sync(); }
CCO_DEVICE bool any_lane(LaneMask mask, bool mine) {
  warp_sync();
  return (ballot(mine) & mask) != 0;
}
/// The value of `lane`, which is active and may be another one for every caller.
CCO_DEVICE uint64_t value_of_lane(LaneMask, uint64_t mine, uint32_t lane) {
  const int place = static_cast<int>(lane * 4);
  const auto low = static_cast<uint32_t>(
      __builtin_amdgcn_ds_bpermute(place, static_cast<int>(static_cast<uint32_t>(mine))));
  const auto high =
      static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(place, static_cast<int>(mine >> 32)));
  return uint64_t{high} << 32 | low;
}
CCO_DEVICE LaneMask matching_lanes(LaneMask mask, uint64_t key) {
  LaneMask matching = 0;
  LaneMask rest = mask;
  while (rest != 0) {
    const uint64_t chosen = value_of_lane(mask, key, lowest_lane(rest));
    const LaneMask same = ballot(key == chosen) & mask;
    if (key == chosen) matching = same;
    rest &= ~same;
  }
  return matching;
}

/// The device's wall clock, in ticks: DeviceComm.clock_khz. Its rate is constant.
CCO_DEVICE uint64_t ticks() { return __builtin_readsteadycounter(); }

/// Between two looks of a polling thread.
CCO_DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }
constexpr uint32_t kPollsPerClockRead = 32;
constexpr uint32_t kClockReadsPerAbortRead =
    64;  // The abort word is across PCIe: over 1 us a read.

CCO_DEVICE void check_failed(const char*, uint64_t, uint64_t) { __builtin_trap(); }

/// Makes what this thread has stored countable by a release of another thread of its block. The
/// leader's write-back does not wait for other waves' stores that are under way to a peer; each
/// wave can wait only for its own.
CCO_DEVICE void drain_stores() {
#if CCO_GFX12
  asm volatile("s_wait_storecnt 0x0" ::: "memory");
#elif CCO_HARD_WAITCNT
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
}

/// `value`, of which the compiler knows nothing. A thread that must act inside a loop, before its
/// wave's other threads have left it, sets a flag through this: otherwise the act may be moved
/// behind the loop, where a wave arrives only when all its threads have.
CCO_DEVICE bool opaque(bool value) {
  uint32_t word = value ? 1 : 0;
#if CCO_DEVICE_PASS
  asm volatile("" : "+v"(word));
#endif
  return word != 0;
}

/// Through address space 1, so that the compiler emits global and not flat accesses.
template <typename T>
CCO_DEVICE T* global_pointer(uint64_t address) {
  return (T*)(T __attribute__((address_space(1)))*)address;
}

/// What one load or store instruction moves at most. May alias the caller's types. (Not a struct:
/// arrays of it would stay in scratch memory.)
using Vector16 = uint32_t __attribute__((ext_vector_type(4), may_alias));

/// The block's dynamic shared memory, 16-byte aligned.
CCO_DEVICE void* dynamic_shared_memory() {
  extern __attribute__((shared)) __attribute__((aligned(16))) unsigned char cco_dynamic_shared[];
  return cco_dynamic_shared;
}

}  // namespace cco::device
