// TDM without a mover: loops of loads and stores by all threads of the group. Long ranges do not
// pass through shared memory.
#pragma once

#include "cco/device/impl/copy.h"
#include "cco/device/impl/tdm_tile.h"

namespace cco::device::impl {

template <uint32_t kSlots>
class TdmLoop {
 public:
  static constexpr bool kPipelined = false;

  template <typename C>
  static CCO_DEVICE bool issues(C) {
    return true;
  }
  static CCO_DEVICE void order_before_copies() {}
  CCO_DEVICE void open(void*) {}
  CCO_DEVICE void close() {}

  template <typename C>
  CCO_DEVICE void load(C coop, uint32_t, void* shared, const void* global, const TdmTile& tile) {
    for (uint32_t row = 0; row < tile.rows; ++row) {
      copy_bytes(coop, static_cast<Word1*>(shared) + uint64_t{row} * tile.row_bytes,
                 static_cast<const Word1*>(global) + row * tile.stride_bytes, tile.row_bytes);
    }
  }
  CCO_DEVICE bool load_arrived(uint32_t, uint32_t, uint32_t) { return true; }
  template <typename C>
  CCO_DEVICE void store(C coop, void* global, const void* shared, const TdmTile& tile) {
    for (uint32_t row = 0; row < tile.rows; ++row) {
      copy_bytes(coop, static_cast<Word1*>(global) + row * tile.stride_bytes,
                 static_cast<const Word1*>(shared) + uint64_t{row} * tile.row_bytes,
                 tile.row_bytes);
    }
  }
  template <uint32_t kNewest>
  CCO_DEVICE void wait_stores_read() {}
  CCO_DEVICE void finish_stores() {}
};

}  // namespace cco::device::impl
