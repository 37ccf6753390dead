#include "device/transport/nic_mlx5.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/nic_bytes.h"
#include "device/transport/nic_format.h"

namespace cco {
namespace {

constexpr uint32_t kSegmentBytes = 16;
constexpr uint32_t kInlineFlag = 0x80000000u;
constexpr uint8_t kReservedControl = 0x11;  // Of fm_ce_se.
constexpr uint8_t kAlwaysComplete = 0x08;
constexpr uint8_t kOperand64 = 9;  // opmod of masked atomics on 8 bytes.

enum Opcode : uint8_t {
  kNop = 0x00,
  kWrite = 0x08,
  kRead = 0x10,
  kCompareSwap = 0x11,
  kFetchAdd = 0x12,
  kMaskedCompareSwap = 0x14,
  kMaskedFetchAdd = 0x15,
  kDump = 0x23,
};

// The segments of one entry, read front to back.
class Segments {
 public:
  Segments(absl::Span<const uint8_t> bytes, uint32_t count) : bytes_(bytes), count_(count) {}

  uint32_t left() const { return count_ - next_; }
  const uint8_t* peek() const { return bytes_.data() + next_ * kSegmentBytes; }
  const uint8_t* take() { return bytes_.data() + next_++ * kSegmentBytes; }

 private:
  const absl::Span<const uint8_t> bytes_;
  const uint32_t count_;
  uint32_t next_ = 1;  // The control segment has been read.
};

absl::Status wrong_segments(uint8_t opcode, uint32_t count) {
  return absl::InvalidArgumentError(
      absl::StrFormat("opcode %#x does not have %d segments", opcode, count));
}

absl::Status read_remote(Segments& segments, NicOperation& operation) {
  const uint8_t* const segment = segments.take();
  operation.remote_offset = load_be<uint64_t>(segment);
  operation.remote_key = load_be<uint32_t>(segment + 8);
  if (load_be<uint32_t>(segment + 12) != 0) {
    return absl::InvalidArgumentError("reserved bytes of the remote address segment are not zero");
  }
  return absl::OkStatus();
}

absl::Status read_data(Segments& segments, NicOperation& operation) {
  const uint8_t* const segment = segments.take();
  operation.bytes = load_be<uint32_t>(segment);
  operation.local_key = load_be<uint32_t>(segment + 4);
  operation.local_offset = load_be<uint64_t>(segment + 8);
  if (operation.bytes == 0) {
    return absl::InvalidArgumentError("a data segment of byte count 0, which means 2 GiB");
  }
  if (operation.bytes > kNicMessageBytes) {
    return absl::OutOfRangeError(absl::StrFormat("a message of %d bytes", operation.bytes));
  }
  return absl::OkStatus();
}

absl::Status read_inline(Segments& segments, NicOperation& operation) {
  operation.opcode = NicOpcode::kInlineWrite;
  operation.bytes = load_be<uint32_t>(segments.peek()) & ~kInlineFlag;
  const uint64_t needed = (sizeof(uint32_t) + operation.bytes + kSegmentBytes - 1) / kSegmentBytes;
  if (needed != segments.left()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d inline bytes in %d segments", operation.bytes, segments.left()));
  }
  std::copy_n(segments.peek() + sizeof(uint32_t), operation.bytes, operation.inline_data.begin());
  return absl::OkStatus();
}

absl::Status read_write(Segments& segments, uint32_t count, NicOperation& operation) {
  operation.opcode = NicOpcode::kWrite;
  if (count < 2) return wrong_segments(kWrite, count);
  CCO_RETURN_IF_ERROR(read_remote(segments, operation));
  if (segments.left() == 0) return absl::OkStatus();  // Zero bytes.
  if ((load_be<uint32_t>(segments.peek()) & kInlineFlag) != 0) {
    return read_inline(segments, operation);
  }
  if (segments.left() > 1) return absl::UnimplementedError("a write from several places");
  return read_data(segments, operation);
}

absl::Status read_read(Segments& segments, uint32_t count, NicOperation& operation) {
  operation.opcode = NicOpcode::kRead;
  if (count < 2) return wrong_segments(kRead, count);
  CCO_RETURN_IF_ERROR(read_remote(segments, operation));
  if (segments.left() == 0) return absl::OkStatus();
  if (segments.left() > 1) return absl::UnimplementedError("a read into several places");
  return read_data(segments, operation);
}

absl::Status read_result(Segments& segments, NicOperation& operation) {
  CCO_RETURN_IF_ERROR(read_data(segments, operation));
  if (operation.bytes == sizeof(uint64_t)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("a 64-bit atomic with a result of %d bytes", operation.bytes));
}

absl::Status read_plain_atomic(Segments& segments, uint32_t count, NicOperation& operation) {
  if (count != 4) return wrong_segments(operation.wire_opcode, count);
  CCO_RETURN_IF_ERROR(read_remote(segments, operation));
  const uint8_t* const atomic = segments.take();
  operation.operand = load_be<uint64_t>(atomic);
  operation.compare = load_be<uint64_t>(atomic + 8);
  return read_result(segments, operation);
}

absl::Status read_masked_atomic(Segments& segments, uint32_t count, uint8_t operand_size,
                                NicOperation& operation) {
  if (operand_size != kOperand64) {
    return absl::UnimplementedError(absl::StrFormat("an atomic of operand size %d", operand_size));
  }
  const bool swaps = operation.wire_opcode == kMaskedCompareSwap;
  if (count != (swaps ? 5u : 4u)) return wrong_segments(operation.wire_opcode, count);
  CCO_RETURN_IF_ERROR(read_remote(segments, operation));
  const uint8_t* const values = segments.take();
  operation.operand = load_be<uint64_t>(values);
  if (swaps) {
    operation.compare = load_be<uint64_t>(values + 8);
    const uint8_t* const masks = segments.take();
    operation.swap_mask = load_be<uint64_t>(masks);
    operation.compare_mask = load_be<uint64_t>(masks + 8);
  } else if (load_be<uint64_t>(values + 8) != 0) {
    return absl::UnimplementedError("a masked addition with field boundaries");
  }
  return read_result(segments, operation);
}

absl::Status read_body(Segments& segments, uint32_t count, uint8_t opmod, NicOperation& operation) {
  const uint8_t opcode = operation.wire_opcode;
  const bool is_masked = opcode == kMaskedCompareSwap || opcode == kMaskedFetchAdd;
  if (opmod != 0 && !is_masked) {
    return absl::InvalidArgumentError(absl::StrFormat("opcode %#x with opmod %d", opcode, opmod));
  }
  switch (opcode) {
    case kNop:
      return count <= 2 ? absl::OkStatus() : wrong_segments(opcode, count);
    case kWrite:
      return read_write(segments, count, operation);
    case kRead:
      return read_read(segments, count, operation);
    case kCompareSwap:
    case kFetchAdd:
    case kMaskedCompareSwap:
    case kMaskedFetchAdd:
      operation.opcode = opcode == kFetchAdd || opcode == kMaskedFetchAdd ? NicOpcode::kFetchAdd
                                                                          : NicOpcode::kCompareSwap;
      return is_masked ? read_masked_atomic(segments, count, opmod, operation)
                       : read_plain_atomic(segments, count, operation);
    case kDump:
      operation.opcode = NicOpcode::kLocalRead;
      return count == 2 ? read_data(segments, operation) : wrong_segments(opcode, count);
    default:
      return absl::UnimplementedError(absl::StrFormat("opcode %#x", opcode));
  }
}

absl::Status check_control(absl::Span<const uint8_t> bytes, uint64_t index, uint32_t qpn) {
  const uint32_t first = load_be<uint32_t>(bytes.data());
  const uint32_t second = load_be<uint32_t>(bytes.data() + 4);
  if ((first >> 8 & 0xffff) != (index & 0xffff)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the control segment's index is %#x instead of %#x", first >> 8 & 0xffff, index & 0xffff));
  }
  if (second >> 8 != qpn) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the control segment's queue pair is %#x instead of %#x", second >> 8, qpn));
  }
  if (bytes[8] != 0 || bytes[9] != 0 || bytes[10] != 0 || (bytes[11] & kReservedControl) != 0) {
    return absl::InvalidArgumentError("reserved bits of the control segment are not zero");
  }
  return absl::OkStatus();
}

class Mlx5 final : public NicFormat {
 public:
  std::string_view name() const override { return "mlx5"; }
  uint32_t unit_bytes() const override { return kMlx5BlockBytes; }
  uint32_t depth_units(uint32_t operations) const override { return operations; }

