// The words that CUDA and HIP sources use without an include, for compilers that do not know them:
// g++, and nvcc or clang without vendor headers. Pass it with -include; where the vendor's headers
// came first it declares nothing. Blocks and grids are one-dimensional.
#pragma once

#include "cco/device/platform.h"

#if !defined(__global__)

namespace cco::device::words {
struct Coordinate {
  uint32_t x, y, z;
};
CCO_DEVICE Coordinate thread_coordinate() { return {thread_index(), 0, 0}; }
CCO_DEVICE Coordinate block_coordinate() { return {block_index(), 0, 0}; }
CCO_DEVICE Coordinate block_extent() { return {thread_count(), 1, 1}; }
CCO_DEVICE Coordinate grid_extent() { return {block_count(), 1, 1}; }
}  // namespace cco::device::words

#if CCO_GPU
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#else
#define __global__
#define __device__
#define __host__
#endif
#define threadIdx (::cco::device::words::thread_coordinate())
#define blockIdx (::cco::device::words::block_coordinate())
#define blockDim (::cco::device::words::block_extent())
#define gridDim (::cco::device::words::grid_extent())
#define __syncthreads() (::cco::device::block_sync())

#endif
