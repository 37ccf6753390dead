// What the process's GPU library, which others use too, knows: the current device, and what is
// behind a pointer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco {

/// The device that the calling thread has made current; nothing: none, as always with `host`.
std::optional<int> current_device(std::string_view driver);

struct ForeignMemory {
  UniqueFd fd;  ///< An export of the allocation.
  uint64_t allocation_bytes = 0;
  uint64_t offset = 0;  ///< Of the pointer in it.
};

/// INVALID_ARGUMENT: `pointer` is no memory that the driver's virtual memory management has made
/// here, or less than `size_bytes` follow it. On `host`: no shared mapping of a memfd of which this
/// process still has a descriptor.
absl::StatusOr<ForeignMemory> find_foreign_memory(std::string_view driver, const void* pointer,
                                                  uint64_t size_bytes);

}  // namespace cco
