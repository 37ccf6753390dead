// The barrier of the GDA team: cco/device/gda_barrier.h under MORI's names.
#pragma once

#include <type_traits>

#include "cco/device/gda_barrier.h"
#include "mori/cco/gda.hpp"

namespace mori {
namespace cco {

/// One object at a time per index. Of the ranks that GDA connects, with RAIL those of the rail;
/// `handle` is railGdaBarrier, or hybridRailGdaBarrier.
template <core::ProviderType P, typename Coop>
struct ccoGdaBarrierSession : ccoOutcome {
  static_assert(!std::is_same<Coop, ccoCoopThread>::value, "needs a warp or a block");

  CCO_DEVICE ccoGdaBarrierSession(Coop, ccoGda<P>& gda, ccoGdaBarrierHandle handle, uint32_t index)
      : comm_(gda.comm),
        gda_(gda.ours()),
        barrier_(typename Coop::Native{}, gda_, nativeIndex(gda_, handle, index),
                 native::GdaTeam::kConnected) {}
  ccoGdaBarrierSession(const ccoGdaBarrierSession&) = delete;
  ccoGdaBarrierSession& operator=(const ccoGdaBarrierSession&) = delete;

  /// What the ranks have put to each other on this context before is there afterwards.
  CCO_DEVICE void sync(Coop) { note(barrier_.sync(ccoNever(comm_))); }

 private:
  /// The communicator's barriers are one row, of which a handle names a part. Out of range: refused
  /// by sync().
  static CCO_DEVICE uint32_t nativeIndex(const native::Gda& gda, ccoGdaBarrierHandle handle,
                                         uint32_t index) {
    const cco_gda_device* const device = gda.device();
    if (device == nullptr || index >= static_cast<uint32_t>(handle.nBarriers)) return ~0u;
    return (handle.signal0 - device->rail_signal_first) / device->rail_barrier_slots + index;
  }

  const ccoDevComm& comm_;
  const native::Gda gda_;  // Of the barrier, which keeps a reference.
  native::GdaBarrier<typename Coop::Native> barrier_;
};

template <typename Coop, core::ProviderType P>
CCO_DEVICE void ccoGdaBarrier(Coop coop, ccoGda<P>& gda, ccoGdaBarrierHandle handle,
                              uint32_t index) {
  ccoGdaBarrierSession<P, Coop> barrier(coop, gda, handle, index);
  barrier.sync(coop);
}

}  // namespace cco
}  // namespace mori
