// What the kernels of conformance_body.h and their driver, conformance_test.cc, agree on.
#pragma once

#include <cstdint>

#include "cco/device/abi.h"
#include "cco/device/platform.h"

namespace cco::device::conformance {

/// Who makes a call.
enum class Scope : uint32_t { kThread, kWarp, kBlock };

/// What every kernel needs. `peer` is a world rank.
struct Given {
  cco_device_comm comm;
  cco_window_device window;
  uint32_t peer;
  Scope scope;
  uint64_t deadline_ns;
};

/// At the end of the window: what the kernels of this rank have found.
struct Report {
  uint64_t failures;
  uint64_t step;    ///< Of one of them.
  uint64_t result;  ///< WaitResult::encode(), or what was seen instead.
};
CCO_HOST_DEVICE uint64_t report_offset(uint64_t window_bytes) {
  return (window_bytes - sizeof(Report)) / 8 * 8;
}

/// Every length at several alignments of source and destination.
namespace cells {

struct Cell {
  uint64_t source;
  uint64_t destination;
  uint64_t bytes;
};
inline constexpr uint32_t kLengths = 10, kAlignments = 6, kCount = kLengths * kAlignments;
inline constexpr uint64_t kSourceBytes = (1 << 20) + 64, kMargin = 64;

CCO_HOST_DEVICE uint64_t length(uint32_t index) {
  constexpr uint32_t kTable[kLengths] = {0, 1, 15, 16, 17, 127, 400, 4095, 65537, 1 << 20};
  return kTable[index];
}
/// Room for a cell, with a margin on both sides.
CCO_HOST_DEVICE uint64_t stride(uint32_t index) {
  return (length(index) + 15) / 16 * 16 + 2 * kMargin;
}
CCO_HOST_DEVICE uint64_t first(uint32_t index) {
  uint64_t offset = (kSourceBytes + 15) / 16 * 16;
  for (uint32_t i = 0; i < index; ++i) offset += kAlignments * stride(i);
  return offset;
}
CCO_HOST_DEVICE Cell cell(uint32_t index) {
  constexpr uint8_t kFrom[kAlignments] = {0, 1, 3, 15, 8, 0};
  constexpr uint8_t kTo[kAlignments] = {0, 0, 5, 15, 4, 7};
  const uint32_t length_index = index / kAlignments, alignment = index % kAlignments;
  return {kFrom[alignment],
          first(length_index) + alignment * stride(length_index) + kMargin + kTo[alignment],
          length(length_index)};
}
CCO_HOST_DEVICE uint64_t window_bytes() { return first(kLengths) + sizeof(Report); }

}  // namespace cells

/// Two ranks that send each other a payload and a signal, round by round.
namespace ping {

inline constexpr uint32_t kSlots = 4;
inline constexpr uint64_t kSlotBytes = 8192;
inline constexpr uint64_t kWindowBytes = 2 * kSlots * kSlotBytes + sizeof(Report);

CCO_HOST_DEVICE uint64_t bytes(uint64_t round) {
  constexpr uint16_t kTable[8] = {8, 0, 4096, 1, 33, 0, 8191, 128};
  return kTable[round % 8];
}
CCO_HOST_DEVICE uint64_t outgoing(uint64_t round) { return round % kSlots * kSlotBytes; }
CCO_HOST_DEVICE uint64_t incoming(uint64_t round) { return (kSlots + round % kSlots) * kSlotBytes; }
CCO_HOST_DEVICE uint8_t byte(uint64_t round, uint32_t sender, uint64_t index) {
  return static_cast<uint8_t>(round * 31 + sender * 101 + index);
}

}  // namespace ping

/// Many threads that put on one queue, each to cells of its own.
namespace producers {

inline constexpr uint64_t kCellBytes = 16;
CCO_HOST_DEVICE uint64_t source(uint64_t cell) { return cell * kCellBytes; }
CCO_HOST_DEVICE uint64_t destination(uint64_t cell, uint64_t cells) {
  return (cells + cell) * kCellBytes;
}
CCO_HOST_DEVICE uint64_t word(uint64_t cell, uint32_t sender) {
  return cell << 8 | sender | 0x5a00000000000000u;
}
CCO_HOST_DEVICE uint64_t window_bytes(uint64_t cells) {
  return 2 * cells * kCellBytes + sizeof(Report);
}

}  // namespace producers

/// Every transport at once: what each moves, from its place in the first half of the window to the
/// same place in the second half of the peer's.
namespace mix {

struct Part {
  uint64_t offset;
  uint64_t bytes;
};
inline constexpr Part kSdma{0, 300000}, kGda{300016, 70003}, kTdm{370032, 40016}, kLsa{410064, 999};
inline constexpr uint64_t kHalfBytes = 411072;
inline constexpr uint64_t kWindowBytes = 2 * kHalfBytes + sizeof(Report);

}  // namespace mix

/// Which barrier.
enum class Meeting : uint32_t { kLsa, kRail, kConnected, kWorld };

}  // namespace cco::device::conformance
