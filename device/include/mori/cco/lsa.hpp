// Windows by load and store, and the barrier of the LSA team.
#pragma once

#include "cco/device/lsa.h"
#include "mori/cco/teams.hpp"

namespace mori {
namespace cco {

// ---- Windows ----

/// The window that holds `pointer`; null: none. It knows the windows of the moment, also those that
/// are younger than the communicator.
CCO_DEVICE ccoWindow_t findWindow(ccoDevComm* comm, const void* pointer) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  for (const ccoWindowTableNode* node = comm->windowTable; node != nullptr; node = node->next) {
    for (const ccoWindowTableNode::Entry& entry : node->entries) {
      if (entry.window != nullptr && address - entry.base < entry.size) return entry.window;
    }
  }
  return nullptr;
}

CCO_DEVICE void* ccoGetLsaPeerPtr(ccoWindow_t window, int peerLsaRank, size_t offset = 0) {
  return native::peer_ptr(*reinterpret_cast<const cco_window_device*>(window),
                          static_cast<uint32_t>(peerLsaRank), offset);
}
CCO_DEVICE void* ccoGetLocalPtr(ccoWindow_t window, size_t offset = 0) {
  return ccoGetLsaPeerPtr(window, window->lsaRank, offset);
}

// ---- Barrier ----

/// Of the LSA team; LsaBarrier of cco/device/lsa.h under MORI's names. One object at a time per
/// index.
template <typename Coop>
struct ccoLsaBarrierSession {
  Coop coop;
  ccoTeam_t team;
  ccoDevComm_t comm;
  ccoLsaBarrierHandle handle;
  uint64_t epoch;  ///< Rounds completed.
  uint32_t index;

  CCO_DEVICE ccoLsaBarrierSession(Coop coop, ccoDevComm_t comm, ccoTeam_t team,
                                  ccoLsaBarrierHandle handle, uint32_t index)
      : coop(coop),
        team(team),
        comm(comm),
        handle(handle),
        epoch(0),
        index(index),
        barrier_(typename Coop::Native{}, comm->native, nativeIndex(*comm, handle, index)) {
    epoch = barrier_.epoch();
  }

  CCO_DEVICE void arrive(Coop) { barrier_.arrive(); }
  CCO_DEVICE void wait(Coop) { finish(native::Deadline::after(comm->native, ~uint64_t{0})); }
  CCO_DEVICE void sync(Coop group) {
    arrive(group);
    wait(group);
  }

  /// 0: all have arrived. 1: time-out, or a rank was lost; the same for all threads.
  CCO_DEVICE int wait(Coop, uint64_t timeoutCycles) {
    return finish(native::Deadline::after(comm->native, timeoutCycles / 2));
  }
  CCO_DEVICE int sync(Coop group, uint64_t timeoutCycles) {
    arrive(group);
    return wait(group, timeoutCycles);
  }

 private:
  /// The communicator's barriers are one row, of which a handle names a part.
  static CCO_DEVICE uint32_t nativeIndex(const ccoDevComm& comm, ccoLsaBarrierHandle handle,
                                         uint32_t index) {
    CCO_DEVICE_CHECK(index < static_cast<uint32_t>(handle.nBarriers),
                     "barrier index out of its handle's range", index, handle.nBarriers);
    const uint32_t offset = handle.bufOffset - static_cast<uint32_t>(comm.native.barrier_offset);
    // Most programs have one part: no division for them.
    return offset == 0 ? index : offset / (8 * (comm.native.lsa_size + 1)) + index;
  }
  CCO_DEVICE int finish(const native::Deadline& deadline) {
    const native::WaitResult result = barrier_.wait(deadline);
    epoch = barrier_.epoch();
    return result.status == native::WaitStatus::kArrived ? 0 : 1;
  }

  native::LsaBarrier<typename Coop::Native> barrier_;
};

}  // namespace cco
}  // namespace mori
