#include "device/transport/nic_bnxt.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/nic_bytes.h"
#include "device/transport/nic_format.h"

namespace cco {
namespace {

constexpr uint32_t kHeaderSlots = 2;  // Header and operation.
constexpr uint32_t kUsualSlots = 3;   // With one place in memory.
constexpr uint8_t kSignaled = 0x01;
constexpr uint8_t kFences = 0x06;
constexpr uint8_t kInline = 0x10;
constexpr uint8_t kKnownFlags = 0x1f;

enum Opcode : uint8_t { kWrite = 0x04, kRead = 0x06, kCompareSwap = 0x08, kFetchAdd = 0x0b };

absl::Status wrong_slots(uint8_t opcode, uint32_t slots) {
  return absl::InvalidArgumentError(
      absl::StrFormat("opcode %#x does not have %d slots", opcode, slots));
}

// The one place in memory, which must hold as much as the header says.
absl::Status read_place(const uint8_t* slot, NicOperation& operation) {
  operation.local_offset = load_le<uint64_t>(slot);
  operation.local_key = load_le<uint32_t>(slot + 8);
  const uint32_t bytes = load_le<uint32_t>(slot + 12);
  if (bytes != operation.bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the header says %d bytes, the place in memory %d", operation.bytes, bytes));
  }
  return absl::OkStatus();
}

absl::Status read_payload(const uint8_t* wqe, uint8_t flags, NicOperation& operation) {
  const uint32_t slots = operation.units;
  if ((flags & kInline) != 0 && operation.opcode == NicOpcode::kWrite) {
    operation.opcode = NicOpcode::kInlineWrite;
    if (operation.bytes > kNicInlineBytes) {
      return absl::OutOfRangeError(absl::StrFormat("%d inline bytes", operation.bytes));
    }
    const auto needed = static_cast<uint32_t>(
        kHeaderSlots + (operation.bytes + kBnxtSlotBytes - 1) / kBnxtSlotBytes);
    if (slots != needed && operation.bytes != 0) {
      return wrong_slots(operation.wire_opcode, slots);
    }
    std::copy_n(wqe + kHeaderSlots * kBnxtSlotBytes, operation.bytes,
                operation.inline_data.begin());
    return absl::OkStatus();
  }
  if ((flags & kInline) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("opcode %#x with inline bytes", operation.wire_opcode));
  }
  if (operation.bytes > kNicMessageBytes) {
    return absl::OutOfRangeError(absl::StrFormat("a message of %d bytes", operation.bytes));
  }
  if (slots == kHeaderSlots && operation.bytes == 0) return absl::OkStatus();
  if (slots > kUsualSlots) return absl::UnimplementedError("more than one place in memory");
  if (slots != kUsualSlots) return wrong_slots(operation.wire_opcode, slots);
  return read_place(wqe + kHeaderSlots * kBnxtSlotBytes, operation);
}

absl::Status read_message(const uint8_t* wqe, uint8_t flags, NicOperation& operation) {
  operation.opcode = operation.wire_opcode == kWrite ? NicOpcode::kWrite : NicOpcode::kRead;
  operation.bytes = load_le<uint64_t>(wqe + 8);
  operation.remote_offset = load_le<uint64_t>(wqe + 16);
  operation.remote_key = load_le<uint32_t>(wqe + 24);
  if (load_le<uint32_t>(wqe + 4) != 0 || load_le<uint32_t>(wqe + 28) != 0) {
    return absl::InvalidArgumentError("reserved bytes of the entry are not zero");
  }
  return read_payload(wqe, flags, operation);
}

absl::Status read_atomic(const uint8_t* wqe, uint8_t flags, NicOperation& operation) {
  operation.opcode =
      operation.wire_opcode == kFetchAdd ? NicOpcode::kFetchAdd : NicOpcode::kCompareSwap;
  if (operation.units != kUsualSlots) return wrong_slots(operation.wire_opcode, operation.units);
  if ((flags & kInline) != 0) return absl::InvalidArgumentError("an atomic with inline bytes");
  operation.bytes = sizeof(uint64_t);
  operation.remote_key = load_le<uint32_t>(wqe + 4);
  operation.remote_offset = load_le<uint64_t>(wqe + 8);
  operation.operand = load_le<uint64_t>(wqe + 16);
  operation.compare = load_le<uint64_t>(wqe + 24);
  return read_place(wqe + kHeaderSlots * kBnxtSlotBytes, operation);
}

class Bnxt final : public NicFormat {
 public:
  std::string_view name() const override { return "bnxt"; }
  uint32_t unit_bytes() const override { return kBnxtSlotBytes; }
  uint32_t depth_units(uint32_t operations) const override {
    return std::bit_ceil(operations * kUsualSlots);
  }
  uint32_t msn_depth(uint32_t depth_units) const override { return depth_units / 2; }

  void reset_completion(const NicQueue& queue) const override { write(queue, 0, 0); }

