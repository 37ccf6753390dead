#include "device/transport/nic_ionic.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/nic_bytes.h"
#include "device/transport/nic_format.h"

namespace cco {
namespace {

constexpr uint16_t kFence = 0x01;
constexpr uint16_t kInline = 0x04;
constexpr uint16_t kSignaled = 0x08;
constexpr uint16_t kColor = 0x10;
constexpr uint16_t kKnownFlags = 0x1f;
constexpr uint32_t kInlineBytes = 32;
constexpr uint32_t kMsnMask = 0xffffff;

enum Opcode : uint8_t { kRead = 0x02, kCompareSwap = 0x04, kFetchAdd = 0x05, kWrite = 0x21 };

absl::Status wrong_places(uint8_t opcode, uint32_t count) {
  return absl::InvalidArgumentError(
      absl::StrFormat("opcode %#x with %d places in memory", opcode, count));
}

absl::Status read_message(const uint8_t* wqe, uint16_t flags, NicOperation& operation) {
  const uint32_t places = wqe[9];
  operation.opcode = operation.wire_opcode == kWrite ? NicOpcode::kWrite : NicOpcode::kRead;
  operation.bytes = load_be<uint32_t>(wqe + 28);
  if ((flags & kInline) != 0) {
    if (operation.opcode != NicOpcode::kWrite || places != 0) {
      return absl::InvalidArgumentError("inline bytes beside places in memory, or of a read");
    }
    if (operation.bytes > kInlineBytes) {
      return absl::OutOfRangeError(absl::StrFormat("%d inline bytes", operation.bytes));
    }
    operation.opcode = NicOpcode::kInlineWrite;
    std::copy_n(wqe + 32, operation.bytes, operation.inline_data.begin());
    return absl::OkStatus();
  }
  if (operation.bytes > kNicMessageBytes) {
    return absl::OutOfRangeError(absl::StrFormat("a message of %d bytes", operation.bytes));
  }
  if (places == 0 && operation.bytes == 0) return absl::OkStatus();
  if (places == 2) return absl::UnimplementedError("more than one place in memory");
  if (places != 1) return wrong_places(operation.wire_opcode, places);
  operation.local_offset = load_be<uint64_t>(wqe + 32);
  operation.local_key = load_be<uint32_t>(wqe + 44);
  const uint32_t bytes = load_be<uint32_t>(wqe + 40);
  if (bytes != operation.bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the body says %d bytes, the place in memory %d", operation.bytes, bytes));
  }
  return absl::OkStatus();
}

absl::Status read_atomic(const uint8_t* wqe, uint16_t flags, NicOperation& operation) {
  if (wqe[9] != 1 || (flags & kInline) != 0) return wrong_places(operation.wire_opcode, wqe[9]);
  operation.opcode =
      operation.wire_opcode == kFetchAdd ? NicOpcode::kFetchAdd : NicOpcode::kCompareSwap;
  operation.bytes = sizeof(uint64_t);
  operation.operand = load_be<uint64_t>(wqe + 28);
  operation.compare = load_be<uint64_t>(wqe + 36);
  operation.local_key = load_be<uint32_t>(wqe + 44);
  operation.local_offset = load_be<uint64_t>(wqe + 48);
  return absl::OkStatus();
}

absl::Status check_header(const uint8_t* wqe, uint64_t index, uint32_t depth, uint16_t flags) {
  const bool first_color = (index / depth) % 2 == 0;
  if (((flags & kColor) != 0) != first_color) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the colour is %d instead of %d: not written since the last lap",
                        !first_color, first_color));
  }
  // Drivers store either the place in the ring or a running count.
  if (((load_le<uint64_t>(wqe) - index) & (depth - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("the entry's index is %#x instead of %#x",
                                                      load_le<uint64_t>(wqe), index & (depth - 1)));
  }
  if ((flags & ~kKnownFlags) != 0) {
    return absl::InvalidArgumentError("reserved bits of the header are not zero");
  }
  return absl::OkStatus();
}

class Ionic final : public NicFormat {
 public:
  std::string_view name() const override { return "ionic"; }
  uint32_t unit_bytes() const override { return kIonicWqeBytes; }
  uint32_t depth_units(uint32_t operations) const override { return operations; }

  void reset_completion(const NicQueue& queue) const override { write(queue, queue.operations, 0); }

