// Kernels as written for MORI CCO with BUILD_CCO_SDMA=1.
#include "mori/cco/cco.hpp"

using mori::cco::ccoCoopBlock;
using mori::cco::ccoCoopThread;
using mori::cco::ccoCoopWarp;
using mori::cco::ccoDevComm;
using mori::cco::ccoSdma;
using mori::cco::ccoSdmaOptFlagsAggregate;
using mori::cco::ccoSdmaOptFlagsDefault;
using mori::cco::ccoSdmaOptFlagsSignalPerCopy;
using mori::cco::ccoSdmaThreadIndependent;
using mori::cco::ccoSdmaThreadSameQueue;
using mori::cco::ccoWindow_t;

static_assert(ccoSdmaThreadIndependent == 0 && ccoSdmaThreadSameQueue == 1, "");
static_assert(ccoSdmaOptFlagsDefault == 0 && ccoSdmaOptFlagsAggregate == 1, "");
static_assert(ccoSdmaOptFlagsSignalPerCopy == 2, "");

/// Each thread sends the chunk of "its" peers and waits for theirs: signals of queue 0 rise by one.
/// The window: lsaSize chunks to send, then lsaSize chunks received, by sender.
extern "C" __global__ void sdma_all_to_all(ccoDevComm devComm, ccoWindow_t win, size_t chunk,
                                           uint64_t round, uint64_t* failure) {
  const ccoSdma sdma{devComm};
  const int me = devComm.lsaRank, size = devComm.lsaSize;
  for (int peer = threadIdx.x; peer < size; peer += blockDim.x) {
    sdma.put<ccoCoopThread, false, true>(peer, win, (size + me) * chunk, win, peer * chunk, chunk);
  }
  for (int peer = threadIdx.x; peer < size; peer += blockDim.x) sdma.waitSignal(peer, 0, round);
  if (sdma.firstFailure() != 0) *failure = sdma.firstFailure();
}

template <typename Coop>
__device__ void pull(ccoDevComm const& devComm, ccoWindow_t win, size_t chunk, uint64_t* failure) {
  const ccoSdma sdma(devComm);
  const int me = devComm.lsaRank, size = devComm.lsaSize;
  for (int peer = 0; peer < size; ++peer) {
    sdma.get<Coop>(peer, win, (size + peer) * chunk, win, me * chunk, chunk, 1);
  }
  for (int peer = 0; peer < size; ++peer) sdma.quiet<Coop>(peer);
  if (sdma.firstFailure() != 0) *failure = sdma.firstFailure();
}

/// The same by reading from the peers. `scope`: 0 thread, 1 warp, 2 block.
extern "C" __global__ void sdma_pull(ccoDevComm devComm, ccoWindow_t win, size_t chunk, int scope,
                                     uint64_t* failure) {
  if (scope == 0 && threadIdx.x == 0) pull<ccoCoopThread>(devComm, win, chunk, failure);
  if (scope == 1) pull<ccoCoopWarp>(devComm, win, chunk, failure);
  if (scope == 2) pull<ccoCoopBlock>(devComm, win, chunk, failure);
}

/// Four pieces wait, and go together; local signals tell. Threads of a warp, one signal each. One
/// block of one warp.
extern "C" __global__ void sdma_pieces(ccoDevComm devComm, ccoWindow_t win, size_t piece,
                                       uint64_t* failure) {
  const ccoSdma sdma(devComm);
  const int me = devComm.lsaRank, size = devComm.lsaSize, next = (me + 1) % size;
  const size_t to = (size + me) * piece * 4;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) {
      sdma.put<ccoCoopThread, false, false, ccoSdmaOptFlagsAggregate>(next, win, to + i * piece,
                                                                      win, i * piece, piece, 1);
    }
    sdma.commit(next, 1);
    sdma.quietQueue(next, 1);
    sdma.put<ccoCoopThread, true, false, ccoSdmaOptFlagsAggregate>(next, win, to, win, 0, piece, 1);
    sdma.put<ccoCoopThread, true>(next, win, to, win, 0, 0, 1);  // No bytes, and yet a signal.
    sdma.waitSignal(me, 1, 2);
  }
  __syncthreads();
  sdma.put<ccoCoopThread, true, false, ccoSdmaOptFlagsSignalPerCopy, ccoSdmaThreadSameQueue>(
      next, win, to, win, 0, 16, 1);
  sdma.waitSignal(me, 1, 2 + blockDim.x);
  sdma.commit<ccoCoopBlock>(next);
  sdma.quiet<ccoCoopWarp>(next);
  if (sdma.firstFailure() != 0) *failure = sdma.firstFailure();
}

/// What MORI ignores in silence is told.
extern "C" __global__ void sdma_refused(ccoDevComm devComm, ccoWindow_t win, uint64_t* failure) {
  const ccoSdma sdma(devComm);
  if (threadIdx.x != 0) return;
  sdma.put(0, win, 0, win, 0, 16, 99);
  *failure = sdma.firstFailure();
}