  absl::StatusOr<uint32_t> pending(const NicQueue& queue, uint64_t doorbell) const override {
    CCO_ASSIGN_OR_RETURN(const BnxtDoorbell rung, decode_bnxt_doorbell(doorbell));
    if (rung.qid != queue.qpn) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the doorbell's queue pair is %#x instead of %#x", rung.qid, queue.qpn));
    }
    if (rung.index >= queue.depth_units) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the doorbell's index is %d in a ring of %d slots", rung.index, queue.depth_units));
    }
    const uint64_t position = uint64_t{rung.epoch} * queue.depth_units + rung.index;
    const uint64_t laps_mask = 2 * uint64_t{queue.depth_units} - 1;
    const auto waiting = static_cast<uint32_t>((position - queue.consumed_units) & laps_mask);
    if (waiting > queue.depth_units) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the doorbell's index %d and epoch %d announce %d slots in a ring of %d",
                          rung.index, rung.epoch, waiting, queue.depth_units));
    }
    return waiting;
  }

  absl::StatusOr<NicOperation> decode(const NicQueue& queue,
                                      absl::Span<const uint8_t> bytes) const override {
    CCO_ASSIGN_OR_RETURN(NicOperation operation, decode_bnxt(bytes));
    const uint64_t entry = queue.operations & (queue.msn_depth - 1);
    const BnxtMsn msn =
        decode_bnxt_msn(load_le<uint64_t>(queue.msn_table + entry * sizeof(uint64_t)));
    const auto slot = static_cast<uint16_t>(queue.consumed_units & (queue.depth_units - 1));
    const uint32_t next_psn =
        (queue.psn + nic_packets(operation.bytes, queue.mtu_bytes)) & kBnxtPsnMask;
    if (msn.start_slot != slot || msn.start_psn != queue.psn || msn.next_psn != next_psn) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "entry %d of the MSN table is slot %d, packets %#x to %#x, instead of slot %d, packets "
          "%#x to %#x",
          entry, msn.start_slot, msn.start_psn, msn.next_psn, slot, queue.psn, next_psn));
    }
    return operation;
  }

  void complete(const NicQueue& queue, const NicOperation& operation,
                uint32_t syndrome) const override {
    write(queue, operation.units, syndrome);
  }

  uint32_t syndrome(NicFault fault) const override {
    switch (fault) {
      case NicFault::kLength:
        return 2;
      case NicFault::kQueueOperation:
        return 3;
      case NicFault::kLocalProtection:
        return 4;
      case NicFault::kFlushed:
        return 0xb;
      case NicFault::kRemoteInvalid:
        return 6;
      case NicFault::kRemoteAccess:
        return 7;
      case NicFault::kRemoteOperation:
        return 8;
      case NicFault::kTransportRetries:
        return 0xa;
    }
    return 3;
  }

 private:
  static void write(const NicQueue& queue, uint32_t units, uint32_t syndrome) {
    const uint64_t consumed = queue.consumed_units + units;
    const std::array<uint8_t, 32> entry = encode_bnxt_cqe(
        {.qp_handle = queue.qpn,
         .consumer_index = static_cast<uint32_t>(consumed & (queue.depth_units - 1)),
         .status = static_cast<uint8_t>(syndrome)});
    publish_words(queue.cq, entry.data(), entry.size(), 8);
  }
};

}  // namespace

absl::StatusOr<NicOperation> decode_bnxt(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kBnxtSlotBytes) {
    return absl::InvalidArgumentError("less than a header is announced");
  }
  const uint8_t flags = bytes[1];
  NicOperation operation;
  operation.wire_opcode = bytes[0];
  operation.units = bytes[2];
  operation.signaled = (flags & kSignaled) != 0;
  operation.fence = (flags & kFences) != 0;
  if (bytes[3] != 0 || (flags & ~kKnownFlags) != 0) {
    return absl::InvalidArgumentError("reserved bits of the header are not zero");
  }
  if (operation.units < kHeaderSlots) return wrong_slots(bytes[0], operation.units);
  if (operation.units * kBnxtSlotBytes > kNicWqeBytes) {
    return absl::UnimplementedError(absl::StrFormat("an entry of %d slots", operation.units));
  }
  if (operation.units * kBnxtSlotBytes > bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("an entry of %d slots reaches past what is announced", operation.units));
  }
  switch (operation.wire_opcode) {
    case kWrite:
    case kRead:
      CCO_RETURN_IF_ERROR(read_message(bytes.data(), flags, operation));
      return operation;
    case kCompareSwap:
    case kFetchAdd:
      CCO_RETURN_IF_ERROR(read_atomic(bytes.data(), flags, operation));
      return operation;
    default:
      return absl::UnimplementedError(absl::StrFormat("opcode %#x", operation.wire_opcode));
  }
}

BnxtMsn decode_bnxt_msn(uint64_t entry) {
  return {static_cast<uint32_t>(entry & kBnxtPsnMask),
          static_cast<uint32_t>(entry >> 24 & kBnxtPsnMask), static_cast<uint16_t>(entry >> 48)};
}

absl::StatusOr<BnxtDoorbell> decode_bnxt_doorbell(uint64_t doorbell) {
  const auto low = static_cast<uint32_t>(doorbell);
  const auto high = static_cast<uint32_t>(doorbell >> 32);
  constexpr uint32_t kValid = 1u << 26;
  if (low >> 25 != 0 || (high & ~0xfffffu) != kValid) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%#x is not the valid doorbell of a send queue", doorbell));
  }
  return BnxtDoorbell{low & 0xffffff, low >> 24, high & 0xfffff};
}

std::array<uint8_t, 32> encode_bnxt_cqe(const BnxtCompletion& completion) {
  std::array<uint8_t, 32> entry{};
  store_le(&entry[0], completion.qp_handle);
  store_le(&entry[8], completion.consumer_index);
  entry[24] = completion.phase;
  entry[25] = completion.status;
  return entry;
}

const NicFormat& nic_bnxt() {
  static const Bnxt format;
  return format;
}

}  // namespace cco
