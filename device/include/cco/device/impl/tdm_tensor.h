// TDM on gfx1250: tensor instructions (LLVM 22, clang's BuiltinsAMDGPU: tensor_load_to_lds_d2),
// which one wave issues and counts in TENSORcnt. Their order is known within loads and within
// stores only, so a wait counts both kinds together, which is never too early.
#pragma once

#include "cco/device/atomic.h"
#include "cco/device/impl/tdm_descriptor.h"
#include "cco/device/impl/tdm_tile.h"

namespace cco::device::impl {

template <uint32_t kSlots>
class TdmTensor {
 public:
  static constexpr bool kPipelined = true;

  /// All lanes of the group's first wave, by a scalar branch: the instruction ignores the lane
  /// mask.
  template <typename C>
  static CCO_DEVICE bool issues(C coop) {
    return static_cast<uint32_t>(uniform(coop.thread_rank())) < warp_size();
  }
  /// The mover does not see this wave's stores that are still on their way.
  static CCO_DEVICE void order_before_copies() {
    drain_stores();
    asm volatile("s_wait_dscnt 0x0" ::: "memory");
  }

  CCO_DEVICE void open(void*) {}
  CCO_DEVICE void close() { wait<0>(); }

  template <typename C>
  CCO_DEVICE void load(C, uint32_t, void* shared, const void* global, const TdmTile& tile) {
#if CCO_TENSOR_BUILTINS
    __builtin_amdgcn_tensor_load_to_lds_d2(group0(shared, global, tile), group1(tile), kSystem);
#else
    // The compiler does not know that the registers are read until the translation is done.
    asm volatile("tensor_load_to_lds %0, %1 scope:SCOPE_SYS\n\ts_wait_xcnt 0x0" ::"s"(
                     group0(shared, global, tile)),
                 "s"(group1(tile))
                 : "memory");
#endif
  }
  CCO_DEVICE bool load_arrived(uint32_t, uint32_t, uint32_t newer_loads) {
    wait_at_most<kSlots>(newer_loads);
    return true;
  }
  template <typename C>
  CCO_DEVICE void store(C, void* global, const void* shared, const TdmTile& tile) {
#if CCO_TENSOR_BUILTINS
    __builtin_amdgcn_tensor_store_from_lds_d2(group0(shared, global, tile), group1(tile), kSystem);
#else
    asm volatile("tensor_store_from_lds %0, %1 scope:SCOPE_SYS\n\ts_wait_xcnt 0x0" ::"s"(
                     group0(shared, global, tile)),
                 "s"(group1(tile))
                 : "memory");
#endif
  }
  template <uint32_t kNewest>
  CCO_DEVICE void wait_stores_read() {
    wait<kNewest>();
  }
  CCO_DEVICE void finish_stores() {
    wait<0>();
    // The stores went past the caches of the waves that may read what they wrote.
    acquire_device(static_cast<const uint32_t*>(nullptr));
  }

 private:
  static constexpr int kSystem = 3 << 3;  // Cache policy: system scope, regular temporal hint.
  using Int4 = int __attribute__((ext_vector_type(4)));
  using Int8 = int __attribute__((ext_vector_type(8)));

  static CCO_DEVICE int uniform(uint32_t word) {
    return static_cast<int>(__builtin_amdgcn_readfirstlane(word));
  }
  static CCO_DEVICE Int4 group0(const void* shared, const void* global, const TdmTile& tile) {
    const auto lds = (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void*)shared;
    const TdmGroup0 g = encode_tdm_group0(tile.rows != 0 && tile.row_bytes != 0, lds,
                                          reinterpret_cast<uint64_t>(global));
    return Int4{uniform(g.dword[0]), uniform(g.dword[1]), uniform(g.dword[2]), uniform(g.dword[3])};
  }
  static CCO_DEVICE Int8 group1(const TdmTile& tile) {
    const TdmGroup1 g = encode_tdm_group1(shape_of(tile));
    return Int8{uniform(g.dword[0]), uniform(g.dword[1]), uniform(g.dword[2]), uniform(g.dword[3]),
                uniform(g.dword[4]), uniform(g.dword[5]), uniform(g.dword[6]), uniform(g.dword[7])};
  }

  template <uint32_t kCount>
  static CCO_DEVICE void wait() {
    // With the clobber: the compiler may not move accesses to LDS across it.
    asm volatile("s_wait_tensorcnt %0" ::"n"(kCount) : "memory");
  }
  /// The instruction's count is an immediate.
  template <uint32_t kMost>
  static CCO_DEVICE void wait_at_most(uint32_t count) {
    if constexpr (kMost == 0) {
      wait<0>();
    } else {
      count >= kMost ? wait<kMost>() : wait_at_most<kMost - 1>(count);
    }
  }
};

}  // namespace cco::device::impl
