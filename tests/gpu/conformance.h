// Layout that conformance.cc's kernels and gpu_test.cc share: a window holds a source line, then
// one cell for every alignment of source and destination and every length.
#pragma once

#include <cstdint>

#include "cco/device/platform.h"

namespace cco::conformance {

inline constexpr uint32_t kAlignments = 16, kLengths = 20;
inline constexpr uint32_t kCells = kAlignments * kAlignments * kLengths;
inline constexpr uint64_t kSourceBytes = 1024, kCellBytes = 512, kMargin = 64;
inline constexpr uint64_t kWindowBytes = kSourceBytes + kCells * kCellBytes;

CCO_HOST_DEVICE uint64_t length(uint32_t cell) {
  // Around every width that a copy loop may treat specially.
  constexpr uint16_t kLengthTable[kLengths] = {0,  1,  2,  3,  7,  8,   15,  16,  17,  31,
                                               32, 33, 63, 64, 65, 127, 128, 129, 255, 400};
  return kLengthTable[cell % kLengths];
}
CCO_HOST_DEVICE uint64_t source_offset(uint32_t cell) { return cell / kLengths % kAlignments; }
CCO_HOST_DEVICE uint64_t destination_offset(uint32_t cell) {
  return kSourceBytes + cell * kCellBytes + kMargin + cell / kLengths / kAlignments;
}

}  // namespace cco::conformance
