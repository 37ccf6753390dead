// What only CUDA has, beyond vmm_api.h. Declared by us; tests/contract/abi_cuda.cc proves it
// against cuda.h.
#pragma once

#include "device/runtime/vmm_api.h"

namespace cco::cuda {

using vmm::Result;

struct ContextTag;
using Context = ContextTag*;

inline constexpr int kAttributeMultiprocessorCount = 16;
inline constexpr int kAttributeComputeMajor = 75;
inline constexpr int kAttributeComputeMinor = 76;
inline constexpr int kAttributeVmmSupported = 102;
inline constexpr int kAttributePosixFdSupported = 103;
inline constexpr int kAttributeRdmaWithVmmSupported = 110;
inline constexpr int kFunctionMaxDynamicSharedBytes = 8;
inline constexpr int kStoreWord64 = 5;

/// Of cuStreamBatchMemOp_v2(): CUstreamBatchMemOpParams with its member writeValue.
struct BatchStore {
  int operation;
  vmm::Address address;
  uint64_t value;
  unsigned flags;
  vmm::Address alias;
  uint64_t unused;
};
static_assert(sizeof(BatchStore) == 48 && offsetof(BatchStore, value) == 16);

// X(name, signature). All must resolve.
#define CCO_CUDA_CALLS(X)                                                                    \
  X(cuGetErrorName, Result(Result, const char**))                                            \
  X(cuDeviceGet, Result(int* device, int ordinal))                                           \
  X(cuDevicePrimaryCtxRetain, Result(Context*, int device))                                  \
  X(cuDevicePrimaryCtxRelease_v2, Result(int device))                                        \
  X(cuCtxPushCurrent_v2, Result(Context))                                                    \
  X(cuCtxPopCurrent_v2, Result(Context*))                                                    \
  X(cuFuncSetAttribute, Result(vmm::Function, int attribute, int value))                     \
  X(cuStreamBatchMemOp_v2, Result(vmm::Stream, unsigned count, BatchStore*, unsigned flags)) \
  X(cuMemGetAllocationPropertiesFromHandle, Result(vmm::AllocationProp*, vmm::Handle))
// CUDA 12.4 and up.
#define CCO_CUDA_OPTIONAL_CALLS(X) X(cuFuncLoad, Result(vmm::Function))

struct Api {
#define CCO_DECLARE(name, ...) LibraryCall<__VA_ARGS__> name;
  CCO_CUDA_CALLS(CCO_DECLARE)
  CCO_CUDA_OPTIONAL_CALLS(CCO_DECLARE)
#undef CCO_DECLARE
};

}  // namespace cco::cuda
