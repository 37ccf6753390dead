// The kernel modules in this binary, for GpuContext::load().
#pragma once

#include <vector>

#include "cco/device/kernel.h"
#include "device/runtime/gpu_driver.h"

namespace cco::kernels {

const KernelModule& main_job();    ///< main_job.cc
const KernelModule& bench();       ///< bench.cc
const KernelModule& tdm_bench();   ///< tdm_bench.cc
const KernelModule& sdma_bench();  ///< sdma_bench.cc
const KernelModule& gda_bench();   ///< gda_bench.cc
const KernelModule& mix();         ///< mix.cc
const KernelModule& proof();       ///< proof.cc

/// What CCO_KERNEL_TABLE made, in the driver's words.
inline std::vector<HostFunction> list_host_functions(const device::HostKernelTable& table) {
  std::vector<HostFunction> functions;
  for (uint32_t i = 0; i < table.count; ++i) {
    const device::HostKernelEntry& kernel = table.entries[i];
    functions.push_back({kernel.name, kernel.function,
                         absl::MakeConstSpan(kernel.argument_bytes, kernel.argument_count)});
  }
  return functions;
}

}  // namespace cco::kernels
