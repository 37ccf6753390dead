// Pollara queues, second opcode set. Big-endian but for the index and the doorbell; a unit is a
// work queue entry of 64 bytes. Layouts: rdma-core, providers/ionic/ionic_fw_types.h.
#pragma once

#include "cco/device/impl/nic_bytes.h"

namespace cco::device::impl {

struct Ionic {
  static constexpr uint32_t kUnits = 1;
  static constexpr bool kMsnTable = false;

  struct Entry {
    uint32_t word[16];
  };

  /// `depth`: entries. The colour is 1 on the first lap and flips on each.
  static CCO_HOST_DEVICE Entry encode(const NicRequest& request, uint64_t index, uint32_t depth) {
    constexpr uint32_t kRead = 0x02, kFetchAdd = 0x05, kWrite = 0x21;
    constexpr uint32_t kInlineData = 0x04, kSignaled = 0x08, kColour = 0x10;
    Entry entry{};
    uint32_t* const word = entry.word;
    uint32_t opcode = kWrite;
    uint32_t scatter_count = 1;
    uint32_t flags = ((index & depth) == 0 ? kColour : 0) | (request.completion ? kSignaled : 0);
    word[4] = be32_high(request.remote_offset);
    word[5] = be32_low(request.remote_offset);
    word[6] = be32(request.remote_key);
    if (request.kind == NicKind::kFetchAdd) {
      opcode = kFetchAdd;
      word[7] = be32_high(request.value);
      word[8] = be32_low(request.value);
      word[11] = be32(request.local_key);
      word[12] = be32_high(request.local_offset);
      word[13] = be32_low(request.local_offset);
    } else if (request.kind == NicKind::kInline || request.kind == NicKind::kNothing) {
      // There is no operation that moves nothing: a write of no bytes.
      const uint64_t value = inline_bytes(request);
      scatter_count = 0;
      flags |= kInlineData;
      word[7] = be32(request.bytes);
      word[8] = le32_low(value);
      word[9] = le32_high(value);
    } else {
      if (request.kind == NicKind::kRead) opcode = kRead;
      word[7] = be32(request.bytes);
      word[8] = be32_high(request.local_offset);
      word[9] = be32_low(request.local_offset);
      word[10] = be32(request.bytes);
      word[11] = be32(request.local_key);
    }
    word[0] = static_cast<uint32_t>(index & (depth - 1));
    word[2] = opcode | scatter_count << 8 | be32(flags);
    return entry;
  }

  /// `depth`: entries.
  static CCO_HOST_DEVICE uint64_t doorbell(uint32_t qpn, uint64_t next, uint32_t depth) {
    return uint64_t{qpn} << 24 | (next & (depth - 1));
  }

  static CCO_DEVICE void write(const cco_gda_queue& queue, uint64_t index,
                               const NicRequest& request) {
    const Entry entry = encode(request, index, queue.sq_depth);
    const uint64_t place = queue.sq + 64 * (index & (queue.sq_depth - 1));
    CCO_UNROLL for (uint32_t i = 4; i < 16; i += 4) {
      store_entry(place + 4 * i, entry.word[i], entry.word[i + 1], entry.word[i + 2],
                  entry.word[i + 3]);
    }
    *global_pointer<uint64_t>(place) = entry.word[0];
    *global_pointer<uint32_t>(place + 12) = entry.word[3];
    // The colour makes the entry valid, and the NIC may read ahead of the doorbell.
    store_release_system(global_pointer<uint32_t>(place + 8), entry.word[2]);
  }

  static CCO_DEVICE void ring(const cco_gda_queue& queue, uint64_t next) {
    store_release_system(global_pointer<uint64_t>(queue.doorbell),
                         doorbell(queue.qpn, next, queue.sq_depth));
  }

  /// The message number counts remote operations, and every operation here is one.
  static CCO_DEVICE NicProgress look(const cco_gda_queue& queue, uint64_t done,
                                     const uint64_t* rung) {
    constexpr uint32_t kMessageWord = 4, kStatusWord = 24, kTypeWord = 28;
    constexpr uint32_t kError = 0x02;
    const uint32_t message = be32(load_entry_word(queue.cq + kMessageWord));
    const uint64_t completed = widen_count(message, 0xffffff, done, load_relaxed_device(rung));
    bool failed = (be32(load_entry_word(queue.cq + kTypeWord)) & kError) != 0;
    if (completed != done || failed) {
      // The status of whatever wrote that number, or of something later.
      acquire_system(global_pointer<const uint32_t>(queue.cq + kMessageWord));
      failed = (be32(load_entry_word(queue.cq + kTypeWord)) & kError) != 0;
    }
    if (!failed) return NicProgress{completed, false, 0};
    return NicProgress{done, true, be32(load_entry_word(queue.cq + kStatusWord))};
  }
};

}  // namespace cco::device::impl
