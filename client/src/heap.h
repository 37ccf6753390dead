// The flat map: one slot of address space per rank, slabs at the same offsets in each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/base/unique.h"
#include "device/runtime/gpu_driver.h"

namespace cco::client {

inline constexpr uint64_t kSlotUnitBytes = uint64_t{4} << 30;

/// Where one rank's memory of a slab lies in its slot.
struct SlabPlace {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

/// Not thread safe; its group lets one thread in at a time.
class Heap {
 public:
  /// `driver` must outlive the heap. `device` is whose kernels will use the map.
  static absl::StatusOr<std::unique_ptr<Heap>> create(GpuDriver* driver, int device,
                                                      uint32_t rank_count, uint64_t slot_bytes);

  using FetchFd = absl::FunctionRef<absl::StatusOr<UniqueFd>(uint32_t rank)>;

  /// Maps one slab of every rank; `fetch` is asked for each rank's descriptor. All or nothing.
  absl::Status map_slab(uint32_t index, absl::Span<const SlabPlace> places, FetchFd fetch);

  /// No kernel may use it any more. Nothing happens if it is not mapped.
  void unmap_slab(uint32_t index) { slabs_.erase(index); }

  bool has_slab(uint32_t index) const { return slabs_.count(index) != 0; }
  size_t slab_count() const { return slabs_.size(); }
  /// Whether one mapped slab holds the whole range in every slot it lies in.
  bool holds(uint32_t index, uint32_t rank, uint64_t offset, uint64_t size_bytes) const;

  uint64_t flat_base() const { return range_.address(); }
  uint64_t slot_bytes() const { return slot_bytes_; }
  uint64_t address(uint32_t rank, uint64_t offset) const {
    return flat_base() + rank * slot_bytes_ + offset;
  }

 private:
  Heap(GpuDriver* driver, int device, uint32_t rank_count, uint64_t slot_bytes, VaRange range)
      : driver_(driver),
        device_(device),
        rank_count_(rank_count),
        slot_bytes_(slot_bytes),
        range_(std::move(range)) {}
  absl::Status check_place(const SlabPlace& place) const;
  absl::StatusOr<GpuMapping> map_piece(uint32_t rank, const SlabPlace& place, FetchFd fetch);

  GpuDriver* driver_;
  int device_;
  uint32_t rank_count_;
  uint64_t slot_bytes_;
  VaRange range_;
  std::map<uint32_t, std::vector<GpuMapping>> slabs_;  // Unmapped before the range goes.
};

}  // namespace cco::client
