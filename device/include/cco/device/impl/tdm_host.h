// TDM on the host: a mover that is as late as it may be. A load spoils its shared memory at once
// and happens when it is waited for; a store reads shared memory when that is waited for and
// reaches its destination when stores are finished. What a kernel forgets to wait for goes wrong
// here as it would on a GPU, every time.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include "cco/device/impl/tdm_tile.h"

namespace cco::device::impl {

template <uint32_t kSlots>
class TdmLate {
 public:
  static constexpr bool kPipelined = true;

  template <typename C>
  static bool issues(C coop) {
    return coop.is_leader();
  }
  static void order_before_copies() {}
  void open(void*) {}
  void close() { finish_stores(); }

  template <typename C>
  void load(C, uint32_t, void* shared, const void* global, const TdmTile& tile) {
    std::memset(shared, 0xa5, size_t{tile.rows} * tile.row_bytes);
    loads_.push_back(Load{static_cast<char*>(shared), static_cast<const char*>(global), tile});
  }
  bool load_arrived(uint32_t, uint32_t, uint32_t newer_loads) {
    for (; loads_.size() > newer_loads; loads_.pop_front()) {
      const Load& load = loads_.front();
      for (uint32_t row = 0; row < load.tile.rows; ++row) {
        std::memcpy(load.shared + size_t{row} * load.tile.row_bytes,
                    load.global + row * load.tile.stride_bytes, load.tile.row_bytes);
      }
    }
    return true;
  }

  template <typename C>
  void store(C, void* global, const void* shared, const TdmTile& tile) {
    unread_.push_back(
        Store{static_cast<char*>(global), static_cast<const char*>(shared), tile, {}});
  }
  template <uint32_t kNewest>
  void wait_stores_read() {
    for (; unread_.size() > kNewest; unread_.pop_front()) {
      Store& store = unread_.front();
      store.bytes.assign(store.shared,
                         store.shared + size_t{store.tile.rows} * store.tile.row_bytes);
      read_.push_back(std::move(store));
    }
    while (read_.size() > kSlots) land();  // Bounds the memory that a long put takes.
  }
  void finish_stores() {
    wait_stores_read<0>();
    while (!read_.empty()) land();
  }

 private:
  struct Load {
    char* shared;
    const char* global;
    TdmTile tile;
  };
  struct Store {
    char* global;
    const char* shared;
    TdmTile tile;
    std::vector<char> bytes;
  };

  void land() {
    const Store& store = read_.front();
    for (uint32_t row = 0; row < store.tile.rows && store.tile.row_bytes != 0; ++row) {
      std::memcpy(store.global + row * store.tile.stride_bytes,
                  store.bytes.data() + size_t{row} * store.tile.row_bytes, store.tile.row_bytes);
    }
    read_.pop_front();
  }

  std::deque<Load> loads_;
  std::deque<Store> unread_;
  std::deque<Store> read_;
};

}  // namespace cco::device::impl
