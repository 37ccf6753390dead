// Goal    what vmm_api.h and hip_api.h declare is what ROCm's headers declare, in every release
//         from 5.7 on.
// Method  compile only: sizes, offsets, values, and every function's parameters.
#include "device/runtime/hip_api.h"
#include "tests/contract/abi_check.h"

// Last: it renames hipGetDeviceProperties by a macro. The blank line keeps the order.

#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

namespace cco {

#define CCO_CHECK(field, cuda_name, hip_name, ...) CCO_SAME_FUNCTION(hip_name, vmm::Api, field)
CCO_VMM_CALLS(CCO_CHECK)
#undef CCO_CHECK
#define CCO_CHECK(name, ...) CCO_SAME_FUNCTION(name, hip::Api, name)
CCO_HIP_CALLS(CCO_CHECK)
#if HIP_VERSION >= 60000000
CCO_HIP_OPTIONAL_CALLS(CCO_CHECK)
#endif
#undef CCO_CHECK

CCO_SAME(sizeof(vmm::AllocationProp), sizeof(hipMemAllocationProp));
CCO_SAME(offsetof(vmm::AllocationProp, type), offsetof(hipMemAllocationProp, type));
#if HIP_VERSION >= 70000000
CCO_SAME(offsetof(vmm::AllocationProp, requested_handle_types),
         offsetof(hipMemAllocationProp, requestedHandleTypes));
#else
CCO_SAME(offsetof(vmm::AllocationProp, requested_handle_types),
         offsetof(hipMemAllocationProp, requestedHandleType));
#endif
CCO_SAME(offsetof(vmm::AllocationProp, location), offsetof(hipMemAllocationProp, location));
CCO_SAME(offsetof(vmm::AllocationProp, win32_metadata),
         offsetof(hipMemAllocationProp, win32HandleMetaData));
CCO_SAME(offsetof(vmm::AllocationProp, compression_type),
         offsetof(hipMemAllocationProp, allocFlags.compressionType));
CCO_SAME(offsetof(vmm::AllocationProp, gpu_direct_rdma_capable),
         offsetof(hipMemAllocationProp, allocFlags.gpuDirectRDMACapable));
CCO_SAME(offsetof(vmm::AllocationProp, usage), offsetof(hipMemAllocationProp, allocFlags.usage));
CCO_SAME(sizeof(vmm::AccessDesc), sizeof(hipMemAccessDesc));
CCO_SAME(offsetof(vmm::AccessDesc, flags), offsetof(hipMemAccessDesc, flags));
CCO_SAME(offsetof(vmm::Location, id), offsetof(hipMemLocation, id));
CCO_SAME(sizeof(vmm::Uuid), sizeof(hipUUID));
static_assert(sizeof(hipDeviceProp_t) <= sizeof(hip::DeviceProp));
#if HIP_VERSION >= 60000000
CCO_SAME(hip::kArchOffset, offsetof(hipDeviceProp_t, gcnArchName));
#else
CCO_SAME(hip::kArchOffsetOld, offsetof(hipDeviceProp_t, gcnArchName));
#endif
CCO_SAME(hip::kArchBytes, sizeof(hipDeviceProp_t::gcnArchName));

CCO_SAME(vmm::kInvalidValue, hipErrorInvalidValue);
CCO_SAME(vmm::kOutOfMemory, hipErrorOutOfMemory);
CCO_SAME(vmm::kNoDevice, hipErrorNoDevice);
CCO_SAME(vmm::kInvalidDevice, hipErrorInvalidDevice);
CCO_SAME(vmm::kInvalidContext, hipErrorInvalidContext);
CCO_SAME(vmm::kPeerAccessUnsupported, hipErrorPeerAccessUnsupported);
CCO_SAME(vmm::kNotFound, hipErrorNotFound);
CCO_SAME(vmm::kNotSupported, hipErrorNotSupported);
CCO_SAME(vmm::kAllocationPinned, hipMemAllocationTypePinned);
#if HIP_VERSION >= 70100000
CCO_SAME(hip::kAllocationUncached, hipMemAllocationTypeUncached);
#endif
CCO_SAME(vmm::kHandlePosixFd, hipMemHandleTypePosixFileDescriptor);
CCO_SAME(vmm::kLocationDevice, hipMemLocationTypeDevice);
CCO_SAME(vmm::kAccessRead, hipMemAccessFlagsProtRead);
CCO_SAME(vmm::kAccessReadWrite, hipMemAccessFlagsProtReadWrite);
CCO_SAME(vmm::kGranularityMinimum, hipMemAllocationGranularityMinimum);
CCO_SAME(vmm::kGranularityRecommended, hipMemAllocationGranularityRecommended);
CCO_SAME(vmm::kHostRegisterPortable, hipHostRegisterPortable);
CCO_SAME(vmm::kHostRegisterMapped, hipHostRegisterMapped);
CCO_SAME(vmm::kStreamNonBlocking, hipStreamNonBlocking);
CCO_SAME(vmm::kEventDefault, hipEventDefault);
CCO_SAME(hip::kAttributeMultiprocessorCount, hipDeviceAttributeMultiprocessorCount);
CCO_SAME(hip::kAttributeVmmSupported, hipDeviceAttributeVirtualMemoryManagementSupported);
CCO_SAME(hip::kAttributeWallClockKhz, hipDeviceAttributeWallClockRate);

}  // namespace cco
