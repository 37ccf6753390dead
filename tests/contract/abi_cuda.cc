// Goal    what vmm_api.h and cuda_api.h declare is what cuda.h declares.
// Method  compile only: sizes, offsets, values, and every function's parameters.
#include <cuda.h>

#include "device/runtime/cuda_api.h"
#include "tests/contract/abi_check.h"

namespace cco {

#define CCO_CHECK(field, cuda_name, hip_name, ...) CCO_SAME_FUNCTION(cuda_name, vmm::Api, field)
CCO_VMM_CALLS(CCO_CHECK)
#undef CCO_CHECK
#define CCO_CHECK(name, ...) CCO_SAME_FUNCTION(name, cuda::Api, name)
CCO_CUDA_CALLS(CCO_CHECK)
CCO_CUDA_OPTIONAL_CALLS(CCO_CHECK)
#undef CCO_CHECK

CCO_SAME(sizeof(vmm::AllocationProp), sizeof(CUmemAllocationProp));
CCO_SAME(offsetof(vmm::AllocationProp, type), offsetof(CUmemAllocationProp, type));
CCO_SAME(offsetof(vmm::AllocationProp, requested_handle_types),
         offsetof(CUmemAllocationProp, requestedHandleTypes));
CCO_SAME(offsetof(vmm::AllocationProp, location), offsetof(CUmemAllocationProp, location));
CCO_SAME(offsetof(vmm::AllocationProp, win32_metadata),
         offsetof(CUmemAllocationProp, win32HandleMetaData));
CCO_SAME(offsetof(vmm::AllocationProp, compression_type),
         offsetof(CUmemAllocationProp, allocFlags.compressionType));
CCO_SAME(offsetof(vmm::AllocationProp, gpu_direct_rdma_capable),
         offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
CCO_SAME(offsetof(vmm::AllocationProp, usage), offsetof(CUmemAllocationProp, allocFlags.usage));
CCO_SAME(sizeof(vmm::AccessDesc), sizeof(CUmemAccessDesc));
CCO_SAME(offsetof(vmm::AccessDesc, flags), offsetof(CUmemAccessDesc, flags));
CCO_SAME(offsetof(vmm::Location, id), offsetof(CUmemLocation, id));
CCO_SAME(sizeof(vmm::Uuid), sizeof(CUuuid));

CCO_SAME(vmm::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
CCO_SAME(vmm::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
CCO_SAME(vmm::kNoDevice, CUDA_ERROR_NO_DEVICE);
CCO_SAME(vmm::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
CCO_SAME(vmm::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
CCO_SAME(vmm::kPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
CCO_SAME(vmm::kNotFound, CUDA_ERROR_NOT_FOUND);
CCO_SAME(vmm::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
CCO_SAME(vmm::kAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
CCO_SAME(vmm::kHandlePosixFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
CCO_SAME(vmm::kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
CCO_SAME(vmm::kAccessRead, CU_MEM_ACCESS_FLAGS_PROT_READ);
CCO_SAME(vmm::kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
CCO_SAME(vmm::kGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
CCO_SAME(vmm::kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
CCO_SAME(vmm::kHostRegisterMapped, CU_MEMHOSTREGISTER_DEVICEMAP);
CCO_SAME(vmm::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
CCO_SAME(vmm::kEventDefault, CU_EVENT_DEFAULT);
CCO_SAME(cuda::kAttributeMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
CCO_SAME(cuda::kAttributeComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
CCO_SAME(cuda::kAttributeComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
CCO_SAME(cuda::kAttributeVmmSupported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
CCO_SAME(cuda::kAttributePosixFdSupported,
         CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
CCO_SAME(cuda::kAttributeRdmaWithVmmSupported,
         CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
CCO_SAME(cuda::kFunctionMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
CCO_SAME(cuda::kStoreWord64, CU_STREAM_MEM_OP_WRITE_VALUE_64);
CCO_SAME(sizeof(cuda::BatchStore), sizeof(CUstreamBatchMemOpParams));
CCO_SAME(offsetof(cuda::BatchStore, operation),
         offsetof(CUstreamBatchMemOpParams, writeValue.operation));
CCO_SAME(offsetof(cuda::BatchStore, address),
         offsetof(CUstreamBatchMemOpParams, writeValue.address));
CCO_SAME(offsetof(cuda::BatchStore, value), offsetof(CUstreamBatchMemOpParams, writeValue.value64));
CCO_SAME(offsetof(cuda::BatchStore, flags), offsetof(CUstreamBatchMemOpParams, writeValue.flags));

}  // namespace cco
