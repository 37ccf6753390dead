// Operations by NICs: cco/device/gda.h under MORI's names. Peers are WORLD ranks unless a team is
// named.
#pragma once

#include <type_traits>

#include "cco/device/gda.h"
#include "mori/cco/outcome.hpp"
#include "mori/cco/teams.hpp"

namespace mori {
namespace core {

/// Which NIC it is stands in the communicator; the template argument decides nothing.
enum class ProviderType { Unknown = 0, MLX5 = 1, BNXT = 2, PSD = 3, IBVERBS = 4 };

}  // namespace core

namespace cco {

using ccoGdaSignal_t = uint32_t;
using ccoGdaCounter_t = uint32_t;

/// What flushAsync() hands to wait().
struct ccoGdaRequest_t {
  int qpIdx;
  uint64_t postIdx;
};

// Actions.

struct ccoGda_NoSignal {
  CCO_DEVICE native::RemoteAction action() const { return native::NoSignal{}; }
};
struct ccoGda_SignalInc {
  ccoGdaSignal_t signalId;
  CCO_HOST_DEVICE ccoGda_SignalInc(ccoGdaSignal_t id) : signalId(id) {}
  CCO_DEVICE native::RemoteAction action() const { return native::SignalInc{signalId}; }
};
struct ccoGda_SignalAdd {
  ccoGdaSignal_t signalId;
  uint64_t value;
  CCO_HOST_DEVICE ccoGda_SignalAdd(ccoGdaSignal_t id, uint64_t value)
      : signalId(id), value(value) {}
  CCO_DEVICE native::RemoteAction action() const { return native::SignalAdd{signalId, value}; }
};
struct ccoGda_CounterInc {
  ccoGdaCounter_t counterId;
  CCO_HOST_DEVICE ccoGda_CounterInc(ccoGdaCounter_t id) : counterId(id) {}
};

struct ccoGdaCtx {
  int rank;
  int worldSize;
  void* handle;
  int contextId;
};

/// One context. The communicator must outlive it.
template <core::ProviderType P>
struct ccoGda : ccoOutcome {
  const ccoDevComm& comm;
  int rank;    ///< In the GDA team.
  int nRanks;  ///< Of the GDA team; 0: not connected.
  uint32_t contextId;
  void* _gdaHandle;

  CCO_DEVICE ccoGda(const ccoDevComm& comm, int contextIndex)
      : comm(comm),
        rank(rankInTeam(comm)),
        nRanks(teamSize(comm)),
        contextId(static_cast<uint32_t>(contextIndex)),
        _gdaHandle(nullptr) {}

  /// This rank's copy of srcWin to the peer's copy of dstWin; then the action.
  template <ccoTeamMode TeamMode = CCO_TEAM_WORLD,
            ccoGdaThreadMode ThreadMode = ccoGdaThreadIndependent,
            typename RemoteAction = ccoGda_NoSignal, typename Coop = ccoCoopThread>
  CCO_DEVICE void put(int peer, ccoWindow_t dstWin, size_t dstOffset, ccoWindow_t srcWin,
                      size_t srcOffset, size_t bytes, RemoteAction action = RemoteAction{},
                      Coop = Coop{}, uint32_t optFlags = ccoGdaOptFlagsDefault) const {
    note(ours().put(typename Coop::Native{}, worldPeer<TeamMode>(peer), ccoPlace(dstWin, dstOffset),
                    ccoPlace(srcWin, srcOffset), bytes,
                    {ccoNever(comm), action.action(), flagsFor<ThreadMode, Coop>(optFlags)}));
  }

  /// A value of 1, 2, 4 or 8 bytes to the peer's copy of dstWin; then the action.
  template <ccoTeamMode TeamMode = CCO_TEAM_WORLD,
            ccoGdaThreadMode ThreadMode = ccoGdaThreadIndependent, typename T,
            typename RemoteAction = ccoGda_NoSignal, typename Coop = ccoCoopThread>
  CCO_DEVICE void putValue(int peer, ccoWindow_t dstWin, size_t dstOffset, T value,
                           RemoteAction action = RemoteAction{}, Coop = Coop{},
                           uint32_t optFlags = ccoGdaOptFlagsDefault) const {
    note(ours().template put_value<T>(
        typename Coop::Native{}, worldPeer<TeamMode>(peer), ccoPlace(dstWin, dstOffset), value,
        {ccoNever(comm), action.action(), flagsFor<ThreadMode, Coop>(optFlags)}));
  }

