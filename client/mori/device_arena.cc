#include "client/mori/device_arena.h"

#include "client/base/status_macros.h"

namespace cco::compat {
namespace {

constexpr uint64_t kAlignmentBytes = 256;

}  // namespace

absl::StatusOr<uint64_t> DeviceArena::place(const void* contents, uint64_t bytes) {
  const uint64_t rounded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  CCO_ASSIGN_OR_RETURN(const uint64_t address, find_room(rounded));
  CCO_RETURN_IF_ERROR(write(address, contents, bytes));
  parts_.emplace(address, rounded);
  return address;
}

absl::StatusOr<uint64_t> DeviceArena::find_room(uint64_t bytes) {
  for (const std::unique_ptr<LocalPiece>& piece : pieces_) {
    uint64_t start = piece->address();
    const uint64_t end = start + piece->size_bytes();
    for (auto part = parts_.lower_bound(start); part != parts_.end() && part->first < end; ++part) {
      if (part->first - start >= bytes) break;
      start = part->first + part->second;
    }
    if (end - start >= bytes) return start;
  }
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<LocalPiece> piece, memory_->allocate(bytes));
  pieces_.push_back(std::move(piece));
  return pieces_.back()->address();
}

}  // namespace cco::compat
