#include "daemon/core/heap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {

Heap::Heap(uint64_t slot_bytes, uint64_t control_bytes, uint64_t granularity_bytes)
    : slot_bytes_(slot_bytes),
      control_bytes_(control_bytes),
      granularity_bytes_(granularity_bytes),
      control_(kSelfTestBytes, control_bytes - kSelfTestBytes),
      slot_(control_bytes, slot_bytes - control_bytes) {
  CCO_ASSERT(slot_bytes % granularity_bytes == 0 && control_bytes % granularity_bytes == 0);
  CCO_ASSERT(control_bytes > kSelfTestBytes && slot_bytes > control_bytes);
}

absl::StatusOr<uint64_t> Heap::allocate_control(uint64_t size_bytes, uint64_t alignment) {
  const std::optional<uint64_t> offset = control_.allocate(size_bytes, alignment);
  if (offset.has_value()) return *offset;
  return absl::ResourceExhaustedError(
      absl::StrCat("no room in the control region: asked ", size_bytes,
                   " bytes, largest free range ", control_.largest_free_bytes(), ", free in total ",
                   control_.free_bytes(), " of ", control_bytes_,
                   ". Destroy windows or communicators, ask for fewer signals, or raise "
                   "control_bytes in cco-memd's "
                   "configuration"));
}

std::optional<Heap::Place> Heap::allocate(uint64_t size_bytes, uint64_t alignment) {
  for (auto& [index, slab] : slabs_) {
    if (const auto offset = slab.allocate(size_bytes, alignment); offset.has_value())
      return Place{index, *offset};
  }
  return std::nullopt;
}

void Heap::release(Place place, uint64_t size_bytes) {
  const auto slab = slabs_.find(place.slab_index);
  CCO_ASSERT(slab != slabs_.end());
  slab->second.release(place.offset, size_bytes);
}

bool Heap::take(Place place, uint64_t size_bytes) {
  const auto slab = slabs_.find(place.slab_index);
  return slab != slabs_.end() && slab->second.take(place.offset, size_bytes);
}

absl::StatusOr<uint64_t> Heap::reserve(uint64_t size_bytes, uint64_t alignment) {
  const std::optional<uint64_t> offset =
      slot_.allocate(size_bytes, std::max(granularity_bytes_, alignment));
  if (offset.has_value()) return *offset;
  return absl::ResourceExhaustedError(
      absl::StrCat("no room in the slot: asked ", size_bytes, " bytes, largest free range ",
                   slot_.largest_free_bytes(), ", free in total ", slot_.free_bytes(), " of ",
                   slot_bytes_, ", granularity ", granularity_bytes_,
                   ". Destroy windows, or form the group with larger slot_bytes"));
}

void Heap::add_slab(uint32_t slab_index, uint64_t offset, uint64_t size_bytes) {
  CCO_ASSERT(slabs_.try_emplace(slab_index, offset, size_bytes).second);
}

}  // namespace cco::memd
