// What an entry of a NIC's send queue asks for, whatever its format, and what may be wrong with it.
#pragma once

#include <array>
#include <cstdint>

namespace cco {

enum class NicOpcode : uint8_t {
  kNop,
  kWrite,        ///< Own memory to the peer's.
  kInlineWrite,  ///< The entry's own bytes to the peer's memory.
  kRead,         ///< The peer's memory to own.
  kFetchAdd,     ///< On the peer's 8 bytes; what they were goes to own memory.
  kCompareSwap,  ///< Likewise, masked.
  kLocalRead,    ///< Own memory is read and dropped: mlx5's DUMP.
};

/// What a completion can say. Each format has its own number for it.
enum class NicFault : uint8_t {
  kLength,            ///< Longer than a message may be.
  kQueueOperation,    ///< The entry, or what announces it, is malformed or not supported.
  kLocalProtection,   ///< Own range lies outside the window of its key.
  kFlushed,           ///< Not performed, because an earlier one failed.
  kRemoteInvalid,     ///< A misaligned atomic.
  kRemoteAccess,      ///< The peer's range lies outside the window of its key.
  kRemoteOperation,   ///< Memory could not be reached.
  kTransportRetries,  ///< The peer does not answer. Only by injection.
};

constexpr uint32_t kNicWqeBytes = 128;    ///< No supported entry is longer.
constexpr uint32_t kNicInlineBytes = 96;  ///< Nor has more payload of its own.
constexpr uint64_t kNicMessageBytes = uint64_t{1} << 30;

struct NicOperation {
  NicOpcode opcode = NicOpcode::kNop;
  uint8_t wire_opcode = 0;  ///< As the entry has it.
  bool signaled = false;    ///< Success is reported too.
  bool fence = false;       ///< After earlier reads and atomics; this NIC keeps order anyway.
  uint32_t units = 0;       ///< Of the send queue: mlx5 64 bytes, bnxt 16, ionic 64.
  uint64_t bytes = 0;
  uint32_t local_key = 0;
  uint64_t local_offset = 0;
  uint32_t remote_key = 0;
  uint64_t remote_offset = 0;
  uint64_t operand = 0;  ///< To add, or to swap in.
  uint64_t compare = 0;
  uint64_t swap_mask = ~uint64_t{0};
  uint64_t compare_mask = ~uint64_t{0};
  std::array<uint8_t, kNicInlineBytes> inline_data{};

  bool is_atomic() const {
    return opcode == NicOpcode::kFetchAdd || opcode == NicOpcode::kCompareSwap;
  }
};

/// Packets of a message of `bytes`: at least one.
constexpr uint32_t nic_packets(uint64_t bytes, uint32_t mtu_bytes) {
  return bytes == 0 ? 1 : static_cast<uint32_t>((bytes + mtu_bytes - 1) / mtu_bytes);
}

}  // namespace cco