  absl::StatusOr<uint32_t> pending(const NicQueue& queue, uint64_t doorbell) const override {
    CCO_ASSIGN_OR_RETURN(const IonicDoorbell rung, decode_ionic_doorbell(doorbell));
    if (rung.qid != queue.qpn) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the doorbell's queue is %#x instead of %#x", rung.qid, queue.qpn));
    }
    if (rung.index >= queue.depth_units) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the doorbell's index is %d in a ring of %d", rung.index, queue.depth_units));
    }
    // One place stays free, so that full and empty differ.
    return static_cast<uint32_t>((rung.index - queue.consumed_units) & (queue.depth_units - 1));
  }

  absl::StatusOr<NicOperation> decode(const NicQueue& queue,
                                      absl::Span<const uint8_t> bytes) const override {
    return decode_ionic(bytes, queue.consumed_units, queue.depth_units);
  }

  void complete(const NicQueue& queue, const NicOperation& /*operation*/,
                uint32_t syndrome) const override {
    // What follows the first error is not reported: drivers flush it themselves.
    if (syndrome == this->syndrome(NicFault::kFlushed)) return;
    write(queue, queue.operations + (syndrome == 0 ? 1 : 0), syndrome);
  }

  uint32_t syndrome(NicFault fault) const override {
    switch (fault) {
      case NicFault::kLength:
        return 1;
      case NicFault::kQueueOperation:
        return 2;
      case NicFault::kLocalProtection:
        return 3;
      case NicFault::kFlushed:
        return 4;
      case NicFault::kRemoteInvalid:
        return 8;
      case NicFault::kRemoteAccess:
        return 9;
      case NicFault::kRemoteOperation:
        return 10;
      case NicFault::kTransportRetries:
        return 11;
    }
    return 2;
  }

 private:
  static void write(const NicQueue& queue, uint64_t completed, uint32_t syndrome) {
    const std::array<uint8_t, 32> entry = encode_ionic_cqe(
        {.msg_msn = static_cast<uint32_t>(completed & kMsnMask),
         .wqe_index = static_cast<uint16_t>(queue.consumed_units & (queue.depth_units - 1)),
         .status = syndrome,
         .qid = queue.qpn});
    // The count is what kernels wait for; an error leaves it as it was and shows in the flags.
    publish_words(queue.cq, entry.data(), entry.size(), 4);
  }
};

}  // namespace

absl::StatusOr<NicOperation> decode_ionic(absl::Span<const uint8_t> bytes, uint64_t index,
                                          uint32_t depth) {
  if (bytes.size() < kIonicWqeBytes) {
    return absl::InvalidArgumentError("less than an entry is announced");
  }
  const uint8_t* const wqe = bytes.data();
  const uint16_t flags = load_be<uint16_t>(wqe + 10);
  CCO_RETURN_IF_ERROR(check_header(wqe, index, depth, flags));
  NicOperation operation;
  operation.wire_opcode = wqe[8];
  operation.signaled = (flags & kSignaled) != 0;
  operation.fence = (flags & kFence) != 0;
  operation.units = 1;
  operation.remote_offset = load_be<uint64_t>(wqe + 16);
  operation.remote_key = load_be<uint32_t>(wqe + 24);
  switch (operation.wire_opcode) {
    case kWrite:
    case kRead:
      CCO_RETURN_IF_ERROR(read_message(wqe, flags, operation));
      break;
    case kCompareSwap:
    case kFetchAdd:
      CCO_RETURN_IF_ERROR(read_atomic(wqe, flags, operation));
      break;
    default:
      return absl::UnimplementedError(absl::StrFormat("opcode %#x", operation.wire_opcode));
  }
  if (load_be<uint32_t>(wqe + 12) != 0) {
    return absl::InvalidArgumentError("an immediate that the operation does not take");
  }
  return operation;
}

absl::StatusOr<IonicDoorbell> decode_ionic_doorbell(uint64_t doorbell) {
  if ((doorbell & 0xff0000) != 0 || doorbell >> 48 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%#x is not the doorbell of a send queue", doorbell));
  }
  return IonicDoorbell{static_cast<uint32_t>(doorbell >> 24),
                       static_cast<uint32_t>(doorbell & 0xffff)};
}

std::array<uint8_t, 32> encode_ionic_cqe(const IonicCompletion& completion) {
  std::array<uint8_t, 32> entry{};
  store_be(&entry[4], completion.msg_msn);
  store_le(&entry[16], uint64_t{completion.wqe_index});
  store_be(&entry[24], completion.status);
  const uint32_t has_failed = completion.status != 0 ? 2 : 0;
  store_be(&entry[28],
           completion.qid << 8 | uint32_t{completion.type} << 5 | has_failed | completion.color);
  return entry;
}

const NicFormat& nic_ionic() {
  static const Ionic format;
  return format;
}

}  // namespace cco
