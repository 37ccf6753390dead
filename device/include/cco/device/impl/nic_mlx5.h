// ConnectX queues. Big-endian throughout; a unit is a block of 64 bytes, and every operation here
// takes one. Layouts: rdma-core, providers/mlx5/{wqe.h,mlx5dv.h}.
#pragma once

#include "cco/device/impl/nic_bytes.h"

namespace cco::device::impl {

struct Mlx5 {
  static constexpr uint32_t kUnits = 1;
  static constexpr bool kMsnTable = false;

  struct Entry {
    uint32_t word[16];
  };

  static CCO_HOST_DEVICE Entry encode(const NicRequest& request, uint64_t index, uint32_t qpn) {
    constexpr uint32_t kNop = 0x00, kWrite = 0x08, kRead = 0x10, kFetchAdd = 0x12;
    constexpr uint32_t kCompletion = 0x08, kInlineData = 0x80000000u;
    Entry entry{};
    uint32_t* const word = entry.word;
    uint32_t opcode = kNop;
    uint32_t segments = 1;  // Of 16 bytes, this control segment included.
    if (request.kind != NicKind::kNothing) {
      word[4] = be32_high(request.remote_offset);
      word[5] = be32_low(request.remote_offset);
      word[6] = be32(request.remote_key);
      segments = 3;
    }
    if (request.kind == NicKind::kInline) {
      opcode = kWrite;
      const uint64_t value = inline_bytes(request);
      word[8] = be32(request.bytes | kInlineData);
      word[9] = le32_low(value);  // As it lies in memory.
      word[10] = le32_high(value);
    } else if (request.kind == NicKind::kFetchAdd) {
      opcode = kFetchAdd;
      segments = 4;
      word[8] = be32_high(request.value);
      word[9] = be32_low(request.value);
      data_segment(word + 12, request, 8);
    } else if (request.kind != NicKind::kNothing) {
      opcode = request.kind == NicKind::kRead ? kRead : kWrite;
      data_segment(word + 8, request, request.bytes);
    }
    word[0] = be32(static_cast<uint32_t>(index & 0xffff) << 8 | opcode);
    word[1] = be32(qpn << 8 | segments);
    word[2] = be32(request.completion ? kCompletion : 0);
    return entry;
  }

  /// The send half of the doorbell record. `next`: the first block that is not to be sent.
  static CCO_HOST_DEVICE uint32_t doorbell_record(uint64_t next) {
    return be32(static_cast<uint32_t>(next & 0xffff));
  }
  static CCO_HOST_DEVICE uint64_t doorbell(uint32_t qpn, uint64_t next) {
    return uint64_t{be32(qpn << 8)} << 32 | be32(static_cast<uint32_t>(next & 0xffff) << 8);
  }

  static CCO_DEVICE void write(const cco_gda_queue& queue, uint64_t index,
                               const NicRequest& request) {
    const Entry entry = encode(request, index, queue.qpn);
    const uint64_t block = queue.sq + 64 * (index & (queue.sq_depth - 1));
    CCO_UNROLL for (uint32_t i = 0; i < 16; i += 4) {
      store_entry(block + 4 * i, entry.word[i], entry.word[i + 1], entry.word[i + 2],
                  entry.word[i + 3]);
    }
  }

  /// The NIC reads the record after it has seen the doorbell, and entries up to the record.
  static CCO_DEVICE void ring(const cco_gda_queue& queue, uint64_t next) {
    constexpr uint64_t kSendHalf = 4;
    store_release_system(global_pointer<uint32_t>(queue.doorbell_record + kSendHalf),
                         doorbell_record(next));
    store_release_system(global_pointer<uint64_t>(queue.doorbell), doorbell(queue.qpn, next));
  }

  static CCO_DEVICE NicProgress look(const cco_gda_queue& queue, uint64_t done,
                                     const uint64_t* rung) {
    constexpr uint32_t kSyndromeWord = 52, kCounterWord = 60;
    constexpr uint32_t kRequesterOk = 0x0, kRequesterError = 0xd;
    // Counter, signature and opcode by one load: an old counter never meets a new opcode.
    const uint32_t word = load_entry_word(queue.cq + kCounterWord);
    const uint32_t opcode = word >> 28;
    if (opcode == kRequesterError) {
      acquire_system(global_pointer<const uint32_t>(queue.cq + kCounterWord));
      return NicProgress{done, true, load_entry_word(queue.cq + kSyndromeWord) >> 24};
    }
    if (opcode != kRequesterOk) return NicProgress{done, false, 0};  // None yet.
    const uint32_t counter = (word & 0xff) << 8 | (word >> 8 & 0xff);
    const uint64_t completed =
        widen_count(uint64_t{counter} + 1, 0xffff, done, load_relaxed_device(rung));
    if (completed != done) acquire_system(global_pointer<const uint32_t>(queue.cq + kCounterWord));
    return NicProgress{completed, false, 0};
  }

 private:
  static CCO_HOST_DEVICE void data_segment(uint32_t* word, const NicRequest& request,
                                           uint32_t bytes) {
    word[0] = be32(bytes);  // Never 0, which would mean 2 GiB: see NicKind::kNothing.
    word[1] = be32(request.local_key);
    word[2] = be32_high(request.local_offset);
    word[3] = be32_low(request.local_offset);
  }
};

}  // namespace cco::device::impl
