// Puts and gets by copy engines: cco/device/sdma.h under MORI's names. Peers are LSA ranks.
#pragma once

#include <type_traits>

#include "cco/device/sdma.h"
#include "mori/cco/outcome.hpp"
#include "mori/cco/teams.hpp"

namespace mori {
namespace cco {

struct ccoSdma : ccoOutcome {
  const ccoDevComm& comm;

  CCO_DEVICE ccoSdma(const ccoDevComm& comm) : comm(comm), sdma_(comm.native) {}

  /// This rank's copy of srcWin to the peer's copy of dstWin. Signals count per (sender, queue),
  /// here with localSignal and at the peer with remoteSignal.
  template <typename Coop = ccoCoopThread, bool localSignal = false, bool remoteSignal = false,
            uint32_t optFlags = ccoSdmaOptFlagsDefault,
            ccoSdmaThreadMode threadMode = ccoSdmaThreadIndependent>
  CCO_DEVICE void put(int peer, ccoWindow_t dstWin, size_t dstOffset, ccoWindow_t srcWin,
                      size_t srcOffset, size_t bytes, int queueId = 0) const {
    constexpr uint32_t options =
        optionsFor<Coop, localSignal, remoteSignal, optFlags, threadMode>();
    note(sdma_.template put<options>(typename Coop::Native{}, static_cast<uint32_t>(peer),
                                     ccoPlace(dstWin, dstOffset), ccoPlace(srcWin, srcOffset),
                                     bytes, static_cast<uint32_t>(queueId), ccoNever(comm)));
  }

  /// The peer's copy of srcWin to this rank's copy of dstWin.
  template <typename Coop = ccoCoopThread, bool localSignal = false, bool remoteSignal = false,
            uint32_t optFlags = ccoSdmaOptFlagsDefault,
            ccoSdmaThreadMode threadMode = ccoSdmaThreadIndependent>
  CCO_DEVICE void get(int peer, ccoWindow_t dstWin, size_t dstOffset, ccoWindow_t srcWin,
                      size_t srcOffset, size_t bytes, int queueId = 0) const {
    constexpr uint32_t options =
        optionsFor<Coop, localSignal, remoteSignal, optFlags, threadMode>();
    note(sdma_.template get<options>(typename Coop::Native{}, static_cast<uint32_t>(peer),
                                     ccoPlace(srcWin, srcOffset), ccoPlace(dstWin, dstOffset),
                                     bytes, static_cast<uint32_t>(queueId), ccoNever(comm)));
  }

  /// Until all that was posted to the peer has landed.
  template <typename Coop = ccoCoopThread>
  CCO_DEVICE void quiet(int peer) const {
    note(sdma_.quiet(typename Coop::Native{}, static_cast<uint32_t>(peer), ccoNever(comm)));
  }
  template <typename Coop = ccoCoopThread>
  CCO_DEVICE void quietQueue(int peer, int queueId) const {
    note(sdma_.quiet_queue(typename Coop::Native{}, static_cast<uint32_t>(peer),
                           static_cast<uint32_t>(queueId), ccoNever(comm)));
  }

  /// Starts what ccoSdmaOptFlagsAggregate has left waiting; for warps and blocks on all queues.
  template <typename Coop = ccoCoopThread>
  CCO_DEVICE void commit(int peer, int queueId = 0) const {
    const auto one = [&](uint32_t queue) {
      note(sdma_.commit(typename Coop::Native{}, static_cast<uint32_t>(peer), queue,
                        ccoNever(comm)));
    };
    if constexpr (std::is_same<Coop, ccoCoopThread>::value) {
      one(static_cast<uint32_t>(queueId));
    } else {
      for (uint32_t queue = 0; queue < sdma_.queue_count(); ++queue) one(queue);
    }
  }

  /// Until the signal of (srcRank, queueId) has risen `expected` times in all. Nothing is consumed.
  CCO_DEVICE void waitSignal(int srcRank, int queueId, uint64_t expected) const {
    note(sdma_.wait_signal(native::ThreadCoop{}, static_cast<uint32_t>(srcRank),
                           static_cast<uint32_t>(queueId), expected, ccoNever(comm)));
  }

 private:
  template <typename Coop, bool localSignal, bool remoteSignal, uint32_t optFlags,
            ccoSdmaThreadMode threadMode>
  static constexpr CCO_DEVICE uint32_t optionsFor() {
    constexpr bool byThread = std::is_same<Coop, ccoCoopThread>::value;
    static_assert(byThread || threadMode == ccoSdmaThreadIndependent,
                  "ccoSdmaThreadSameQueue needs ccoCoopThread");
    constexpr bool perCopy = byThread && (optFlags & ccoSdmaOptFlagsSignalPerCopy) != 0;
    return (localSignal ? native::kSdmaSignalLocal : 0u) |
           (remoteSignal ? native::kSdmaSignalRemote : 0u) |
           ((optFlags & ccoSdmaOptFlagsAggregate) != 0 ? native::kSdmaAggregate : 0u) |
           (perCopy ? native::kSdmaSignalPerCopy : 0u) |
           (threadMode == ccoSdmaThreadSameQueue ? native::kSdmaSameQueue : 0u);
  }

  native::Sdma sdma_;
};

}  // namespace cco
}  // namespace mori
