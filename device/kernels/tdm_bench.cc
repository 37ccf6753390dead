// What cco-bench times of TDM. A block needs one warp where a mover copies; elsewhere all its
// threads do. `shared_bytes` is the block's dynamic shared memory, tdm_shared_bytes() of the stages
// wanted. Result words as in bench.cc, one per block.
#include "device/kernels/tdm_bench.h"

#include "cco/device.hpp"
#include "device/kernels/store_result.h"

namespace cco::device {
namespace {

using kernels::kTdmStages;

#if CCO_SM90
/// The block's shared memory as bulk_copy_bare uses it: stages first, then one mbarrier for each.
struct BareRing {
  uint32_t stages;
  uint32_t stage_bytes;

  CCO_DEVICE uint32_t stage(uint32_t slot) const { return stages + slot * stage_bytes; }
  CCO_DEVICE uint32_t barrier(uint32_t slot) const {
    return stages + kTdmStages * stage_bytes + 8 * slot;
  }
  CCO_DEVICE void load(uint32_t slot, uint64_t from, uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(slot)),
                 "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(stage(slot)),
        "l"(from), "r"(bytes), "r"(barrier(slot))
        : "memory");
  }
  CCO_DEVICE void wait(uint32_t slot, uint32_t phase) const {
    asm volatile(
        "{ .reg .pred p;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra again; }" ::"r"(barrier(slot)),
        "r"(phase)
        : "memory");
  }
  CCO_DEVICE void store(uint32_t slot, uint64_t to, uint32_t bytes) const {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(stage(slot)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
};

/// One thread copies every grid-th chunk: half of the stages load ahead while the others drain.
CCO_DEVICE void copy_by_bulk(void* destination, const void* source, uint64_t bytes,
                             uint32_t stage_bytes) {
  constexpr uint32_t kAhead = kTdmStages / 2;
  uint64_t shared;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(shared) : "l"(dynamic_shared_memory()));
  const BareRing ring{static_cast<uint32_t>(shared), stage_bytes};
  for (uint32_t slot = 0; slot < kTdmStages; ++slot) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring.barrier(slot)) : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");

  const uint64_t from = reinterpret_cast<uint64_t>(source);
  const uint64_t to = reinterpret_cast<uint64_t>(destination);
  const uint64_t step = uint64_t{block_count()} * stage_bytes;
  const auto length = [&](uint64_t at) {
    return bytes - at < stage_bytes ? static_cast<uint32_t>(bytes - at) : stage_bytes;
  };
  uint64_t load_at = uint64_t{block_index()} * stage_bytes;
  uint64_t store_at = load_at;
  uint32_t load_slot = 0;
  const auto load_next = [&] {
    if (load_at >= bytes) return;
    ring.load(load_slot, from + load_at, length(load_at));
    load_at += step;
    load_slot = load_slot + 1 == kTdmStages ? 0 : load_slot + 1;
  };
  for (uint32_t i = 0; i < kAhead; ++i) load_next();
  uint32_t slot = 0;
  uint32_t phase = 0;
  for (; store_at < bytes; store_at += step) {
    ring.wait(slot, phase);
    ring.store(slot, to + store_at, length(store_at));
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kTdmStages - kAhead) : "memory");
    load_next();
    if (++slot == kTdmStages) {
      slot = 0;
      phase ^= 1;
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
#endif

}  // namespace

/// The loop that tdm_put and tdm_get are measured against, where there are bulk copies; elsewhere
/// the whole grid copies by words. Addresses and `bytes` are multiples of 16.
CCO_KERNEL void bulk_copy_bare(void* destination, const void* source, uint64_t bytes,
                               uint32_t stage_bytes) {
#if CCO_SM90
  if (thread_index() == 0) copy_by_bulk(destination, source, bytes, stage_bytes);
#else
  static_cast<void>(stage_bytes);
  impl::copy_bytes(GridCoop{}, destination, source, bytes);
#endif
}

/// Tdm::put() of `bytes` of the own window at source_offset to `peer`'s at offset, a share per
/// block.
CCO_KERNEL void tdm_put(DeviceComm comm, Window window, uint32_t peer, uint64_t offset,
                        uint64_t source_offset, uint64_t bytes, uint32_t shared_bytes,
                        uint64_t deadline_ns, uint64_t* result) {
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  Tdm<BlockCoop, kTdmStages> tdm(BlockCoop{}, dynamic_shared_memory(), shared_bytes);
  kernels::store_result(
      result + block_index(),
      tdm.put(peer, at(window, offset), at(window, source_offset), bytes, deadline, grid_share()));
}

/// Tdm::get() of `bytes` of `peer`'s window at source_offset to the own at offset.
CCO_KERNEL void tdm_get(DeviceComm comm, Window window, uint32_t peer, uint64_t offset,
                        uint64_t source_offset, uint64_t bytes, uint32_t shared_bytes,
                        uint64_t deadline_ns, uint64_t* result) {
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  Tdm<BlockCoop, kTdmStages> tdm(BlockCoop{}, dynamic_shared_memory(), shared_bytes);
  kernels::store_result(
      result + block_index(),
      tdm.get(peer, at(window, source_offset), at(window, offset), bytes, deadline, grid_share()));
}

CCO_KERNEL_TABLE(tdm_bench, bulk_copy_bare, tdm_put, tdm_get);

}  // namespace cco::device
