// What one TDM copy moves.
#pragma once

#include "cco/device/platform.h"

namespace cco::device {

/// Rows that lie `stride_bytes` apart in global memory and one behind the other in shared memory.
/// All three are multiples of 16; the stride of a single row does not matter.
struct TdmTile {
  uint32_t rows;       ///< At most 65535.
  uint32_t row_bytes;  ///< At most kTdmMaxRowBytes. gfx1250 is slow below 128.
  uint64_t stride_bytes;
};

/// gfx1250 counts a row's 4-byte elements in 16 bits; a multiple of 128.
constexpr uint32_t kTdmMaxRowBytes = 0x3ff80;

}  // namespace cco::device
