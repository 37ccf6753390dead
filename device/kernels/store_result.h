// How kernels of this project tell the host what a wait or a post came to.
#pragma once

#include "cco/device/deadline.h"

namespace cco::kernels {

/// Of a block: its first thread writes.
CCO_DEVICE void store_result(uint64_t* result, device::WaitResult outcome) {
  if (device::thread_index() == 0) *result = outcome.encode();
}

}  // namespace cco::kernels
