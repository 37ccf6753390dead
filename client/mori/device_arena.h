// Small structs that kernels read: a piece of device memory, handed out in parts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/mori/local_memory.h"

namespace cco::compat {

/// Not thread safe.
class DeviceArena {
 public:
  explicit DeviceArena(LocalMemory* memory) : memory_(memory) {}

  /// Address of a copy of `bytes` bytes of `contents`, 256-byte aligned.
  absl::StatusOr<uint64_t> place(const void* contents, uint64_t bytes);
  /// Overwrites part of what was placed.
  absl::Status write(uint64_t address, const void* contents, uint64_t bytes) {
    return memory_->context().copy_to_device(address, contents, bytes);
  }
  /// False: nothing was placed there.
  bool remove(uint64_t address) { return parts_.erase(address) != 0; }

 private:
  absl::StatusOr<uint64_t> find_room(uint64_t bytes);

  LocalMemory* const memory_;
  std::vector<std::unique_ptr<LocalPiece>> pieces_;
  std::map<uint64_t, uint64_t> parts_;  // Bytes by address.
};

}  // namespace cco::compat
