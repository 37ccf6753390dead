// Barriers: what anybody has put before, everybody sees after.
#include "cco/device/gda_barrier.h"
#include "tests/gpu/conformance_body.h"

namespace cco::device::conformance {
namespace {

CCO_DEVICE bool is_in_team(const DeviceComm& comm, Meeting meeting, uint32_t peer) {
  switch (meeting) {
    case Meeting::kLsa:
      return in_lsa_team(comm, peer);
    case Meeting::kRail:
      return peer % comm.lsa_size == comm.rank % comm.lsa_size;
    default:
      return true;
  }
}

/// Word `rank` of every member's window becomes `value`: by stores where they reach, else by GDA.
template <typename C>
CCO_DEVICE WaitResult tell(C coop, const Given& given, Meeting meeting, const Gda& gda,
                           uint64_t value, const Deadline& deadline) {
  const DeviceComm& comm = given.comm;
  const Place word = at(given.window, 8 * uint64_t{comm.rank});
  for (uint32_t peer = 0; peer < comm.world_size; ++peer) {
    if (!is_in_team(comm, meeting, peer)) continue;
    if (in_lsa_team(comm, peer)) {
      if (coop.is_leader()) device::put_value<uint64_t>(lsa_rank(comm, peer), word, value);
    } else {
      const WaitResult result =
          gda.put_value<uint64_t>(coop, peer, word, value, {deadline, NoSignal{}, kGdaAggregate});
      if (result.status != WaitStatus::kArrived) return result;
    }
  }
  // Ranks that hear of it through another than this one's signal.
  if (meeting == Meeting::kWorld) return gda.flush(coop, deadline);
  return WaitResult{WaitStatus::kArrived, kNoRank};
}

template <typename C>
CCO_DEVICE WaitResult meet_once(C coop, const Given& given, Meeting meeting, const Gda& gda,
                                const Deadline& deadline) {
  constexpr uint32_t kIndex = 1;  // Of two.
  switch (meeting) {
    case Meeting::kLsa:
      return LsaBarrier<C>(coop, given.comm, kIndex).sync(deadline);
    case Meeting::kWorld:
      return WorldBarrier<C>(coop, gda, kIndex).sync(deadline);
    default: {
      const GdaTeam team = meeting == Meeting::kRail ? GdaTeam::kRail : GdaTeam::kConnected;
      return GdaBarrier<C>(coop, gda, kIndex, team).sync(deadline);
    }
  }
}

template <typename C>
CCO_DEVICE void meet(C coop, const Given& given, Meeting meeting, uint64_t rounds) {
  const Deadline deadline = Deadline::after(given.comm, given.deadline_ns);
  const Findings findings(given);
  const Gda gda(given.comm, 0);
  bool good = true;
  for (uint64_t round = 1; round <= rounds && good; ++round) {
    good = findings.arrived(tell(coop, given, meeting, gda, round, deadline), 1) &&
           findings.arrived(meet_once(coop, given, meeting, gda, deadline), 2);
    for (uint32_t peer = 0; peer < given.comm.world_size; ++peer) {
      if (!good || !is_in_team(given.comm, meeting, peer)) continue;
      const uint64_t seen = *local_ptr<const uint64_t>(given.window, 8 * uint64_t{peer}, 8);
      findings.holds(seen == round, 3, uint64_t{peer} << 32 | seen);
    }
    // The words are read before anybody writes them again.
    good = good && findings.arrived(meet_once(coop, given, meeting, gda, deadline), 4);
  }
}

}  // namespace

CCO_KERNEL void meet_all(Given given, uint32_t meeting, uint64_t rounds) {
  meet(BlockCoop{}, given, static_cast<Meeting>(meeting), rounds);
}

CCO_KERNEL_TABLE(conformance_barrier, meet_all);

}  // namespace cco::device::conformance
