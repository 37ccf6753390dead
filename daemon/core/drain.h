// Taking a GPU out of service: what each one is at.
//
//   serving -> draining   an operator asks; who is there is told, and nothing new begins
//   draining -> drained   nobody is left, or the deadline has passed and what was left is revoked
//   drained -> returning  undrain, where another process must open the GPU; elsewhere at once
//   returning -> serving  that process
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/ids.h"
#include "daemon/ports/executor.h"

namespace cco::memd {

enum class GpuService { kServing, kDraining, kDrained, kReturning };

struct GpuDrain {
  GpuService service = GpuService::kDraining;  // Or kDrained.
  TimePoint deadline;                          // Of kDraining.
  TimerId timer{};
};

/// Of GPUs that are not serving, by index.
using GpuDrains = std::map<int, GpuDrain>;

/// A session of a group that has memory on a GPU.
struct GpuUser {
  SessionId session{};
  GroupId group{};
  uint32_t rank_count = 0;  // Of its ranks, on that GPU.
  uint64_t bytes = 0;       // Of the group's slabs there, revoked ones included.
};

}  // namespace cco::memd
