// Who calls, and rank arithmetic.
#pragma once

#include "cco/device/coop.h"
#include "mori/cco/types.hpp"

namespace mori {
namespace cco {

// ---- Groups of threads ----

struct ccoCoopThread {
  using Native = native::ThreadCoop;
  CCO_DEVICE int thread_rank() const { return 0; }
  CCO_DEVICE int size() const { return 1; }
  CCO_DEVICE void sync() const {}
};
struct ccoCoopWarp {
  using Native = native::WarpCoop;
  CCO_DEVICE int thread_rank() const { return static_cast<int>(Native{}.thread_rank()); }
  CCO_DEVICE int size() const { return static_cast<int>(Native{}.size()); }
  CCO_DEVICE void sync() const { Native{}.sync(); }
};
struct ccoCoopBlock {
  using Native = native::BlockCoop;
  CCO_DEVICE int thread_rank() const { return static_cast<int>(Native{}.thread_rank()); }
  CCO_DEVICE int size() const { return static_cast<int>(Native{}.size()); }
  CCO_DEVICE void sync() const { Native{}.sync(); }
};

// ---- Teams ----

CCO_HOST_DEVICE ccoTeam ccoTeamWorld(const ccoDevComm& c) { return {c.worldSize, c.rank, 1}; }
CCO_HOST_DEVICE ccoTeam ccoTeamLsa(const ccoDevComm& c) { return {c.lsaSize, c.lsaRank, 1}; }
/// All ranks of other nodes.
CCO_HOST_DEVICE ccoTeam ccoTeamCrossNode(const ccoDevComm& c) {
  return {c.worldSize - c.lsaSize, -1, 1};
}
/// The ranks of other nodes with this LSA rank.
CCO_HOST_DEVICE ccoTeam ccoTeamRail(const ccoDevComm& c) {
  return {c.worldSize / c.lsaSize - 1, -1, c.lsaSize};
}
CCO_HOST_DEVICE int ccoTeamRankToWorld(const ccoDevComm& c, ccoTeam team, int teamRank) {
  return c.rank + (teamRank - team.rank) * team.stride;
}
CCO_HOST_DEVICE int ccoCrossNodeTeamRankToWorld(const ccoDevComm& c, int teamRank) {
  return teamRank < c.myNodeStart ? teamRank : teamRank + c.lsaSize;
}
CCO_HOST_DEVICE int ccoRailTeamRankToWorld(const ccoDevComm& c, int teamRank) {
  const int node = teamRank < c.myNodeStart / c.lsaSize ? teamRank : teamRank + 1;
  return node * c.lsaSize + c.lsaRank;
}
CCO_HOST_DEVICE int ccoTeamRankToGdaRank(const ccoDevComm& c, ccoTeam team, int teamRank) {
  if (team.rank >= 0) return ccoTeamRankToWorld(c, team, teamRank);
  return team.stride == 1 ? ccoCrossNodeTeamRankToWorld(c, teamRank)
                          : ccoRailTeamRankToWorld(c, teamRank);
}

}  // namespace cco
}  // namespace mori
