// Barriers beyond one node: of those that GDA connects, and of the whole group in two stages.
//
// As LsaBarrier: construct, use, destroy; what must last lies in memory in between. One index
// serves one group of threads at a time on every rank, and all ranks make the same sequence of
// arrivals on it. What a rank has put on other contexts is not covered: flush those first.
#pragma once

#include "cco/device/gda.h"
#include "cco/device/lsa.h"

namespace cco::device {

namespace impl {

/// One group of threads' signals to the same group on other ranks. Every sender has a signal of its
/// own at every receiver, which counts rounds, so no round can be taken for another.
template <CCO_COOP C>
class GdaExchange {
 public:
  /// The ranks `stride` apart; `signals` of this exchange begin at index `signal_first`, by
  /// rank / `ranks_per_signal` of the sender. `word`: the offset of 8 bytes that last.
  struct Team {
    uint32_t stride;
    bool connected_only;  ///< Others are no members; else they are, and refused.
    uint32_t ranks_per_signal;
    uint32_t signal_first;
    uint64_t word;
  };
  CCO_DEVICE GdaExchange(C coop, const Gda& gda, const Team& team, bool sound);
  CCO_DEVICE ~GdaExchange();
  GdaExchange(const GdaExchange&) = delete;
  GdaExchange& operator=(const GdaExchange&) = delete;

  CCO_DEVICE WaitResult arrive(const Deadline& deadline);
  CCO_DEVICE WaitResult wait(const Deadline& deadline);
  CCO_DEVICE uint64_t epoch() const { return epoch_; }
  CCO_DEVICE bool sound() const { return sound_; }

 private:
  static constexpr uint32_t kToldBits = 16;  // More than CCO_MAX_RANKS.

  CCO_DEVICE uint32_t peer(uint32_t step) const;
  CCO_DEVICE uint32_t signal_of(uint32_t sender) const {
    return team_.signal_first + sender / team_.ranks_per_signal;
  }

  C coop_;
  const Gda& gda_;
  const Team team_;
  const bool sound_;
  uint64_t epoch_ = 0;  // Rounds this rank has completed.
  uint32_t told_ = 0;   // Peers that know of this round's arrival; the leader's.
};

}  // namespace impl

/// Who meets in a GdaBarrier.
enum class GdaTeam : uint32_t {
  kRail,       ///< The ranks of all nodes with this LSA rank.
  kConnected,  ///< All that this rank's GDA is connected to, and itself.
};

/// A barrier by GDA signals, on one of the communicator's rail barriers. All uses of an index are
/// of one team.
///
/// Callers   all threads of the group it was built with, converged, for every call
/// Ordering  arrive() releases and wait() acquires, system scope. What the ranks have put to each
///           other on this context before is there
template <CCO_COOP C>
class GdaBarrier {
 public:
  CCO_DEVICE GdaBarrier(C coop, const Gda& gda, uint32_t index, GdaTeam team = GdaTeam::kRail);

  /// Blocking  while a queue is full
  /// Returns   as Gda's posts; kRefused also if GDA leaves out one of the team. After kTimedOut it
  ///           may be called again and goes on where it stopped
  CCO_DEVICE WaitResult arrive(const Deadline& deadline) { return exchange_.arrive(deadline); }

  /// Blocking  until every rank has arrived, `deadline`, or a peer is lost
  /// Returns   one result for the group. After kTimedOut, which names the lowest missing rank, it
  ///           may be called again: this rank has arrived, and stays so
  CCO_DEVICE WaitResult wait(const Deadline& deadline) { return exchange_.wait(deadline); }

  /// arrive(), then wait(). After kTimedOut it goes on with the same round.
  CCO_DEVICE WaitResult sync(const Deadline& deadline) {
    const WaitResult result = arrive(deadline);
    return result.status == WaitStatus::kArrived ? wait(deadline) : result;
  }

  /// Rounds that this rank has completed on this index.
  CCO_DEVICE uint64_t epoch() const { return exchange_.epoch(); }

 private:
  impl::GdaExchange<C> exchange_;
};

/// A barrier of the whole group: the LSA team of each node, then each of its ranks along its rail.
/// A rank that hears from its rail has heard from all ranks of those nodes, for they had met
/// before. Needs GDA connected along the rails, but for one node.
///
/// Callers, Ordering: as GdaBarrier
template <CCO_COOP C>
class WorldBarrier {
 public:
  CCO_DEVICE WorldBarrier(C coop, const Gda& gda, uint32_t index);

  /// Blocking  until the group's earlier stores have been performed
  CCO_DEVICE void arrive();

  /// Blocking  until every rank has arrived, `deadline`, or a peer is lost
  /// Returns   one result for the group. kTimedOut names the lowest rank that is missing in the
  ///           stage that was not passed; wait() may be called again
  CCO_DEVICE WaitResult wait(const Deadline& deadline);

  CCO_DEVICE WaitResult sync(const Deadline& deadline) {
    arrive();
    return wait(deadline);
  }

  CCO_DEVICE uint64_t epoch() const { return rail_.epoch(); }

 private:
  C coop_;
  const Gda& gda_;
  const uint32_t index_;
  // One round behind the LSA barrier when a node has met and its rails have not.
  impl::GdaExchange<C> rail_;
};

}  // namespace cco::device

#include "cco/device/impl/gda_barrier_impl.h"
