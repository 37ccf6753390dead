// Kernels as written for MORI CCO's scale-out header. One block.
#include "mori/cco/cco_scale_out.hpp"

using mori::cco::CCO_TEAM_GDA;
using mori::cco::CCO_TEAM_WORLD;
using mori::cco::ccoCoopBlock;
using mori::cco::ccoCoopThread;
using mori::cco::ccoCoopWarp;
using mori::cco::ccoDevComm;
using mori::cco::ccoGda;
using mori::cco::ccoGda_CounterInc;
using mori::cco::ccoGda_NoSignal;
using mori::cco::ccoGda_SignalAdd;
using mori::cco::ccoGda_SignalInc;
using mori::cco::ccoGdaBarrierHandle;
using mori::cco::ccoGdaBarrierSession;
using mori::cco::ccoGdaOptFlagsAggregateRequests;
using mori::cco::ccoGdaOptFlagsDefault;
using mori::cco::ccoGdaRequest_t;
using mori::cco::ccoGdaThreadAggregate;
using mori::cco::ccoGdaThreadIndependent;
using mori::cco::ccoWindow_t;

/// Chunk `peer` of this rank to every other rank of the group, by one thread each, with signal 0;
/// the second half of the window receives, by sender.
template <mori::core::ProviderType P>
__device__ void all_to_all(ccoDevComm const& devComm, ccoWindow_t win, size_t chunk,
                           uint64_t* out) {
  ccoGda<P> gda(devComm, 0);
  const int me = devComm.rank, size = devComm.worldSize;
  for (int peer = threadIdx.x; peer < size; peer += blockDim.x) {
    if (peer == me) continue;
    gda.put(peer, win, (size + me) * chunk, win, peer * chunk, chunk, ccoGda_SignalInc{0});
  }
  gda.waitSignal(0, size - 1, ccoCoopBlock{});
  gda.flush(ccoCoopBlock{});
  if (threadIdx.x == 0) {
    out[0] = gda.firstFailure();
    out[1] = gda.readSignal(0);
    out[2] = gda.rank;
    out[3] = gda.nRanks;
    out[4] = gda.contextId;
  }
}
extern "C" __global__ void gda_all_to_all(ccoDevComm devComm, ccoWindow_t win, size_t chunk,
                                          uint64_t* out) {
  CCO_GDA_DISPATCH(all_to_all<P>(devComm, win, chunk, out));
}

/// Every other operation, with the ranks `peer` and from it. One warp. The window: 64 words of this
/// rank's, then 64 that peers write or that are fetched.
template <mori::core::ProviderType P, typename Coop>
__device__ void operations(ccoDevComm const& devComm, ccoWindow_t win, int peer, uint64_t* out) {
  const Coop coop{};
  const ccoCoopThread thread{};
  const bool first = threadIdx.x == 0;
  ccoGda<P> gda(devComm, 1);
  gda.putValue(peer, win, 64 * 8, uint64_t{0x1122334455667788}, ccoGda_SignalAdd{1, uint64_t{5}},
               coop);
  gda.template putValue<CCO_TEAM_WORLD, ccoGdaThreadIndependent, uint32_t>(
      peer, win, 65 * 8, 7, ccoGda_NoSignal{}, coop, ccoGdaOptFlagsAggregateRequests);
  gda.put(peer, win, 66 * 8, win, 0, 16, ccoGda_SignalAdd{1, uint64_t{2}}, coop,
          ccoGdaOptFlagsDefault);
  gda.waitSignal(1, uint64_t{3}, coop);
  gda.waitSignal(1, uint64_t{4}, coop, 64);
  if (first) out[0] = gda.readSignal(1, 32);
  gda.signal(peer, ccoGda_SignalInc{2}, coop);
  gda.waitSignal(2, uint64_t{1}, coop);

  gda.get(peer, win, 8, win, 70 * 8, 24, coop);
  gda.template get<CCO_TEAM_WORLD, ccoGdaThreadIndependent>(peer, win, 0, win, 73 * 8, 8, coop,
                                                            ccoGdaOptFlagsAggregateRequests);
  gda.flush(peer, coop);
  ccoGdaRequest_t request{0, 0};
  gda.put(peer, win, 80 * 8, win, 0, 8, ccoGda_NoSignal{}, coop);
  gda.flushAsync(peer, &request, coop);
  gda.wait(request, coop);

  gda.counter(ccoGda_CounterInc{3}, coop);
  gda.waitCounter(3, uint64_t{1}, coop, 56);
  if (first) {
    out[1] = gda.readCounter(3);
    gda.resetCounter(3);
    out[2] = gda.readCounter(3, 56);
    gda.template put<CCO_TEAM_WORLD, ccoGdaThreadAggregate>(peer, win, 81 * 8, win, 0, 8);
    gda.signal(peer, ccoGda_SignalInc{4}, thread);
    gda.waitSignal(4, uint64_t{1});
    gda.resetSignal(4);
    out[3] = gda.readSignal(4);
    out[4] = gda.firstFailure();
    out[5] = gda.template resolveWorldPeer<CCO_TEAM_WORLD>(peer);
    out[6] = gda.comm.worldSize;
  }
}
extern "C" __global__ void gda_operations(ccoDevComm devComm, ccoWindow_t win, int peer, int scope,
                                          uint64_t* out) {
  if (scope == 1) CCO_GDA_DISPATCH(operations<P, ccoCoopWarp>(devComm, win, peer, out));
  if (scope == 2) CCO_GDA_DISPATCH(operations<P, ccoCoopBlock>(devComm, win, peer, out));
}

/// `rounds` times: this rank's word to all of the GDA team, a barrier, and what all have sent must
/// be there; another barrier before it is overwritten.
template <mori::core::ProviderType P>
__device__ void meet(ccoDevComm const& devComm, ccoWindow_t win, int rounds, int hybrid,
                     uint64_t* out) {
  const ccoCoopBlock block{};
  ccoGda<P> gda(devComm, 0);
  const ccoGdaBarrierHandle handle = hybrid ? devComm.hybridRailGdaBarrier : devComm.railGdaBarrier;
  const uint64_t* const received = static_cast<const uint64_t*>(ccoGetLocalPtr(win));
  for (int round = 1; round <= rounds; ++round) {
    for (int peer = 0; peer < gda.nRanks; ++peer) {
      if (gda.template resolveWorldPeer<CCO_TEAM_GDA>(peer) == devComm.rank) continue;
      gda.template putValue<CCO_TEAM_GDA>(peer, win, devComm.rank * 8,
                                          uint64_t(100 * round + devComm.rank), ccoGda_NoSignal{},
                                          block);
    }
    {
      ccoGdaBarrierSession<P, ccoCoopBlock> barrier(block, gda, handle, 0);
      barrier.sync(block);
      if (threadIdx.x == 0 && barrier.firstFailure() != 0) out[0] = barrier.firstFailure();
    }
    for (int peer = 0; peer < gda.nRanks; ++peer) {
      const int from = gda.template resolveWorldPeer<CCO_TEAM_GDA>(peer);
      if (from == devComm.rank || threadIdx.x != 0) continue;
      if (received[from] != uint64_t(100 * round + from)) out[1] += 1;
    }
    ccoGdaBarrier(block, gda, handle, 1);
  }
  if (threadIdx.x == 0 && gda.firstFailure() != 0) out[0] = gda.firstFailure();
}
extern "C" __global__ void gda_meet(ccoDevComm* devComm, ccoWindow_t win, int rounds, int hybrid,
                                    uint64_t* out) {
  CCO_GDA_DISPATCH(meet<P>(*devComm, win, rounds, hybrid, out));
}