  /// The peer's copy of remoteWin to this rank's copy of localWin; there after a flush.
  template <ccoTeamMode TeamMode = CCO_TEAM_WORLD,
            ccoGdaThreadMode ThreadMode = ccoGdaThreadIndependent, typename Coop = ccoCoopThread>
  CCO_DEVICE void get(int peer, ccoWindow_t remoteWin, size_t remoteOffset, ccoWindow_t localWin,
                      size_t localOffset, size_t bytes, Coop = Coop{},
                      uint32_t optFlags = ccoGdaOptFlagsDefault) const {
    note(ours().get(typename Coop::Native{}, worldPeer<TeamMode>(peer),
                    ccoPlace(remoteWin, remoteOffset), ccoPlace(localWin, localOffset), bytes,
                    {ccoNever(comm), native::NoSignal{}, flagsFor<ThreadMode, Coop>(optFlags)}));
  }

  template <ccoTeamMode TeamMode = CCO_TEAM_WORLD, typename RemoteAction,
            typename Coop = ccoCoopThread>
  CCO_DEVICE void signal(int peer, RemoteAction action, Coop = Coop{}) const {
    note(ours().signal(typename Coop::Native{}, worldPeer<TeamMode>(peer), action.action(),
                       ccoNever(comm)));
  }

  /// What the signal has beyond what waitSignal() has consumed.
  CCO_DEVICE uint64_t readSignal(ccoGdaSignal_t id, int bits = 64) const {
    return comm.native.gda == 0 ? 0 : ours().read_signal(id, static_cast<uint32_t>(bits));
  }
  /// Until readSignal() is at least `least`; then consumes that much.
  template <typename Coop = ccoCoopThread>
  CCO_DEVICE void waitSignal(ccoGdaSignal_t id, uint64_t least, Coop = Coop{},
                             int bits = 64) const {
    note(ours().wait_signal(typename Coop::Native{}, id, least, ccoNever(comm),
                            static_cast<uint32_t>(bits)));
  }
  CCO_DEVICE void resetSignal(ccoGdaSignal_t id) const {
    if (comm.native.gda != 0) ours().reset_signal(id);
  }

  /// Until the peers have acknowledged what this context has posted; then counts. Starts what
  /// waits, too.
  template <typename LocalAction, typename Coop = ccoCoopWarp>
  CCO_DEVICE void counter(LocalAction action, Coop = Coop{}) const {
    needsWarp<Coop>();
    note(ours().counter(typename Coop::Native{}, action.counterId, ccoNever(comm)));
  }
  CCO_DEVICE uint64_t readCounter(ccoGdaCounter_t id, int bits = 56) const {
    return comm.native.gda == 0 ? 0 : ours().read_counter(id, static_cast<uint32_t>(bits));
  }
  template <typename Coop = ccoCoopThread>
  CCO_DEVICE void waitCounter(ccoGdaCounter_t id, uint64_t least, Coop = Coop{},
                              int bits = 56) const {
    note(ours().wait_counter(typename Coop::Native{}, id, least, ccoNever(comm),
                             static_cast<uint32_t>(bits)));
  }
  CCO_DEVICE void resetCounter(ccoGdaCounter_t id) const {
    if (comm.native.gda != 0) ours().reset_counter(id);
  }

