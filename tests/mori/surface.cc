// The host surface of MORI CCO, compiled as plain C++: names, types, values, defaults.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mori/cco/cco.hpp"

namespace {

namespace mc = mori::cco;

template <typename T, typename U>
constexpr bool kSame = std::is_same<T, U>::value;

// Functions can be called through pointers of MORI's types, and the overloads told apart.
struct Calls {
  int (*unique_id)(mc::ccoUniqueId*) = &mc::ccoGetUniqueId;
  int (*create)(const mc::ccoUniqueId&, int, int, size_t, mc::ccoComm**) = &mc::ccoCommCreate;
  int (*destroy)(mc::ccoComm*) = &mc::ccoCommDestroy;
  int (*alloc)(mc::ccoComm*, size_t, void**) = &mc::ccoMemAlloc;
  int (*free)(mc::ccoComm*, void*) = &mc::ccoMemFree;
  int (*import)(mc::ccoComm*, void*, size_t, void**) = &mc::ccoMemImport;
  int (*fresh)(mc::ccoComm*, size_t, mc::ccoWindow_t*, void**) = &mc::ccoWindowRegister;
  int (*given)(mc::ccoComm*, void*, size_t, mc::ccoWindow_t*) = &mc::ccoWindowRegister;
  int (*foreign)(mc::ccoComm*, void*, size_t, mc::ccoWindow_t*, void**) = &mc::ccoWindowRegister;
  int (*deregister)(mc::ccoComm*, mc::ccoWindow_t) = &mc::ccoWindowDeregister;
  void* (*peer)(mc::ccoComm*, void*, int) = &mc::ccoGetPeerPtr;
  int (*dev_create)(mc::ccoComm*, const mc::ccoDevCommRequirements*,
                    mc::ccoDevComm*) = &mc::ccoDevCommCreate;
  int (*dev_destroy)(mc::ccoComm*, mc::ccoDevComm*) = &mc::ccoDevCommDestroy;
  mc::ccoDevComm* (*copy)(const mc::ccoDevComm*) = &mc::ccoDevCommCopyToDevice;
  void (*free_copy)(mc::ccoDevComm*) = &mc::ccoDevCommFreeDeviceCopy;
  int (*barrier)(mc::ccoComm*) = &mc::ccoBarrierAll;
};
static_assert(sizeof(Calls) == 16 * sizeof(void (*)()), "sixteen functions");

// Values.
static_assert(mc::CCO_API_MAGIC == 0x0CC0AAAA && mc::CCO_API_VERSION == 1, "");
static_assert(mc::CCO_WINDOW_TABLE_SIZE == 32, "");
static_assert(mc::CCO_PROVIDER_UNKNOWN == 0 && mc::CCO_PROVIDER_MLX5 == 1, "");
static_assert(mc::CCO_PROVIDER_BNXT == 2 && mc::CCO_PROVIDER_PSD == 3, "");
static_assert(mc::CCO_PROVIDER_IBVERBS == 4, "");
static_assert(mc::CCO_GDA_CONNECTION_NONE == 0 && mc::CCO_GDA_CONNECTION_FULL == 1, "");
static_assert(mc::CCO_GDA_CONNECTION_CROSSNODE == 2 && mc::CCO_GDA_CONNECTION_RAIL == 3, "");
static_assert(mc::CCO_TEAM_WORLD == 0 && mc::CCO_TEAM_LSA == 1 && mc::CCO_TEAM_GDA == 2, "");
static_assert(mc::ccoSdmaThreadIndependent == 0 && mc::ccoSdmaThreadSameQueue == 1, "");
static_assert(mc::ccoSdmaOptFlagsDefault == 0 && mc::ccoSdmaOptFlagsAggregate == 1, "");
static_assert(mc::ccoSdmaOptFlagsSignalPerCopy == 2, "");
static_assert(mc::ccoGdaThreadIndependent == 0 && mc::ccoGdaThreadAggregate == 1, "");
static_assert(mc::ccoGdaOptFlagsDefault == 0 && mc::ccoGdaOptFlagsMaySkipCreditCheck == 1, "");
static_assert(mc::ccoGdaOptFlagsAggregateRequests == 2, "");
static_assert(mc::ccoGdaSignalInc == 0 && mc::ccoGdaSignalAdd == 1, "");

// What programs read and fill by name.
static_assert(sizeof(mc::ccoUniqueId) == 128 && sizeof(ccoFabricHandle_t) == 64, "");
static_assert(kSame<mc::ccoTeam, mc::ccoTeam_t>, "");
static_assert(kSame<mc::ccoWindow_t, mc::ccoWindowDevice*>, "");
static_assert(kSame<mc::ccoDevComm_t, mc::ccoDevComm*>, "");
static_assert(kSame<decltype(mc::ccoWindowDevice::winBase), char*>, "");
static_assert(kSame<decltype(mc::ccoWindowDevice::stride4G), uint32_t>, "");
static_assert(kSame<decltype(mc::ccoWindowDevice::lsaRank), int>, "");
static_assert(kSame<decltype(mc::ccoWindowDevice::ibgdaWin.peerRkeys), uint32_t*>, "");
static_assert(kSame<decltype(mc::ccoWindowDevice::ibgdaWin.lkey), uint32_t>, "");
static_assert(kSame<decltype(mc::ccoWindowTableNode::next), mc::ccoWindowTableNode*>, "");
static_assert(kSame<decltype(mc::ccoWindowTableNode::Entry::base), uintptr_t>, "");
static_assert(std::is_trivially_copyable<mc::ccoDevComm>::value, "by value");
static_assert(kSame<decltype(mc::ccoDevComm::gdaConnType), mc::ccoGdaConnectionType>, "");
static_assert(kSame<decltype(mc::ccoDevComm::resourceWindow_inlined), mc::ccoWindowDevice>, "");
static_assert(kSame<decltype(mc::ccoDevComm::hybridLsaBarrier), mc::ccoLsaBarrierHandle>, "");
static_assert(kSame<decltype(mc::ccoDevComm::hybridRailGdaBarrier), mc::ccoGdaBarrierHandle>, "");
static_assert(kSame<decltype(mc::ccoIbgdaContext::signalShadows), uint64_t*>, "");
static_assert(kSame<decltype(mc::ccoSdmaContext::peerSignalPtrs), uint64_t**>, "");

constexpr mc::ccoDevCommRequirements kDefaults = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
static_assert(kDefaults.size == sizeof kDefaults && kDefaults.magic == mc::CCO_API_MAGIC, "");
static_assert(kDefaults.version == mc::CCO_API_VERSION, "");
static_assert(kDefaults.resourceRequirementsList == nullptr, "");
static_assert(kDefaults.gdaConnectionType == mc::CCO_GDA_CONNECTION_CROSSNODE, "");
static_assert(kDefaults.gdaContextCount == 4 && kDefaults.gdaSignalCount == 16, "");
static_assert(kDefaults.gdaCounterCount == 16 && kDefaults.gdaQueueDepth == 0, "");
static_assert(kDefaults.gdaTrafficClass == -1 && kDefaults.lsaBarrierCount == 0, "");
static_assert(kDefaults.railGdaBarrierCount == 0 && kDefaults.sdmaQueueCount == 0, "");
static_assert(kDefaults.barrierCount == 0, "");

}  // namespace
