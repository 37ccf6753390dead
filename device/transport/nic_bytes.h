// Numbers in the byte orders of NICs. The CPU is little-endian.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace cco {

static_assert(std::endian::native == std::endian::little);

template <typename T>
T load_le(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}
template <typename T>
void store_le(uint8_t* bytes, T value) {
  std::memcpy(bytes, &value, sizeof value);
}

inline uint16_t swap_bytes(uint16_t value) { return __builtin_bswap16(value); }
inline uint32_t swap_bytes(uint32_t value) { return __builtin_bswap32(value); }
inline uint64_t swap_bytes(uint64_t value) { return __builtin_bswap64(value); }

template <typename T>
T load_be(const uint8_t* bytes) {
  return swap_bytes(load_le<T>(bytes));
}
template <typename T>
void store_be(uint8_t* bytes, T value) {
  store_le<T>(bytes, swap_bytes(value));
}

/// Stores a completion entry into memory that kernels poll: its words in order, but the one at
/// `last_offset` after all others.
inline void publish_words(uint8_t* entry, const uint8_t* bytes, uint32_t size_bytes,
                          uint32_t last_offset) {
  const auto word = [entry](uint32_t at) { return reinterpret_cast<uint32_t*>(entry + at); };
  for (uint32_t at = 0; at < size_bytes; at += sizeof(uint32_t)) {
    if (at == last_offset) continue;
    __atomic_store_n(word(at), load_le<uint32_t>(bytes + at), __ATOMIC_RELEASE);
  }
  __atomic_store_n(word(last_offset), load_le<uint32_t>(bytes + last_offset), __ATOMIC_RELEASE);
}

}  // namespace cco
