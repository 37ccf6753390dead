// ConnectX: pure functions over bytes. Big-endian throughout.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/transport/nic_operation.h"

namespace cco {

constexpr uint32_t kMlx5BlockBytes = 64;
constexpr uint8_t kMlx5CqeRequest = 0x0;
constexpr uint8_t kMlx5CqeRequestError = 0xd;

/// `index`: the running block index; its low 16 bits are compared. Errors as NicFormat::decode().
absl::StatusOr<NicOperation> decode_mlx5(absl::Span<const uint8_t> bytes, uint64_t index,
                                         uint32_t qpn);

struct Mlx5Doorbell {
  uint32_t qpn = 0;
  uint16_t next = 0;  ///< The first block that is not announced.
};
/// Both published forms: the first 8 bytes of the last entry, or the next index.
Mlx5Doorbell decode_mlx5_doorbell(uint64_t doorbell);

struct Mlx5Completion {
  uint8_t opcode = kMlx5CqeRequest;
  uint8_t owner = 0;
  uint8_t wqe_opcode = 0;
  uint8_t syndrome = 0;
  uint8_t vendor_syndrome = 0;
  uint16_t wqe_counter = 0;
  uint32_t qpn = 0;
};
std::array<uint8_t, 64> encode_mlx5_cqe(const Mlx5Completion& completion);

}  // namespace cco
