// Thor2: pure functions over bytes. Little-endian throughout.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/transport/nic_operation.h"

namespace cco {

constexpr uint32_t kBnxtSlotBytes = 16;
constexpr uint32_t kBnxtPsnMask = 0xffffff;

/// Errors as NicFormat::decode().
absl::StatusOr<NicOperation> decode_bnxt(absl::Span<const uint8_t> bytes);

/// One entry of the table that says which packets and which slot a message has.
struct BnxtMsn {
  uint32_t start_psn = 0;
  uint32_t next_psn = 0;
  uint16_t start_slot = 0;
};
BnxtMsn decode_bnxt_msn(uint64_t entry);

struct BnxtDoorbell {
  uint32_t index = 0;
  uint32_t epoch = 0;
  uint32_t qid = 0;
};
/// INVALID_ARGUMENT: not a valid doorbell of a send queue.
absl::StatusOr<BnxtDoorbell> decode_bnxt_doorbell(uint64_t doorbell);

struct BnxtCompletion {
  uint64_t qp_handle = 0;
  uint32_t consumer_index = 0;
  uint8_t phase = 1;
  uint8_t status = 0;
};
std::array<uint8_t, 32> encode_bnxt_cqe(const BnxtCompletion& completion);

}  // namespace cco
