// Rank arithmetic. "World" ranks count the group, "LSA" ranks its members on this node.
#pragma once

#include "cco/device/abi.h"
#include "cco/device/platform.h"

namespace cco::device {

constexpr uint32_t kNoRank = 0xffffffffu;

/// World rank of an LSA rank.
CCO_HOST_DEVICE uint32_t world_rank(const DeviceComm& comm, uint32_t lsa_rank) {
  return comm.lsa_first + lsa_rank;
}

/// Whether loads and stores reach this world rank.
CCO_HOST_DEVICE bool in_lsa_team(const DeviceComm& comm, uint32_t world_rank) {
  return world_rank - comm.lsa_first <
         comm.lsa_size;  // Below lsa_first the difference wraps: large.
}

/// LSA rank of a world rank; kNoRank outside the team.
CCO_HOST_DEVICE uint32_t lsa_rank(const DeviceComm& comm, uint32_t world_rank) {
  return in_lsa_team(comm, world_rank) ? world_rank - comm.lsa_first : kNoRank;
}

/// The `step`-th LSA rank after this one, cyclically: a visiting order in which no two ranks meet
/// at the same peer at the same time.
CCO_HOST_DEVICE uint32_t lsa_rank_after(const DeviceComm& comm, uint32_t step) {
  return (comm.lsa_rank + step) % comm.lsa_size;
}

}  // namespace cco::device
