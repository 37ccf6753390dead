// MORI CCO's RDMA layer (ROCm/mori, include/mori/cco/cco_scale_out.hpp at 624002c8) over cco. What
// differs on purpose: ../README.md.
#pragma once

#include "mori/cco/cco.hpp"
#include "mori/cco/gda.hpp"
#include "mori/cco/gda_barrier.hpp"

// The provider that a program names at compile time; kernels take the communicator's, whichever it
// is.
#if defined(MORI_DEVICE_NIC_BNXT)
#define CCO_GDA_BUILD_PROVIDER ::mori::core::ProviderType::BNXT
#elif defined(MORI_DEVICE_NIC_IONIC)
#define CCO_GDA_BUILD_PROVIDER ::mori::core::ProviderType::PSD
#else
#define CCO_GDA_BUILD_PROVIDER ::mori::core::ProviderType::MLX5
#endif

/// Runs `expr` with `P` standing for that provider.
#define CCO_GDA_DISPATCH(...)                  \
  do {                                         \
    constexpr auto P = CCO_GDA_BUILD_PROVIDER; \
    __VA_ARGS__;                               \
  } while (0)
