// The only header that tests compiler macros: nvcc, clang -x hip (no vendor header needed), g++.
// Every CCO_* switch is always 0 or 1 and is tested with #if.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__HIP__)
#define CCO_HIP 1
#else
#define CCO_HIP 0
#endif
#if !CCO_HIP && (defined(__CUDACC__) || defined(__CUDA__))
#define CCO_CUDA 1
#else
#define CCO_CUDA 0
#endif
#define CCO_GPU (CCO_HIP || CCO_CUDA)
// clang's vector types on NVIDIA. nvcc has none, whatever its host compiler.
#if CCO_CUDA && defined(__clang__) && !defined(__NVCC__)
#define CCO_CLANG_CUDA 1
#else
#define CCO_CLANG_CUDA 0
#endif
#define CCO_HOST (!CCO_GPU)

// 1 in the passes of GPU compilers that emit GPU code.
#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)
#define CCO_DEVICE_PASS 1
#else
#define CCO_DEVICE_PASS 0
#endif

// NVIDIA from sm_90 on has bulk copies. 1 in nvcc's host pass too, so that both passes see one
// class.
#if CCO_CUDA && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define CCO_SM90 1
#else
#define CCO_SM90 0
#endif
// gfx9: clang may drop the wait after a system release that is not written out
// (llvm-project#178316).
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define CCO_HARD_WAITCNT 1
#else
#define CCO_HARD_WAITCNT 0
#endif
// gfx12: waves of 32, and stores are counted apart from loads.
#if defined(__gfx1250__)
#define CCO_GFX12 1
#else
#define CCO_GFX12 0
#endif
// clang 22 has builtins for gfx1250's tensor instructions; before it, and in bitcode that is to
// outlive their changing signatures, they are written out.
#if CCO_GFX12 && __clang_major__ >= 22
#define CCO_TENSOR_BUILTINS 1
#else
#define CCO_TENSOR_BUILTINS 0
#endif

#if defined(__cplusplus) && __cplusplus >= 202002L
#define CCO_CONCEPTS 1
#else
#define CCO_CONCEPTS 0
#endif

// 1: descriptors, ranges and indices are checked, and a wrong one stops the kernel. The default is
// 1 in host builds without NDEBUG and 0 elsewhere; set it alike in everything that is linked
// together.
#if !defined(CCO_DEVICE_CHECKS)
#if CCO_HOST && !defined(NDEBUG)
#define CCO_DEVICE_CHECKS 1
#else
#define CCO_DEVICE_CHECKS 0
#endif
#endif

#define CCO_INLINE __attribute__((always_inline)) inline
#if CCO_GPU
#define CCO_DEVICE __attribute__((device)) CCO_INLINE
// For what is long and used in many places: called, not expanded. But clang's code for NVIDIA is
// Triton's to compile, whose pointers to local memory have 32 bits; LLVM then stops at arguments
// that lie there (seen with Triton 3.6).
#if CCO_CLANG_CUDA
#define CCO_DEVICE_CALL CCO_DEVICE
#else
#define CCO_DEVICE_CALL __attribute__((device)) __attribute__((noinline)) inline
#endif
#define CCO_HOST_DEVICE __attribute__((host)) __attribute__((device)) CCO_INLINE
#define CCO_UNROLL _Pragma("unroll")
#else
#define CCO_DEVICE CCO_INLINE
#define CCO_DEVICE_CALL inline
#define CCO_HOST_DEVICE CCO_INLINE
#define CCO_UNROLL
#endif

namespace cco::device {
template <typename T>
struct Identity {
  using type = T;
};
/// T, but not deduced from: the other argument decides.
template <typename T>
using same = typename Identity<T>::type;
}  // namespace cco::device

#if CCO_CUDA
#include "cco/device/impl/platform_cuda.h"
#elif CCO_HIP
#include "cco/device/impl/platform_hip.h"
#else
#include "cco/device/impl/platform_host.h"
#endif

#if CCO_DEVICE_CHECKS
/// Stops the kernel unless `condition`; on the host it says what was wrong first.
#define CCO_DEVICE_CHECK(condition, what, value, limit) \
  ((condition) ? void(0) : ::cco::device::check_failed(what, value, limit))
#else
#define CCO_DEVICE_CHECK(condition, what, value, limit) \
  static_cast<void>(sizeof((condition) ? 1 : 0))
#endif
