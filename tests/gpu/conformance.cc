// Kernels that try the LSA primitives where they run: on a GPU, or on host threads. One source.
#include "tests/gpu/conformance.h"

#include "cco/device.hpp"

namespace cco::device {
namespace {

namespace shape = ::cco::conformance;

/// Cells of this group: groups share them out.
template <typename C>
CCO_DEVICE void put_cells(C coop, uint32_t group, uint32_t groups, const Window& window,
                          uint32_t peer, bool get_instead) {
  for (uint32_t cell = group; cell < shape::kCells; cell += groups) {
    const Place source = at(window, shape::source_offset(cell));
    const Place destination = at(window, shape::destination_offset(cell));
    const uint64_t bytes = shape::length(cell);
    if (get_instead) {
      get(coop, peer, source, destination, bytes);
    } else {
      put(coop, peer, destination, source, bytes);
    }
  }
}

}  // namespace

/// Copies every cell (see conformance.h) to or from `peer`, by threads (0), warps (1) or blocks
/// (2).
CCO_KERNEL void copy_cells(Window window, uint32_t peer, uint32_t coop, uint32_t get_instead) {
  const uint32_t threads = block_count() * thread_count();
  const uint32_t thread = block_index() * thread_count() + thread_index();
  const uint32_t warps_per_block = (thread_count() + warp_size() - 1) / warp_size();
  if (coop == 0) {
    put_cells(ThreadCoop{}, thread, threads, window, peer, get_instead != 0);
  } else if (coop == 1) {
    put_cells(WarpCoop{}, block_index() * warps_per_block + thread_index() / warp_size(),
              block_count() * warps_per_block, window, peer, get_instead != 0);
  } else {
    put_cells(BlockCoop{}, block_index(), block_count(), window, peer, get_instead != 0);
  }
}

/// Every thread notes what the block's wait for a signal returned.
CCO_KERNEL void wait_together(DeviceComm comm, uint32_t signal, uint64_t target,
                              uint64_t deadline_ns, uint64_t* results) {
  const WaitResult result =
      wait_at_least(BlockCoop{}, comm, signal, target, Deadline::after(comm, deadline_ns));
  results[thread_index()] = result.encode();
}

/// The same for a barrier.
CCO_KERNEL void meet_together(DeviceComm comm, uint32_t barrier, uint64_t deadline_ns,
                              uint64_t* results) {
  LsaBarrier<BlockCoop> session(BlockCoop{}, comm, barrier);
  results[thread_index()] = session.sync(Deadline::after(comm, deadline_ns)).encode();
}

CCO_KERNEL_TABLE(conformance, copy_cells, wait_together, meet_together);

}  // namespace cco::device
