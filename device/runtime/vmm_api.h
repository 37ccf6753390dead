// The slice of the CUDA driver API and of the HIP runtime API that cco uses, declared by us: no
// vendor header is needed to build. HIP follows CUDA so closely that one declaration serves both;
// tests/contract/abi_*.cc prove it against the vendors' headers (cuda.h 13.0; HIP 5.7, 6.4, 7.2).
//
// ROCm before 5.7 orders hipMemAllocationProp differently, so hip_driver.cc refuses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/runtime/dynamic_library.h"

namespace cco::vmm {

using Result = int;  ///< CUresult, hipError_t
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kPeerAccessUnsupported = 217;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotSupported = 801;

inline constexpr int kAllocationPinned = 1;
inline constexpr int kHandlePosixFd = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAccessRead = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kGranularityRecommended = 1;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterMapped = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kDefaultPriority = 0;
inline constexpr int kHighestPriority = -100;  ///< Both libraries take the nearest they have.
inline constexpr unsigned kEventDefault = 0;

using Handle = uint64_t;   ///< CUmemGenericAllocationHandle, hipMemGenericAllocationHandle_t
using Address = uint64_t;  ///< CUdeviceptr, hipDeviceptr_t
struct StreamTag;
struct EventTag;
struct ModuleTag;
struct FunctionTag;
using Stream = StreamTag*;
using Event = EventTag*;
using Module = ModuleTag*;
using Function = FunctionTag*;

struct Location {
  int type;
  int id;  ///< Device ordinal.
};
struct AllocationProp {
  int type;
  int requested_handle_types;
  Location location;
  void* win32_metadata;
  uint8_t compression_type;
  uint8_t gpu_direct_rdma_capable;
  uint16_t usage;
  uint8_t reserved[4];
};
struct AccessDesc {
  Location location;
  int flags;
};
struct Uuid {
  char bytes[16];
};
static_assert(sizeof(AllocationProp) == 32 && offsetof(AllocationProp, location) == 8 &&
              offsetof(AllocationProp, gpu_direct_rdma_capable) == 25);
static_assert(sizeof(AccessDesc) == 12 && sizeof(Uuid) == 16);

// X(field, name in libcuda, name in libamdhip64, signature). All must resolve.
#define CCO_VMM_CALLS(X)                                                                          \
  X(initialise, cuInit, hipInit, Result(unsigned flags))                                          \
  X(library_version, cuDriverGetVersion, hipRuntimeGetVersion, Result(int*))                      \
  X(device_count, cuDeviceGetCount, hipGetDeviceCount, Result(int*))                              \
  X(device_attribute, cuDeviceGetAttribute, hipDeviceGetAttribute,                                \
    Result(int* value, int attribute, int device))                                                \
  X(device_uuid, cuDeviceGetUuid_v2, hipDeviceGetUuid, Result(Uuid*, int device))                 \
  X(device_pci, cuDeviceGetPCIBusId, hipDeviceGetPCIBusId, Result(char*, int length, int device)) \
  X(device_name, cuDeviceGetName, hipDeviceGetName, Result(char*, int length, int device))        \
  X(device_total, cuDeviceTotalMem_v2, hipDeviceTotalMem, Result(size_t*, int device))            \
  X(can_access_peer, cuDeviceCanAccessPeer, hipDeviceCanAccessPeer,                               \
    Result(int* can, int device, int peer))                                                       \
  X(granularity, cuMemGetAllocationGranularity, hipMemGetAllocationGranularity,                   \
    Result(size_t*, const AllocationProp*, int option))                                           \
  X(create, cuMemCreate, hipMemCreate,                                                            \
    Result(Handle*, size_t, const AllocationProp*, unsigned long long flags))                     \
  X(release, cuMemRelease, hipMemRelease, Result(Handle))                                         \
  X(export_handle, cuMemExportToShareableHandle, hipMemExportToShareableHandle,                   \
    Result(void*, Handle, int handle_type, unsigned long long flags))                             \
  X(import_handle, cuMemImportFromShareableHandle, hipMemImportFromShareableHandle,               \
    Result(Handle*, void*, int handle_type))                                                      \
  X(reserve, cuMemAddressReserve, hipMemAddressReserve,                                           \
    Result(Address*, size_t, size_t alignment, Address hint, unsigned long long flags))           \
  X(free_range, cuMemAddressFree, hipMemAddressFree, Result(Address, size_t))                     \
  X(map, cuMemMap, hipMemMap,                                                                     \
    Result(Address, size_t, size_t offset, Handle, unsigned long long flags))                     \
  X(unmap, cuMemUnmap, hipMemUnmap, Result(Address, size_t))                                      \
  X(set_access, cuMemSetAccess, hipMemSetAccess,                                                  \
    Result(Address, size_t, const AccessDesc*, size_t count))                                     \
  X(stream_create, cuStreamCreateWithPriority, hipStreamCreateWithPriority,                       \
    Result(Stream*, unsigned flags, int priority))                                                \
  X(stream_destroy, cuStreamDestroy_v2, hipStreamDestroy, Result(Stream))                         \
  X(stream_synchronize, cuStreamSynchronize, hipStreamSynchronize, Result(Stream))                \
  X(event_create, cuEventCreate, hipEventCreateWithFlags, Result(Event*, unsigned flags))         \
  X(event_destroy, cuEventDestroy_v2, hipEventDestroy, Result(Event))                             \
  X(event_record, cuEventRecord, hipEventRecord, Result(Event, Stream))                           \
  X(event_elapsed, cuEventElapsedTime, hipEventElapsedTime, Result(float*, Event, Event))         \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync,                                     \
    Result(Address, const void*, size_t, Stream))                                                 \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync,                                       \
    Result(void*, Address, size_t, Stream))                                                       \
  X(copy_on_device, cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync,                                     \
    Result(Address, Address, size_t, Stream))                                                     \
  X(write_word, cuStreamWriteValue64_v2, hipStreamWriteValue64,                                   \
    Result(Stream, Address, uint64_t value, unsigned flags))                                      \
  X(fill, cuMemsetD8Async, hipMemsetD8Async, Result(Address, unsigned char, size_t, Stream))      \
  X(host_register, cuMemHostRegister_v2, hipHostRegister, Result(void*, size_t, unsigned flags))  \
  X(host_unregister, cuMemHostUnregister, hipHostUnregister, Result(void*))                       \
  X(host_address, cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer,                          \
    Result(Address*, void*, unsigned flags))                                                      \
  X(module_load, cuModuleLoadData, hipModuleLoadData, Result(Module*, const void* image))         \
  X(module_unload, cuModuleUnload, hipModuleUnload, Result(Module))                               \
  X(module_function, cuModuleGetFunction, hipModuleGetFunction,                                   \
    Result(Function*, Module, const char* name))                                                  \
  X(launch, cuLaunchKernel, hipModuleLaunchKernel,                                                \
    Result(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, \
           Stream, void** arguments, void** extra))

struct Api {
#define CCO_DECLARE(field, cuda, hip, ...) LibraryCall<__VA_ARGS__> field;
  CCO_VMM_CALLS(CCO_DECLARE)
#undef CCO_DECLARE
};

}  // namespace cco::vmm
