// What the writers of all NICs' queues have in common. Words of an entry are given as they lie in
// memory, loaded by a little-endian machine, which all of our targets are.
#pragma once

#include "cco/device/abi_gda.h"
#include "cco/device/atomic.h"
#include "cco/device/platform.h"

namespace cco::device::impl {

/// The word whose bytes in memory are `value` in big-endian order.
CCO_HOST_DEVICE uint32_t be32(uint32_t value) {
  return value << 24 | (value << 8 & 0xff0000u) | (value >> 8 & 0xff00u) | value >> 24;
}
CCO_HOST_DEVICE uint32_t be32_high(uint64_t value) {
  return be32(static_cast<uint32_t>(value >> 32));
}
CCO_HOST_DEVICE uint32_t be32_low(uint64_t value) { return be32(static_cast<uint32_t>(value)); }
CCO_HOST_DEVICE uint32_t le32_high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
CCO_HOST_DEVICE uint32_t le32_low(uint64_t value) { return static_cast<uint32_t>(value); }

enum class NicKind : uint32_t {
  kNothing,  ///< Moves nothing, and completes in its turn.
  kWrite,
  kInline,  ///< Writes the low `bytes` (at most 8) of `value`.
  kRead,
  kFetchAdd,  ///< Adds `value` to 8 bytes; what they were lands at the local place.
};

/// One operation for a NIC. Places are a key and an offset from the start of its region.
struct NicRequest {
  NicKind kind;
  bool completion;  ///< Ask for one; errors always have one.
  uint32_t bytes;
  uint32_t remote_key;
  uint32_t local_key;
  uint64_t remote_offset;
  uint64_t local_offset;
  uint64_t value;
};

/// `value` with the bytes that are not sent zeroed.
CCO_HOST_DEVICE uint64_t inline_bytes(const NicRequest& request) {
  return request.bytes >= 8 ? request.value
                            : request.value & ((uint64_t{1} << 8 * request.bytes) - 1);
}

/// What a completion queue says.
struct NicProgress {
  uint64_t completed;  ///< Running count of units, at least what was known.
  bool failed;
  uint32_t syndrome;
};

/// The running count whose bits under `mask` are `low`, if it lies in (done, rung]; else `done`. A
/// word read late, or before the first completion, thus changes nothing.
CCO_HOST_DEVICE uint64_t widen_count(uint64_t low, uint64_t mask, uint64_t done, uint64_t rung) {
  const uint64_t ahead = (low - done) & mask;
  return ahead <= rung - done ? done + ahead : done;
}

/// Stores 16 bytes of an entry at once.
CCO_DEVICE void store_entry(uint64_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  *global_pointer<Vector16>(address) = Vector16{a, b, c, d};
}

CCO_DEVICE uint32_t load_entry_word(uint64_t address) {
  return load_relaxed_system(global_pointer<const uint32_t>(address));
}

}  // namespace cco::device::impl