  void reset_completion(const NicQueue& queue) const override {
    std::array<uint8_t, 64> entry;
    entry.fill(0xff);
    // The last block before the first: 0xffff for a queue that starts at 0.
    store_be(&entry[60], static_cast<uint16_t>(queue.consumed_units - 1));
    publish_words(queue.cq, entry.data(), entry.size(), 60);
  }

  absl::StatusOr<uint32_t> pending(const NicQueue& queue, uint64_t doorbell) const override {
    const Mlx5Doorbell rung = decode_mlx5_doorbell(doorbell);
    if (rung.qpn != queue.qpn) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the doorbell's queue pair is %#x instead of %#x", rung.qpn, queue.qpn));
    }
    const uint32_t send = swap_bytes(__atomic_load_n(queue.doorbell_record + 1, __ATOMIC_ACQUIRE));
    if (send > 0xffff) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the doorbell record is %#x, above 16 bits", send));
    }
    // The record may be ahead of a doorbell that was overtaken, never behind it.
    const auto lead = static_cast<uint16_t>(send - rung.next);
    if (lead > 2 * queue.depth_units) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the doorbell announces index %#x, the doorbell record only %#x", rung.next, send));
    }
    const auto waiting = static_cast<uint16_t>(send - queue.consumed_units);
    if (waiting > queue.depth_units) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%d blocks are announced in a queue of %d", waiting, queue.depth_units));
    }
    return waiting;
  }

  absl::StatusOr<NicOperation> decode(const NicQueue& queue,
                                      absl::Span<const uint8_t> bytes) const override {
    return decode_mlx5(bytes, queue.consumed_units, queue.qpn);
  }

  void complete(const NicQueue& queue, const NicOperation& operation,
                uint32_t syndrome) const override {
    const std::array<uint8_t, 64> entry =
        encode_mlx5_cqe({.opcode = syndrome == 0 ? kMlx5CqeRequest : kMlx5CqeRequestError,
                         .owner = static_cast<uint8_t>(queue.completions & 1),
                         .wqe_opcode = operation.wire_opcode,
                         .syndrome = static_cast<uint8_t>(syndrome),
                         .wqe_counter = static_cast<uint16_t>(queue.consumed_units),
                         .qpn = queue.qpn});
    publish_words(queue.cq, entry.data(), entry.size(), 60);
  }

  uint32_t syndrome(NicFault fault) const override {
    switch (fault) {
      case NicFault::kLength:
        return 0x01;
      case NicFault::kQueueOperation:
        return 0x02;
      case NicFault::kLocalProtection:
        return 0x04;
      case NicFault::kFlushed:
        return 0x05;
      case NicFault::kRemoteInvalid:
        return 0x12;
      case NicFault::kRemoteAccess:
        return 0x13;
      case NicFault::kRemoteOperation:
        return 0x14;
      case NicFault::kTransportRetries:
        return 0x15;
    }
    return 0x02;
  }
};

}  // namespace

