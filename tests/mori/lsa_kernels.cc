// Kernels as written for MORI CCO: teams, groups of threads, windows by pointer, the LSA barrier.
#include "mori/cco/cco.hpp"

using mori::cco::ccoCoopBlock;
using mori::cco::ccoCoopThread;
using mori::cco::ccoCoopWarp;
using mori::cco::ccoDevComm;
using mori::cco::ccoDevComm_t;
using mori::cco::ccoLsaBarrierHandle;
using mori::cco::ccoLsaBarrierSession;
using mori::cco::ccoTeam;
using mori::cco::ccoWindow_t;

/// What a kernel sees of its place: 16 numbers.
extern "C" __global__ void lsa_places(ccoDevComm devComm, int* out) {
  const ccoTeam world = ccoTeamWorld(devComm), lsa = ccoTeamLsa(devComm);
  const ccoTeam cross = ccoTeamCrossNode(devComm), rail = ccoTeamRail(devComm);
  const ccoCoopThread thread{};
  const ccoCoopBlock block{};
  if (threadIdx.x != 0) return;
  out[0] = devComm.rank;
  out[1] = devComm.worldSize;
  out[2] = devComm.lsaRank;
  out[3] = devComm.lsaSize;
  out[4] = devComm.myNodeStart;
  out[5] = world.nRanks * 100 + world.rank * 10 + world.stride;
  out[6] = lsa.nRanks * 100 + lsa.rank * 10 + lsa.stride;
  out[7] = cross.nRanks * 100 + (cross.rank + 1) * 10 + cross.stride;
  out[8] = rail.nRanks * 100 + (rail.rank + 1) * 10 + rail.stride;
  out[9] = ccoTeamRankToWorld(devComm, lsa, 0);
  out[10] = cross.nRanks > 0 ? ccoTeamRankToGdaRank(devComm, cross, 0) : -1;
  out[11] = rail.nRanks > 0 ? ccoTeamRankToGdaRank(devComm, rail, 0) : -1;
  out[12] = thread.thread_rank() + thread.size();
  out[13] = block.size();
  out[14] = devComm.gdaConnType;
  out[15] = devComm.lsaBarrier.nBarriers;
}

template <typename Coop>
__device__ void add_up(ccoDevComm_t devComm, ccoWindow_t win, int count, ccoLsaBarrierHandle handle,
                       uint32_t index, int* timedOut) {
  const Coop coop{};
  const int me = devComm->lsaRank;
  int* const mine = static_cast<int*>(ccoGetLocalPtr(win));
  for (int i = coop.thread_rank(); i < count; i += coop.size()) mine[i] = me + i;
  ccoLsaBarrierSession<Coop> barrier(coop, devComm, ccoTeamLsa(*devComm), handle, index);
  barrier.arrive(coop);
  barrier.wait(coop);
  int* const sums = static_cast<int*>(ccoGetLocalPtr(win, count * sizeof(int)));
  for (int i = coop.thread_rank(); i < count; i += coop.size()) {
    int sum = 0;
    for (int peer = 0; peer < devComm->lsaSize; ++peer) {
      const char* const base = win->winBase + (((uint64_t)peer * win->stride4G) << 32);
      sum += reinterpret_cast<const int*>(base)[i];
    }
    sums[i] = sum;
  }
  const int late = barrier.sync(coop, uint64_t{1000000000000});
  if (coop.thread_rank() == 0) *timedOut = late;
}

/// Sums all copies of the window's first `count` ints into the next `count`. One block of one warp.
/// `scope`: 0 thread, 1 warp, 2 block. `hybrid`: meets on a barrier of the hybrid handle.
extern "C" __global__ void lsa_sum(ccoDevComm* devComm, ccoWindow_t win, int count, int scope,
                                   int hybrid, int* timedOut) {
  const ccoLsaBarrierHandle handle = hybrid ? devComm->hybridLsaBarrier : devComm->lsaBarrier;
  const uint32_t index = handle.nBarriers - 1;
  if (scope == 0 && threadIdx.x == 0) {
    add_up<ccoCoopThread>(devComm, win, count, handle, index, timedOut);
  }
  if (scope == 1) add_up<ccoCoopWarp>(devComm, win, count, handle, index, timedOut);
  if (scope == 2) add_up<ccoCoopBlock>(devComm, win, count, handle, index, timedOut);
}

/// A kernel that knows addresses alone.
extern "C" __global__ void lsa_find(ccoDevComm* devComm, const void* inside, const void* outside,
                                    ccoWindow_t* out) {
  if (threadIdx.x != 0) return;
  out[0] = findWindow(devComm, inside);
  out[1] = findWindow(devComm, outside);
}
