// The slice of AMD's libhsakmt that makes user queues, declared by us: no vendor header is needed
// to build. Facts: ROCR-Runtime, libhsakmt/include/hsakmt/hsakmt.h and hsakmttypes.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/runtime/dynamic_library.h"

namespace cco::kfd {

using Result = int;  ///< HSAKMT_STATUS
inline constexpr Result kSuccess = 0;
inline constexpr Result kNoMemory = 6;  ///< Also: no free queue on that engine.

inline constexpr int kQueueSdmaByEngineId = 6;
inline constexpr int kPriorityMaximum = 3;
inline constexpr uint32_t kWholeEngine = 100;  ///< Per cent.

/// HsaMemFlags: NonPaged, HostAccess, ExecuteAccess, NoNUMABind, Uncached; pages of 4 KiB.
inline constexpr uint32_t kRingMemory = 1u << 0 | 1u << 6 | 1u << 12 | 1u << 16 | 1u << 17;

/// HsaQueueResource. The last four are addresses.
struct QueueResource {
  uint64_t id;
  uint64_t doorbell;
  uint64_t write_index;
  uint64_t read_index;
  uint64_t error_reason;
};
static_assert(sizeof(QueueResource) == 40 && offsetof(QueueResource, read_index) == 24);

/// HsaMemFlags, passed by value.
struct MemoryFlags {
  uint32_t value;
};

// X(field, name, signature). All must resolve.
#define CCO_KFD_CALLS(X)                                                                         \
  X(open, hsaKmtOpenKFD, Result())                                                               \
  X(close, hsaKmtCloseKFD, Result())                                                             \
  X(allocate, hsaKmtAllocMemory,                                                                 \
    Result(uint32_t node, uint64_t bytes, MemoryFlags flags, void** address))                    \
  X(free, hsaKmtFreeMemory, Result(void* address, uint64_t bytes))                               \
  X(map, hsaKmtMapMemoryToGPU, Result(void* address, uint64_t bytes, uint64_t* gpu_address))     \
  X(unmap, hsaKmtUnmapMemoryToGPU, Result(void* address))                                        \
  X(create_queue, hsaKmtCreateQueueExt,                                                          \
    Result(uint32_t node, int type, uint32_t percent, int priority, uint32_t engine, void* ring, \
           uint64_t ring_bytes, void* event, QueueResource*))                                    \
  X(destroy_queue, hsaKmtDestroyQueue, Result(uint64_t id))

struct Api {
#define CCO_DECLARE(field, name, ...) LibraryCall<__VA_ARGS__> field;
  CCO_KFD_CALLS(CCO_DECLARE)
#undef CCO_DECLARE
};

}  // namespace cco::kfd
