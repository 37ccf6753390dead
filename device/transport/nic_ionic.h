// Pollara, second-generation operations: pure functions over bytes. Big-endian but for the entry's
// index and the doorbell.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/transport/nic_operation.h"

namespace cco {

constexpr uint32_t kIonicWqeBytes = 64;
constexpr uint8_t kIonicSendMsn = 2;
constexpr uint8_t kIonicSendNpg = 3;

/// `index`: the running index of the entry in a ring of `depth`, from which place and colour
/// follow. Errors as NicFormat::decode().
absl::StatusOr<NicOperation> decode_ionic(absl::Span<const uint8_t> bytes, uint64_t index,
                                          uint32_t depth);

struct IonicDoorbell {
  uint32_t qid = 0;
  uint32_t index = 0;
};
/// INVALID_ARGUMENT: not the doorbell of a send queue.
absl::StatusOr<IonicDoorbell> decode_ionic_doorbell(uint64_t doorbell);

struct IonicCompletion {
  uint32_t msg_msn = 0;  ///< Operations completed; 24 bits.
  uint16_t wqe_index = 0;
  uint32_t status = 0;
  uint32_t qid = 0;
  uint8_t type = kIonicSendMsn;
  uint8_t color = 1;
};
std::array<uint8_t, 32> encode_ionic_cqe(const IonicCompletion& completion);

}  // namespace cco