  /// Until all peers have acknowledged what this context has posted.
  template <typename Coop = ccoCoopWarp,
            typename = typename std::enable_if<!std::is_integral<Coop>::value>::type>
  CCO_DEVICE void flush(Coop = Coop{}) const {
    needsWarp<Coop>();
    note(ours().flush(typename Coop::Native{}, ccoNever(comm)));
  }
  /// Until that one has.
  template <ccoTeamMode TeamMode = CCO_TEAM_WORLD, typename Coop = ccoCoopWarp>
  CCO_DEVICE void flush(int peer, Coop = Coop{}) const {
    needsWarp<Coop>();
    note(ours().flush(typename Coop::Native{}, worldPeer<TeamMode>(peer), ccoNever(comm)));
  }
  template <ccoTeamMode TeamMode = CCO_TEAM_WORLD, typename Coop = ccoCoopThread>
  CCO_DEVICE void flushAsync(int peer, ccoGdaRequest_t* request, Coop = Coop{}) const {
    native::GdaRequest made{0, 0};
    note(ours().flush_async(typename Coop::Native{}, worldPeer<TeamMode>(peer), &made,
                            ccoNever(comm)));
    const uint32_t queue = made.peer * contextCount(comm) + ours().context();
    *request = ccoGdaRequest_t{static_cast<int>(queue), made.target};
  }
  template <typename Coop = ccoCoopWarp>
  CCO_DEVICE void wait(ccoGdaRequest_t& request, Coop = Coop{}) const {
    needsWarp<Coop>();
    if (request.postIdx == 0) return;  // Nothing had been posted, or nothing could be.
    const uint32_t queue = static_cast<uint32_t>(request.qpIdx);
    const native::Gda gda(comm.native, queue % contextCount(comm));
    note(gda.wait(typename Coop::Native{},
                  native::GdaRequest{queue / contextCount(comm), request.postIdx}, ccoNever(comm)));
  }

  /// World rank of a rank of the team.
  template <ccoTeamMode TeamMode>
  CCO_DEVICE int resolveWorldPeer(int peer) const {
    if (TeamMode == CCO_TEAM_LSA) return comm.myNodeStart + peer;
    if (TeamMode == CCO_TEAM_WORLD || comm.gdaConnType == CCO_GDA_CONNECTION_FULL) return peer;
    if (comm.gdaConnType == CCO_GDA_CONNECTION_RAIL) return peer * comm.lsaSize + comm.lsaRank;
    // CROSSNODE: this rank stands for its node.
    if (peer == rank) return comm.rank;
    return peer < rank ? peer : peer + comm.lsaSize - 1;
  }

  /// An addition of ours: the same context under our names. Made anew for each use: clang 22 at -O3
  /// crashes on gfx9 kernels that keep one inside a larger object.
  CCO_DEVICE native::Gda ours() const {
    return native::Gda(comm.native, contextId % contextCount(comm));
  }

 private:
  static CCO_DEVICE int rankInTeam(const ccoDevComm& comm) {
    switch (comm.gdaConnType) {
      case CCO_GDA_CONNECTION_FULL:
        return comm.rank;
      case CCO_GDA_CONNECTION_CROSSNODE:
        return comm.myNodeStart;
      case CCO_GDA_CONNECTION_RAIL:
        return comm.myNodeStart / comm.lsaSize;
      default:
        return 0;
    }
  }
  static CCO_DEVICE int teamSize(const ccoDevComm& comm) {
    switch (comm.gdaConnType) {
      case CCO_GDA_CONNECTION_FULL:
        return comm.worldSize;
      case CCO_GDA_CONNECTION_CROSSNODE:
        return comm.worldSize - comm.lsaSize + 1;
      case CCO_GDA_CONNECTION_RAIL:
        return comm.worldSize / comm.lsaSize;
      default:
        return 0;
    }
  }
  static CCO_DEVICE uint32_t contextCount(const ccoDevComm& comm) {
    return comm.ibgda.numQpPerPe <= 0 ? 1 : static_cast<uint32_t>(comm.ibgda.numQpPerPe);
  }
  template <ccoTeamMode TeamMode>
  CCO_DEVICE uint32_t worldPeer(int peer) const {
    return static_cast<uint32_t>(resolveWorldPeer<TeamMode>(peer));
  }
  template <ccoGdaThreadMode ThreadMode, typename Coop>
  static CCO_DEVICE uint32_t flagsFor(uint32_t optFlags) {
    static_assert(ThreadMode == ccoGdaThreadIndependent || std::is_same<Coop, ccoCoopThread>::value,
                  "ccoGdaThreadAggregate needs ccoCoopThread");
    return ((optFlags & ccoGdaOptFlagsAggregateRequests) != 0 ? native::kGdaAggregate : 0u) |
           (ThreadMode == ccoGdaThreadAggregate ? native::kGdaSamePeer : 0u);
  }
  template <typename Coop>
  static CCO_DEVICE void needsWarp() {
    static_assert(!std::is_same<Coop, ccoCoopThread>::value, "needs a warp or a block");
  }
};

}  // namespace cco
}  // namespace mori
