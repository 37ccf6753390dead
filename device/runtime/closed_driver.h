// A driver whose library is not opened, as none of its GPUs may be: it shows no device, and holds
// no device file.
#pragma once

#include <memory>
#include <string>

#include "device/runtime/gpu_driver.h"

namespace cco {

/// `name`: of the driver it stands for. Every call that can fail ends with UNAVAILABLE.
std::unique_ptr<GpuDriver> make_closed_driver(std::string name);

}  // namespace cco
