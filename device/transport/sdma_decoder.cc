#include "device/transport/sdma_decoder.h"

#include <string>

#include "absl/strings/str_format.h"
#include "cco/device/impl/sdma_packets.h"
#include "client/base/status_macros.h"

namespace cco {
namespace {

namespace format = device::impl;

constexpr uint32_t kOperation = 0xffff;  // Operation and sub-operation.

uint64_t join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

absl::Status bad(const char* packet, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrFormat("%s packet with %s", packet, what));
}

absl::Status check_length(const char* packet, uint32_t needed, absl::Span<const uint32_t> dwords) {
  if (dwords.size() >= needed) return absl::OkStatus();
  return bad(packet, absl::StrFormat("%d dwords, of which %d lie before the end of the ring or of "
                                     "what was rung",
                                     needed, dwords.size()));
}

absl::Status check_word(const char* packet, const char* what, uint32_t value, uint32_t expected) {
  if (value == expected) return absl::OkStatus();
  return bad(packet, absl::StrFormat("%s %#010x, not %#010x", what, value, expected));
}

absl::Status check_aligned(const char* packet, uint64_t address, uint64_t alignment) {
  if (address % alignment == 0 && address != 0) return absl::OkStatus();
  return bad(packet, absl::StrFormat("address %#x, not a multiple of %d", address, alignment));
}

absl::StatusOr<SdmaPacket> decode_nop(absl::Span<const uint32_t> dwords) {
  const uint32_t skipped = dwords[0] >> 16 & 0x3fff;
  CCO_RETURN_IF_ERROR(check_word("NOP", "header", dwords[0], skipped << 16 | format::kSdmaNop));
  CCO_RETURN_IF_ERROR(check_length("NOP", 1 + skipped, dwords));
  SdmaPacket packet;
  packet.dwords = 1 + skipped;
  return packet;
}

absl::StatusOr<SdmaPacket> decode_copy(bool scoped, absl::Span<const uint32_t> dwords) {
  CCO_RETURN_IF_ERROR(check_length("COPY", 7, dwords));
  CCO_RETURN_IF_ERROR(check_word("COPY", "header", dwords[0],
                                 format::kSdmaCopyLinear | (scoped ? format::kSdmaCopyNpd : 0)));
  CCO_RETURN_IF_ERROR(
      check_word("COPY", "parameters", dwords[2], scoped ? format::kSdmaCopyScopes : 0));
  SdmaPacket packet;
  packet.kind = SdmaPacket::Kind::kCopy;
  packet.dwords = 7;
  packet.value = uint64_t{dwords[1]} + 1;
  packet.source = join(dwords[3], dwords[4]);
  packet.destination = join(dwords[5], dwords[6]);
  if (packet.value > format::kSdmaLargestCopy) {
    return bad("COPY",
               absl::StrFormat("%d bytes, above %d", packet.value, format::kSdmaLargestCopy));
  }
  return packet;
}

absl::StatusOr<SdmaPacket> decode_atomic(bool scoped, absl::Span<const uint32_t> dwords) {
  CCO_RETURN_IF_ERROR(check_length("ATOMIC", 8, dwords));
  CCO_RETURN_IF_ERROR(check_word(
      "ATOMIC", "header", dwords[0],
      format::kSdmaAtomic | format::kSdmaAtomicAdd64 | (scoped ? format::kSdmaAtomicScope : 0)));
  for (const uint32_t i : {5, 6, 7}) {
    CCO_RETURN_IF_ERROR(check_word("ATOMIC", "comparison or interval", dwords[i], 0));
  }
  SdmaPacket packet;
  packet.kind = SdmaPacket::Kind::kAdd;
  packet.dwords = 8;
  packet.destination = join(dwords[1], dwords[2]);
  packet.value = join(dwords[3], dwords[4]);
  CCO_RETURN_IF_ERROR(check_aligned("ATOMIC", packet.destination, 8));
  return packet;
}

absl::StatusOr<SdmaPacket> decode_fence(bool scoped, absl::Span<const uint32_t> dwords) {
  CCO_RETURN_IF_ERROR(check_length("FENCE", 4, dwords));
  CCO_RETURN_IF_ERROR(check_word(
      "FENCE", "header", dwords[0],
      format::kSdmaFence | (scoped ? format::kSdmaFenceUncached | format::kSdmaFenceScope : 0)));
  SdmaPacket packet;
  packet.kind = SdmaPacket::Kind::kFence;
  packet.dwords = 4;
  packet.destination = join(dwords[1], dwords[2]);
  packet.value = dwords[3];
  CCO_RETURN_IF_ERROR(check_aligned("FENCE", packet.destination, 4));
  return packet;
}

}  // namespace

absl::StatusOr<SdmaPacket> decode_sdma(uint32_t packets, absl::Span<const uint32_t> dwords) {
  if (dwords.empty()) return absl::InvalidArgumentError("no packet");
  const bool scoped = packets == CCO_SDMA_PACKETS_GFX1250;
  switch (dwords[0] & kOperation) {
    case format::kSdmaNop:
      return decode_nop(dwords);
    case format::kSdmaCopyLinear:
      return decode_copy(scoped, dwords);
    case format::kSdmaAtomic:
      return decode_atomic(scoped, dwords);
    case format::kSdmaFence:
      return decode_fence(scoped, dwords);
    default:
      return absl::InvalidArgumentError(
          absl::StrFormat("operation %d.%d, which no kernel of ours writes (header %#010x)",
                          dwords[0] & 0xff, dwords[0] >> 8 & 0xff, dwords[0]));
  }
}

}  // namespace cco
