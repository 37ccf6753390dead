// Constants and structs of MORI CCO: names, values, field names and order. Sizes are ours, see
// ../README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cco/device/abi.h"

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

/// In front of MORI's fields is ours, so that a pointer to the one is a pointer to the other.
struct ccoDevComm {
  cco_device_comm native;
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
static_assert(offsetof(ccoDevComm, native) == 0, "one address, two communicators");

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

}  // namespace cco
}  // namespace mori
