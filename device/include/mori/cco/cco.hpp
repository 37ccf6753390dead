// Source compatibility with MORI CCO (ROCm/mori, include/mori/cco/cco.hpp at 624002c8): the device
// side of LSA alone, so that kernels written for it recompile unchanged. Deliberate differences:
//
//   * Barriers release and acquire; a time-out is one answer for the whole group, not per thread.
//   * wait() and sync() without a time-out end when the group is aborted (a rank died), where
//   MORI's
//     spin for ever. They return nothing: the host learns of it from its next call.
//   * A cycle of `timeoutCycles` is taken as half a nanosecond, whatever the GPU's clock does.
//   * Barrier words are 64 bits wide, so is ccoLsaBarrierSession::epoch.
//   * ccoWindowDevice is cco_window_device and ccoDevComm ends with a cco_device_comm, so that a
//   kernel
//     may use both interfaces; both are larger than MORI's.
//   * Everything here is declared in plain C++ too, where host threads run it.
//   * ::cco is a namespace of ours: write mori::cco, or `using namespace mori::cco`, not
//     `using namespace mori` or an alias named cco.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cco/device/lsa.h"
#include "cco/device/platform.h"

#if !defined(BUILD_CCO_SDMA)
#define BUILD_CCO_SDMA 0
#endif
#if BUILD_CCO_SDMA
#error "BUILD_CCO_SDMA=1: ccoSdma is not part of this version; build without it"
#endif

struct ccoFabricHandle_t {
  unsigned char data[64];
};

