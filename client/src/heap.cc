#include "client/src/heap.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco::client {

absl::StatusOr<std::unique_ptr<Heap>> Heap::create(GpuDriver* driver, int device,
                                                   uint32_t rank_count, uint64_t slot_bytes) {
  if (rank_count == 0 || slot_bytes == 0 || slot_bytes % kSlotUnitBytes != 0 ||
      slot_bytes > UINT64_MAX / rank_count) {
    return absl::InternalError(
        absl::StrFormat("a flat map of %d slots of %d bytes: slots are multiples of 4 GiB",
                        rank_count, slot_bytes));
  }
  absl::StatusOr<VaRange> range = driver->reserve(device, rank_count * slot_bytes, kSlotUnitBytes);
  if (!range.ok()) {
    return absl::Status(
        range.status().code(),
        absl::StrFormat("reserving the flat map, %d slots of %d GiB: %s. A smaller slot_bytes, or "
                        "a higher limit on address space (ulimit -v), may help",
                        rank_count, slot_bytes >> 30, std::string(range.status().message())));
  }
  return std::unique_ptr<Heap>(new Heap(driver, device, rank_count, slot_bytes, *std::move(range)));
}

absl::Status Heap::check_place(const SlabPlace& place) const {
  const uint64_t granularity = driver_->devices()[device_].granularity_bytes;
  const bool fits = place.size_bytes > 0 && place.size_bytes <= slot_bytes_ &&
                    place.offset <= slot_bytes_ - place.size_bytes;
  if (fits && place.offset % granularity == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "cco-memd places %d bytes at offset %d of a slot of %d bytes; granularity is %d",
      place.size_bytes, place.offset, slot_bytes_, granularity));
}

absl::Status Heap::map_slab(uint32_t index, absl::Span<const SlabPlace> places, FetchFd fetch) {
  if (has_slab(index)) return absl::OkStatus();
  if (places.size() != rank_count_) {
    return absl::InternalError(absl::StrFormat("cco-memd exports slab %d of %d ranks instead of %d",
                                               index, places.size(), rank_count_));
  }
  std::vector<GpuMapping> pieces;
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    absl::StatusOr<GpuMapping> piece = map_piece(rank, places[rank], fetch);
    if (!piece.ok()) {
      return absl::Status(
          piece.status().code(),
          absl::StrFormat("mapping slab %d of rank %d (%d bytes at offset %d of its slot): %s",
                          index, rank, places[rank].size_bytes, places[rank].offset,
                          std::string(piece.status().message())));
    }
    pieces.push_back(*std::move(piece));
  }
  slabs_.emplace(index, std::move(pieces));
  return absl::OkStatus();
}

absl::StatusOr<GpuMapping> Heap::map_piece(uint32_t rank, const SlabPlace& place, FetchFd fetch) {
  CCO_RETURN_IF_ERROR(check_place(place));
  CCO_ASSIGN_OR_RETURN(const UniqueFd fd, fetch(rank));
  CCO_ASSIGN_OR_RETURN(const GpuMemory memory, driver_->import_fd(device_, fd, place.size_bytes));
  CCO_ASSIGN_OR_RETURN(GpuMapping mapping, driver_->map(address(rank, place.offset), memory));
  CCO_RETURN_IF_ERROR(driver_->set_access(mapping, device_, Access::kReadWrite));
  return mapping;
}

bool Heap::holds(uint32_t index, uint32_t rank, uint64_t offset, uint64_t size_bytes) const {
  const auto found = slabs_.find(index);
  if (found == slabs_.end() || rank >= rank_count_) return false;
  const GpuMapping& piece = found->second[rank];
  const uint64_t first = piece.address() - address(rank, 0);
  return offset >= first && size_bytes <= piece.size_bytes() &&
         offset - first <= piece.size_bytes() - size_bytes;
}

}  // namespace cco::client
