// Launches a kernel of a module on the host, by name, as the host driver does.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cco/device/host_launch.h"
#include "device/kernels/kernels.h"

namespace cco::testing {

template <typename... Arguments>
void launch(const KernelModule& module, const char* kernel, device::HostLaunch shape,
            Arguments... arguments) {
  void* pointers[] = {&arguments...};
  for (const HostFunction& function : module.host_functions) {
    if (function.name != kernel) continue;
    const uint32_t sizes[] = {sizeof(Arguments)...};
    if (function.argument_bytes != absl::MakeConstSpan(sizes)) {
      throw std::invalid_argument(std::string(kernel) + ": arguments of other sizes");
    }
    return device::launch_on_host(shape, function.function, pointers);
  }
  throw std::invalid_argument(std::string(kernel) + ": no such kernel");
}

}  // namespace cco::testing
