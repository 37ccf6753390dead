// What this process has open.
#pragma once

#include <cstdint>

namespace cco::memd {

/// How many file descriptors. 0: /proc does not say.
uint32_t open_descriptors();

}  // namespace cco::memd
