// Kernels as written for MORI CCO: its include, its names, the vendors' words, nothing of ours.
#include "mori/cco/cco.hpp"

using mori::cco::ccoCoopBlock;
using mori::cco::ccoDevComm;
using mori::cco::ccoLsaBarrierSession;
using mori::cco::ccoWindow_t;
using mori::cco::ccoWindowDevice;

/// Every rank stores its chunk straight into every peer's window, by address arithmetic.
extern "C" __global__ void store_to_peers(ccoDevComm* devComm, ccoWindowDevice* win, size_t chunk) {
  const int me = devComm->lsaRank;
  for (int peer = blockIdx.x; peer < devComm->lsaSize; peer += gridDim.x) {
    char* base = win->winBase + (((uint64_t)peer * win->stride4G) << 32);
    char* dst = base + me * chunk;
    for (size_t i = threadIdx.x; i < chunk; i += blockDim.x) dst[i] = (char)(me * 31 + i);
  }
}

/// The same by the accessors, then a barrier, then each rank adds up what it has received. One
/// block.
extern "C" __global__ void store_meet_sum(ccoDevComm devComm, ccoWindow_t win, int count,
                                          unsigned* out) {
  ccoCoopBlock block{};
  for (int peer = 0; peer < devComm.lsaSize; ++peer) {
    unsigned* dst = static_cast<unsigned*>(
        ccoGetLsaPeerPtr(win, peer, devComm.lsaRank * count * sizeof(unsigned)));
    for (int i = block.thread_rank(); i < count; i += block.size()) dst[i] = devComm.rank + i;
  }
  ccoLsaBarrierSession<ccoCoopBlock> barrier(block, &devComm, ccoTeamLsa(devComm),
                                             devComm.lsaBarrier, 0);
  barrier.sync(block);
  if (threadIdx.x == 0) {
    const unsigned* received = static_cast<const unsigned*>(ccoGetLocalPtr(win));
    unsigned sum = 0;
    for (int i = 0; i < count * devComm.lsaSize; ++i) sum += received[i];
    out[0] = sum;
  }
  __syncthreads();
  const bool met = barrier.sync(block, uint64_t{1000000000000});
  if (threadIdx.x == 0) out[1] = met;
}
