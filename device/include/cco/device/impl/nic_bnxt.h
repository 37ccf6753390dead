// Thor2 queues. Little-endian throughout; a unit is a slot of 16 bytes, and every operation here
// takes three. Layouts: rdma-core, providers/bnxt_re/bnxt_re-abi.h.
#pragma once

#include "cco/device/impl/nic_bytes.h"

namespace cco::device::impl {

struct Bnxt {
  static constexpr uint32_t kUnits = 3;
  static constexpr bool kMsnTable = true;

  struct Entry {
    uint32_t word[12];
  };

  static CCO_HOST_DEVICE Entry encode(const NicRequest& request) {
    constexpr uint32_t kWrite = 0x04, kRead = 0x06, kFetchAdd = 0x0b;
    constexpr uint32_t kSignaled = 0x01, kInlineData = 0x10;
    Entry entry{};
    uint32_t* const word = entry.word;
    uint32_t opcode = kWrite;
    uint32_t flags = request.completion ? kSignaled : 0;
    const uint64_t value = inline_bytes(request);
    if (request.kind == NicKind::kFetchAdd) {
      opcode = kFetchAdd;
      word[1] = request.remote_key;
      word[2] = le32_low(request.remote_offset);
      word[3] = le32_high(request.remote_offset);
      word[4] = le32_low(request.value);
      word[5] = le32_high(request.value);
      scatter_entry(word, request, 8);
    } else {
      word[2] = request.bytes;
      word[4] = le32_low(request.remote_offset);
      word[5] = le32_high(request.remote_offset);
      word[6] = request.remote_key;
      if (request.kind == NicKind::kInline || request.kind == NicKind::kNothing) {
        // There is no operation that moves nothing: a write of no bytes.
        flags |= kInlineData;
        word[8] = le32_low(value);
        word[9] = le32_high(value);
      } else {
        if (request.kind == NicKind::kRead) opcode = kRead;
        scatter_entry(word, request, request.bytes);
      }
    }
    word[0] = opcode | flags << 8 | kUnits << 16;
    return entry;
  }

  /// How many sequence numbers an operation takes.
  static CCO_HOST_DEVICE uint32_t packets(const NicRequest& request, uint32_t mtu_bytes) {
    const bool bulk = request.kind == NicKind::kWrite || request.kind == NicKind::kRead;
    return bulk && request.bytes > mtu_bytes ? (request.bytes + (mtu_bytes - 1)) / mtu_bytes : 1;
  }
  static CCO_HOST_DEVICE uint64_t msn_entry(uint64_t slot, uint64_t psn, uint64_t next_psn) {
    return (psn & 0xffffff) | (next_psn & 0xffffff) << 24 | slot << 48;
  }

  /// The epoch flips each time the index wraps. `depth`: slots.
  static CCO_HOST_DEVICE uint64_t doorbell(uint32_t qpn, uint64_t next, uint32_t depth) {
    constexpr uint64_t kValid = uint64_t{1} << 58;
    const uint64_t epoch = (next & depth) != 0 ? 1 : 0;
    return (next & (depth - 1)) | epoch << 24 | uint64_t{qpn & 0xfffff} << 32 | kValid;
  }

  static CCO_DEVICE void write(const cco_gda_queue& queue, uint64_t index,
                               const NicRequest& request) {
    const Entry entry = encode(request);
    CCO_UNROLL for (uint32_t i = 0; i < kUnits; ++i) {
      const uint64_t slot = queue.sq + 16 * ((index + i) & (queue.sq_depth - 1));
      store_entry(slot, entry.word[4 * i], entry.word[4 * i + 1], entry.word[4 * i + 2],
                  entry.word[4 * i + 3]);
    }
  }
  /// By whoever has the turn of the slots from `index` on: sequence numbers follow their order.
  static CCO_DEVICE void write_msn(const cco_gda_queue& queue, uint64_t index, uint64_t psn,
                                   uint64_t next_psn) {
    const uint64_t message = index / kUnits;
    *global_pointer<uint64_t>(queue.msn_table + 8 * (message & (queue.msn_depth - 1))) =
        msn_entry(index & (queue.sq_depth - 1), psn, next_psn);
  }

  static CCO_DEVICE void ring(const cco_gda_queue& queue, uint64_t next) {
    store_release_system(global_pointer<uint64_t>(queue.doorbell),
                         doorbell(queue.qpn, next, queue.sq_depth));
  }

  static CCO_DEVICE NicProgress look(const cco_gda_queue& queue, uint64_t done,
                                     const uint64_t* rung) {
    constexpr uint32_t kIndexWord = 8, kStatusWord = 24;
    const uint32_t index = load_entry_word(queue.cq + kIndexWord);
    const uint64_t completed =
        widen_count(index, queue.sq_depth - 1, done, load_relaxed_device(rung));
    uint32_t status = load_entry_word(queue.cq + kStatusWord) >> 8 & 0xff;
    if (completed != done || status != 0) {
      // The status of whatever wrote that index, or of something later.
      acquire_system(global_pointer<const uint32_t>(queue.cq + kIndexWord));
      status = load_entry_word(queue.cq + kStatusWord) >> 8 & 0xff;
    }
    return NicProgress{status == 0 ? completed : done, status != 0, status};
  }

 private:
  static CCO_HOST_DEVICE void scatter_entry(uint32_t* word, const NicRequest& request,
                                            uint32_t bytes) {
    word[8] = le32_low(request.local_offset);
    word[9] = le32_high(request.local_offset);
    word[10] = request.local_key;
    word[11] = bytes;
  }
};

}  // namespace cco::device::impl