namespace mori {
namespace core {
struct RdmaEndpointDevice;
}

namespace cco {

namespace native = ::cco::device;

// ---- Constants ----

constexpr uint32_t CCO_API_MAGIC = 0x0CC0AAAA;
constexpr uint32_t CCO_API_VERSION = 1;
constexpr int CCO_WINDOW_TABLE_SIZE = 32;

enum ccoProviderType {
  CCO_PROVIDER_UNKNOWN = 0,
  CCO_PROVIDER_MLX5 = 1,
  CCO_PROVIDER_BNXT = 2,
  CCO_PROVIDER_PSD = 3,
  CCO_PROVIDER_IBVERBS = 4,
};
enum ccoGdaConnectionType {
  CCO_GDA_CONNECTION_NONE = 0,
  CCO_GDA_CONNECTION_FULL = 1,
  CCO_GDA_CONNECTION_CROSSNODE = 2,
  CCO_GDA_CONNECTION_RAIL = 3,
};
enum ccoTeamMode { CCO_TEAM_WORLD = 0, CCO_TEAM_LSA = 1, CCO_TEAM_GDA = 2 };
enum ccoSdmaThreadMode : uint32_t { ccoSdmaThreadIndependent = 0, ccoSdmaThreadSameQueue = 1 };
enum ccoSdmaOptFlags : uint32_t {
  ccoSdmaOptFlagsDefault = 0,
  ccoSdmaOptFlagsAggregate = 1,
  ccoSdmaOptFlagsSignalPerCopy = 2,
};
enum ccoGdaThreadMode : uint32_t { ccoGdaThreadIndependent = 0, ccoGdaThreadAggregate = 1 };
enum ccoGdaOptFlags {
  ccoGdaOptFlagsDefault = 0,
  ccoGdaOptFlagsMaySkipCreditCheck = 1,
  ccoGdaOptFlagsAggregateRequests = 2,
};
enum ccoGdaSignalOp_t { ccoGdaSignalInc = 0, ccoGdaSignalAdd = 1 };

// ---- Structs, field names and order as MORI's ----

struct ccoUniqueId {
  char internal[128];
};

struct ccoTeam {
  int nRanks;
  int rank;  ///< -1: the caller is no member.
  int stride;
};
using ccoTeam_t = ccoTeam;

struct ccoIbgdaWin {
  uint32_t* peerRkeys;  ///< [worldSize]
  uint32_t lkey;
  uint32_t lsaSize;  ///< Ours, in what is padding in MORI's.
};

/// A cco_window_device under MORI's names. Kernels compute addresses from winBase and stride4G.
struct ccoWindowDevice {
  uint32_t abiVersion;
  uint32_t transports;
  char* winBase;  ///< In slot 0.
  uint32_t stride4G;
  int lsaRank;
  ccoIbgdaWin ibgdaWin;
  uint64_t sizeBytes;
  uint64_t generation;
  uint64_t* peerBases;
  uint64_t incarnation;
  uint64_t reserved[3];
};
using ccoWindow_t = ccoWindowDevice*;  ///< In memory the kernel can read.

struct ccoWindowTableNode {
  struct Entry {
    uintptr_t base;
    uintptr_t size;
    ccoWindowDevice* window;
  };
  Entry entries[CCO_WINDOW_TABLE_SIZE];
  ccoWindowTableNode* next;
};

struct ccoIbgdaContext {
  core::RdmaEndpointDevice* endpoints;
  int numQpPerPe;
  int signalCount;
  uint64_t* signalBuf;
  uint64_t* signalShadows;
  int counterCount;
  uint64_t* counterBuf;
};

struct ccoLsaBarrierHandle {
  uint32_t bufOffset;
  int nBarriers;  ///< 0: none.
};
struct ccoGdaBarrierHandle {
  uint32_t signal0;
  int nBarriers;
};

struct ccoSdmaQueueDeviceHandle;
struct ccoSdmaContext {
  uint32_t sdmaNumQueue;
  ccoSdmaQueueDeviceHandle** deviceHandles;
  uint64_t* signalBuf;
  uint64_t** peerSignalPtrs;
};

struct ccoDevComm {
  int rank;
  int worldSize;
  int lsaSize;
  int lsaRank;
  int myNodeStart;
  ccoGdaConnectionType gdaConnType;
  void* flatBase;
  size_t perRankSize;
  ccoWindowTableNode* windowTable;
  ccoWindowDevice* resourceWindow;
  ccoWindowDevice resourceWindow_inlined;
  ccoIbgdaContext ibgda;
  ccoLsaBarrierHandle lsaBarrier;
  ccoGdaBarrierHandle railGdaBarrier;
  ccoLsaBarrierHandle hybridLsaBarrier;
  ccoGdaBarrierHandle hybridRailGdaBarrier;
  ccoSdmaContext sdma;
  cco_device_comm native;
};
using ccoDevComm_t = ccoDevComm*;

struct ccoDevResourceRequirements {
  ccoDevResourceRequirements* next;
  size_t bufferSize;
  size_t bufferAlign;
  uint32_t* outBufferHandle;
  int gdaSignalCount;
  int gdaCounterCount;
  uint32_t* outGdaSignalStart;
  uint32_t* outGdaCounterStart;
};

struct ccoDevCommRequirements {
  size_t size;
  uint32_t magic;
  uint32_t version;
  ccoDevResourceRequirements* resourceRequirementsList;
  ccoGdaConnectionType gdaConnectionType;
  int gdaContextCount;
  int gdaSignalCount;
  int gdaCounterCount;
  int gdaQueueDepth;
  int gdaTrafficClass;
  int lsaBarrierCount;
  int railGdaBarrierCount;
  int sdmaQueueCount;
  int barrierCount;
};
#define CCO_DEV_COMM_REQUIREMENTS_INITIALIZER                                                    \
  {                                                                                              \
    sizeof(::mori::cco::ccoDevCommRequirements), ::mori::cco::CCO_API_MAGIC,                     \
        ::mori::cco::CCO_API_VERSION, nullptr, ::mori::cco::CCO_GDA_CONNECTION_CROSSNODE, 4, 16, \
        16, 0, -1, 0, 0, 0, 0                                                                    \
  }

static_assert(sizeof(ccoWindowDevice) == sizeof(cco_window_device), "one window, two names");
static_assert(offsetof(ccoWindowDevice, winBase) == offsetof(cco_window_device, win_base), "");
static_assert(offsetof(ccoWindowDevice, stride4G) == offsetof(cco_window_device, stride_4g), "");
static_assert(offsetof(ccoWindowDevice, lsaRank) == offsetof(cco_window_device, lsa_rank), "");
static_assert(offsetof(ccoWindowDevice, ibgdaWin.peerRkeys) ==
                  offsetof(cco_window_device, remote_keys),
              "");
static_assert(offsetof(ccoWindowDevice, ibgdaWin.lkey) == offsetof(cco_window_device, local_key),
              "");
static_assert(offsetof(ccoWindowDevice, ibgdaWin.lsaSize) == offsetof(cco_window_device, lsa_size),
              "");
static_assert(offsetof(ccoWindowDevice, sizeBytes) == offsetof(cco_window_device, size_bytes), "");
static_assert(offsetof(ccoWindowDevice, generation) == offsetof(cco_window_device, generation), "");
static_assert(offsetof(ccoWindowDevice, peerBases) == offsetof(cco_window_device, peer_bases), "");
static_assert(offsetof(ccoWindowDevice, incarnation) == offsetof(cco_window_device, incarnation),
              "");
static_assert(std::is_trivially_copyable<ccoDevComm>::value, "kernel argument");

/// MORI's view of a communicator. The caller adds what lies in device memory of its own:
/// windowTable and resourceWindow.
inline ccoDevComm ccoDevCommFromNative(const cco_device_comm& comm) {
  ccoDevComm result{};
  result.rank = static_cast<int>(comm.rank);
  result.worldSize = static_cast<int>(comm.world_size);
  result.lsaSize = static_cast<int>(comm.lsa_size);
  result.lsaRank = static_cast<int>(comm.lsa_rank);
  result.myNodeStart = static_cast<int>(comm.lsa_first);
  result.flatBase = reinterpret_cast<void*>(comm.flat_base);
  result.perRankSize = comm.slot_bytes;
  __builtin_memcpy(&result.resourceWindow_inlined, &comm.control, sizeof(comm.control));
  result.lsaBarrier = {static_cast<uint32_t>(comm.barrier_offset),
                       static_cast<int>(comm.barrier_count)};
  result.native = comm;
  return result;
}

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

// ---- Windows ----

/// The window that holds `pointer`, of those that were registered when the communicator was made.
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
        barrier_(typename Coop::Native{}, comm->native, index) {
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
  CCO_DEVICE int finish(const native::Deadline& deadline) {
    const native::WaitResult result = barrier_.wait(deadline);
    epoch = barrier_.epoch();
    return result.status == native::WaitStatus::kArrived ? 0 : 1;
  }

  native::LsaBarrier<typename Coop::Native> barrier_;
};

}  // namespace cco
}  // namespace mori
