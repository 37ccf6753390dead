// What only HIP has, beyond vmm_api.h. Declared by us; tests/contract/abi_hip.cc proves it against
// ROCm's headers.
#pragma once

#include "device/runtime/vmm_api.h"

namespace cco::hip {

using vmm::Result;

/// As hipRuntimeGetVersion() reports it: major * 10^7 + minor * 10^5 + patch.
inline constexpr int kVersionOldest = 50700000;
inline constexpr int kVersion71 = 70100000;

inline constexpr int kAllocationUncached =
    0x40000000;  ///< hipMemAllocationTypeUncached, ROCm 7.1 and up.
inline constexpr int kAttributeMultiprocessorCount = 63;
inline constexpr int kAttributeVmmSupported = 89;
inline constexpr int kAttributeWallClockKhz = 10017;

/// hipDeviceProp_t grew in ROCm 6, under a new symbol. All that is read of it is one text at a
/// known place.
inline constexpr size_t kArchOffset =
    1160;  ///< Of gcnArchName, in what hipGetDevicePropertiesR0600 fills.
inline constexpr size_t kArchOffsetOld =
    396;  ///< In what hipGetDeviceProperties of ROCm 5.7 fills.
inline constexpr size_t kArchBytes = 256;
struct alignas(8) DeviceProp {
  char bytes[8192];  ///< Far above every version's size (1472 in ROCm 6.4 and 7.2).
};

// X(name, signature). All must resolve.
#define CCO_HIP_CALLS(X)                  \
  X(hipGetErrorName, const char*(Result)) \
  X(hipGetDevice, Result(int*))           \
  X(hipSetDevice, Result(int))            \
  X(hipGetDeviceProperties, Result(DeviceProp*, int device))
// ROCm 6.0 and up.
#define CCO_HIP_OPTIONAL_CALLS(X) X(hipGetDevicePropertiesR0600, Result(DeviceProp*, int device))

struct Api {
#define CCO_DECLARE(name, ...) LibraryCall<__VA_ARGS__> name;
  CCO_HIP_CALLS(CCO_DECLARE)
  CCO_HIP_OPTIONAL_CALLS(CCO_DECLARE)
#undef CCO_DECLARE
};

}  // namespace cco::hip