absl::StatusOr<NicOperation> decode_mlx5(absl::Span<const uint8_t> bytes, uint64_t index,
                                         uint32_t qpn) {
  if (bytes.size() < kSegmentBytes) {
    return absl::InvalidArgumentError("less than a control segment is announced");
  }
  CCO_RETURN_IF_ERROR(check_control(bytes, index, qpn));
  const uint32_t count = bytes[7];
  if (count == 0 || count > 63) {
    return absl::InvalidArgumentError(absl::StrFormat("a count of %d segments", count));
  }
  if (count * kSegmentBytes > kNicWqeBytes) {
    return absl::UnimplementedError(absl::StrFormat("an entry of %d segments", count));
  }
  if (count * kSegmentBytes > bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("an entry of %d segments reaches past what is announced", count));
  }
  NicOperation operation;
  operation.wire_opcode = bytes[3];
  operation.signaled = (bytes[11] & kAlwaysComplete) != 0;
  operation.fence = bytes[11] >> 5 != 0;
  operation.units = (count * kSegmentBytes + kMlx5BlockBytes - 1) / kMlx5BlockBytes;
  Segments segments(bytes, count);
  CCO_RETURN_IF_ERROR(read_body(segments, count, bytes[0], operation));
  if (load_be<uint32_t>(bytes.data() + 12) != 0) {
    return absl::InvalidArgumentError("an immediate that the operation does not take");
  }
  return operation;
}

Mlx5Doorbell decode_mlx5_doorbell(uint64_t doorbell) {
  uint8_t bytes[sizeof doorbell];
  store_le(bytes, doorbell);
  // An entry has at least one segment, the other form says zero.
  const uint32_t blocks = (bytes[7] * kSegmentBytes + kMlx5BlockBytes - 1) / kMlx5BlockBytes;
  return {load_be<uint32_t>(bytes + 4) >> 8,
          static_cast<uint16_t>((load_be<uint32_t>(bytes) >> 8) + blocks)};
}

std::array<uint8_t, 64> encode_mlx5_cqe(const Mlx5Completion& completion) {
  std::array<uint8_t, 64> entry{};
  entry[54] = completion.vendor_syndrome;
  entry[55] = completion.syndrome;
  store_be(&entry[56], uint32_t{completion.wqe_opcode} << 24 | completion.qpn);
  store_be(&entry[60], completion.wqe_counter);
  entry[63] = static_cast<uint8_t>(completion.opcode << 4 | completion.owner);
  return entry;
}

const NicFormat& nic_mlx5() {
  static const Mlx5 format;
  return format;
}

}  // namespace cco
