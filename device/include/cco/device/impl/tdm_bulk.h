// TDM on sm_90: bulk copies (PTX ISA, cp.async.bulk), driven by one thread. A load arrives at an
// mbarrier of its slot; stores are counted in bulk groups.
#pragma once

#include "cco/device/impl/tdm_tile.h"

namespace cco::device::impl {

template <uint32_t kSlots>
class TdmBulk {
 public:
  static constexpr bool kPipelined = true;

  template <typename C>
  static CCO_DEVICE bool issues(C coop) {
    return coop.is_leader();
  }
  /// Bulk copies are another proxy: ordinary accesses before the fence come before copies after it.
  static CCO_DEVICE void order_before_copies() { asm volatile("fence.proxy.async;" ::: "memory"); }

  CCO_DEVICE void open(void* words) {
    barriers_ = shared_address(words);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(slot)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    order_before_copies();
  }
  CCO_DEVICE void close() {
    wait_stores_read<0>();
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier(slot)) : "memory");
    }
  }

  template <typename C>
  CCO_DEVICE void load(C, uint32_t slot, void* shared, const void* global, const TdmTile& tile) {
    uint32_t to = shared_address(shared);
    uint64_t from = reinterpret_cast<uint64_t>(global);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(slot)),
                 "r"(tile.rows * tile.row_bytes)
                 : "memory");
    if (tile.row_bytes == 0) return;
    for (uint32_t row = 0; row < tile.rows; ++row) {
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(to),
          "l"(from), "r"(tile.row_bytes), "r"(barrier(slot))
          : "memory");
      to += tile.row_bytes;
      from += tile.stride_bytes;
    }
  }

  /// One look, during which the hardware suspends the thread for a time of its own choice.
  CCO_DEVICE bool load_arrived(uint32_t slot, uint32_t phase, uint32_t) {
    uint32_t arrived;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
        " selp.u32 %0, 1, 0, p; }"
        : "=r"(arrived)
        : "r"(barrier(slot)), "r"(phase)
        : "memory");
    return arrived != 0;
  }

  template <typename C>
  CCO_DEVICE void store(C, void* global, const void* shared, const TdmTile& tile) {
    uint64_t to = reinterpret_cast<uint64_t>(global);
    uint32_t from = shared_address(shared);
    for (uint32_t row = 0; row < tile.rows && tile.row_bytes != 0; ++row) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                   "r"(from), "r"(tile.row_bytes)
                   : "memory");
      to += tile.stride_bytes;
      from += tile.row_bytes;
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  template <uint32_t kNewest>
  CCO_DEVICE void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kNewest) : "memory");
  }
  CCO_DEVICE void finish_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    order_before_copies();  // And the reverse: ordinary accesses from here on see what they stored.
  }

 private:
  static CCO_DEVICE uint32_t shared_address(const void* pointer) {
    uint64_t address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
    return static_cast<uint32_t>(address);
  }
  CCO_DEVICE uint32_t barrier(uint32_t slot) const { return barriers_ + 8 * slot; }

  uint32_t barriers_ = 0;  // Addresses in shared memory are 32 bits.
};

}  // namespace cco::device::impl
