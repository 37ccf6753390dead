#include "device/runtime/address_table.h"

#include <bit>
#include <iterator>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco {
namespace {

/// The entry of `table` that overlaps [address, address + size_bytes), or end().
template <typename Table>
auto find_overlap(const Table& table, uint64_t address, uint64_t size_bytes) {
  auto next = table.lower_bound(address);
  if (next != table.begin()) {
    auto before = std::prev(next);
    if (address - before->first < before->second.size_bytes) return before;
  }
  if (next != table.end() && next->first - address < size_bytes) return next;
  return table.end();
}

}  // namespace

std::optional<AddressTable::Range> AddressTable::remove_range(uint64_t address) {
  auto found = ranges_.find(address);
  CCO_ASSERT(found != ranges_.end());
  const Range range = found->second;
  if (const auto left = find_overlap(mappings_, address, range.size_bytes);
      left != mappings_.end()) {
    CCO_ASSERT(left->second.stuck);
    return std::nullopt;
  }
  ranges_.erase(found);
  return range;
}

absl::Status AddressTable::check_free(uint64_t address, uint64_t size_bytes) const {
  const auto range = find_overlap(ranges_, address, size_bytes);
  const bool inside = range != ranges_.end() && address >= range->first &&
                      size_bytes <= range->second.size_bytes - (address - range->first);
  if (!inside) {
    return absl::InvalidArgumentError(
        absl::StrFormat("map %#x..%#x: not inside one reserved range; reserve() it first", address,
                        address + size_bytes));
  }
  const auto mapped = find_overlap(mappings_, address, size_bytes);
  if (mapped != mappings_.end()) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "map %#x..%#x: %#x..%#x is mapped already; unmap it first", address, address + size_bytes,
        mapped->first, mapped->first + mapped->second.size_bytes));
  }
  return absl::OkStatus();
}

AddressTable::Mapped* AddressTable::find_mapping(uint64_t address, uint64_t size_bytes) {
  auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.size_bytes != size_bytes) return nullptr;
  return &found->second;
}

absl::Status check_granularity(uint64_t size_bytes, uint64_t granularity_bytes) {
  if (size_bytes != 0 && size_bytes % granularity_bytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%d bytes: a size must be a positive multiple of this device's granularity, %d bytes",
      size_bytes, granularity_bytes));
}

absl::Status check_reservation(uint64_t size_bytes, uint64_t alignment_bytes,
                               uint64_t granularity_bytes) {
  CCO_RETURN_IF_ERROR(check_granularity(size_bytes, granularity_bytes));
  if (std::has_single_bit(alignment_bytes) && alignment_bytes >= granularity_bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "alignment %d: must be a power of two and at least this device's granularity, %d bytes",
      alignment_bytes, granularity_bytes));
}

absl::Status check_device(int device, size_t device_count) {
  if (device >= 0 && static_cast<size_t>(device) < device_count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("device %d: this process sees %d devices, 0 to %d", device, device_count,
                      static_cast<int>(device_count) - 1));
}

}  // namespace cco
