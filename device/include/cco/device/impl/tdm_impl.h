// Bodies of tdm.h.
#pragma once

#include "cco/device/tdm.h"

namespace cco::device {

namespace impl {

CCO_HOST_DEVICE uint64_t tile_extent(const TdmTile& tile) {
  return tile.rows == 0 ? 0 : (tile.rows - 1) * tile.stride_bytes + tile.row_bytes;
}

}  // namespace impl

template <CCO_COOP C, uint32_t kStages, typename Mover>
struct Tdm<C, kStages, Mover>::Chunks {
  unsigned char* to;
  const unsigned char* from;
  uint64_t bytes;
  uint64_t first;  // Offset of the next chunk.
  uint64_t step;   // From one chunk of this group to its next.
  uint32_t chunk_bytes;

  CCO_DEVICE bool have(uint64_t offset) const { return offset < bytes; }
  CCO_DEVICE uint32_t length(uint64_t offset) const {
    return bytes - offset < chunk_bytes ? static_cast<uint32_t>(bytes - offset) : chunk_bytes;
  }
  CCO_DEVICE TdmTile tile(uint64_t offset) const { return TdmTile{1, length(offset), 0}; }
};

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE Tdm<C, kStages, Mover>::Tdm(C coop, void* shared, uint32_t bytes)
    : coop_(coop), shared_(static_cast<unsigned char*>(shared)) {
  CCO_DEVICE_CHECK(bytes >= shared_bytes(128), "too little shared memory for TDM, bytes", bytes,
                   shared_bytes(128));
  CCO_DEVICE_CHECK(reinterpret_cast<uint64_t>(shared) % 16 == 0,
                   "shared memory for TDM not aligned, address", reinterpret_cast<uint64_t>(shared),
                   16);
  const uint32_t share = (bytes - kWordsBytes) / kStages / 128 * 128;
  stage_bytes_ = share < kTdmMaxRowBytes ? share : kTdmMaxRowBytes;
  coop_.sync();
  if (Mover::issues(coop_)) mover_.open(shared_);
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE Tdm<C, kStages, Mover>::~Tdm() {
  if (Mover::issues(coop_)) {
    while (outstanding_ != 0) {
      if (!mover_.load_arrived(arrived_.slot, arrived_.phase, outstanding_ - 1)) continue;
      arrived_.advance();
      --outstanding_;
    }
    mover_.close();
  }
  coop_.sync();
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE void Tdm<C, kStages, Mover>::check([[maybe_unused]] const void* shared,
                                              [[maybe_unused]] const void* global,
                                              [[maybe_unused]] const TdmTile& tile) {
  [[maybe_unused]] const auto aligned = [](uint64_t value) { return value % 16 == 0; };
  CCO_DEVICE_CHECK(aligned(reinterpret_cast<uint64_t>(shared)),
                   "TDM address in shared memory not aligned", reinterpret_cast<uint64_t>(shared),
                   16);
  CCO_DEVICE_CHECK(aligned(reinterpret_cast<uint64_t>(global)),
                   "TDM address in a window not aligned", reinterpret_cast<uint64_t>(global), 16);
  CCO_DEVICE_CHECK(aligned(tile.row_bytes), "TDM length not aligned, bytes", tile.row_bytes, 16);
  CCO_DEVICE_CHECK(tile.rows <= 1 || aligned(tile.stride_bytes), "TDM stride not aligned, bytes",
                   tile.stride_bytes, 16);
  CCO_DEVICE_CHECK(tile.row_bytes <= kTdmMaxRowBytes, "TDM row too long, bytes", tile.row_bytes,
                   kTdmMaxRowBytes);
  CCO_DEVICE_CHECK(tile.rows <= 65535, "TDM tile of too many rows", tile.rows, 65535);
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE void Tdm<C, kStages, Mover>::begin_load(void* shared, const void* global,
                                                   const TdmTile& tile) {
  CCO_DEVICE_CHECK(outstanding_ < kStages, "TDM load while as many are outstanding as may be",
                   outstanding_, kStages);
  mover_.load(coop_, issued_.slot, shared, global, tile);
  issued_.advance();
  ++outstanding_;
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE bool Tdm<C, kStages, Mover>::await_loads(uint32_t newest, Poll& poll) {
  while (outstanding_ > newest) {
    if (mover_.load_arrived(arrived_.slot, arrived_.phase, outstanding_ - 1)) {
      arrived_.advance();
      --outstanding_;
    } else if (!poll.again()) {
      return false;
    }
  }
  return true;
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE void Tdm<C, kStages, Mover>::load_async(void* shared, uint32_t peer, Place source,
                                                   const TdmTile& tile) {
  const void* const from = peer_ptr(source.window, peer, source.offset, impl::tile_extent(tile));
  check(shared, from, tile);
  Mover::order_before_copies();
  coop_.sync();
  if (Mover::issues(coop_)) begin_load(shared, from, tile);
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE void Tdm<C, kStages, Mover>::store_async(uint32_t peer, Place destination,
                                                    const void* shared, const TdmTile& tile) {
  void* const to = peer_ptr(destination.window, peer, destination.offset, impl::tile_extent(tile));
  check(shared, to, tile);
  Mover::order_before_copies();
  coop_.sync();
  if (Mover::issues(coop_)) mover_.store(coop_, to, shared, tile);
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
template <uint32_t kNewest>
CCO_DEVICE WaitResult Tdm<C, kStages, Mover>::wait_loads(const Deadline& deadline) {
  Poll poll(deadline);
  const bool arrived = !Mover::issues(coop_) || await_loads(kNewest, poll);
  return agree(coop_, arrived, poll.aborted(), kNoRank, deadline);
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
template <uint32_t kNewest>
CCO_DEVICE void Tdm<C, kStages, Mover>::wait_stores() {
  if (Mover::issues(coop_)) mover_.template wait_stores_read<kNewest>();
  coop_.sync();
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE void Tdm<C, kStages, Mover>::finish_stores() {
  if (Mover::issues(coop_)) mover_.finish_stores();
  coop_.sync();
}

// Loads use the stages in turn, a stage being the mover's slot, and a chunk is stored from where it
// was loaded to. When the store of chunk i has been issued, chunk i + kAhead is loaded to the stage
// of chunk i + kAhead - kStages, whose store must have read: it is older than the newest kStages -
// kAhead.
template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE bool Tdm<C, kStages, Mover>::pump(const Chunks& chunks, Poll& poll) {
  if (!await_loads(0, poll)) return false;
  mover_.template wait_stores_read<0>();
  uint64_t next_load = chunks.first;
  const auto load_next = [&] {
    if (!chunks.have(next_load)) return;
    begin_load(stage(issued_.slot), chunks.from + next_load, chunks.tile(next_load));
    next_load += chunks.step;
  };
  for (uint32_t i = 0; i < kAhead; ++i) load_next();
  for (uint64_t offset = chunks.first; chunks.have(offset); offset += chunks.step) {
    void* const held = stage(arrived_.slot);
    if (!await_loads(outstanding_ - 1, poll)) return false;
    mover_.store(coop_, chunks.to + offset, held, chunks.tile(offset));
    mover_.template wait_stores_read<kStages - kAhead>();
    load_next();
  }
  mover_.finish_stores();
  return true;
}

template <CCO_COOP C, uint32_t kStages, typename Mover>
CCO_DEVICE WaitResult Tdm<C, kStages, Mover>::copy(void* to, const void* from, uint64_t bytes,
                                                   const Deadline& deadline, TdmShare share) {
  CCO_DEVICE_CHECK(share.index < share.count, "TDM share out of range, index", share.index,
                   share.count);
  Chunks chunks{
      static_cast<unsigned char*>(to),      static_cast<const unsigned char*>(from), bytes,
      uint64_t{share.index} * stage_bytes_, uint64_t{share.count} * stage_bytes_,    stage_bytes_};
  const uint64_t skew = reinterpret_cast<uint64_t>(to) ^ reinterpret_cast<uint64_t>(from);
  Poll poll(deadline);
  bool arrived = true;
  if (!Mover::kPipelined || skew % 16 != 0) {
    for (uint64_t at = chunks.first; chunks.have(at); at += chunks.step) {
      impl::copy_bytes(coop_, chunks.to + at, chunks.from + at, chunks.length(at));
    }
  } else {
    const uint64_t misaligned = (0 - reinterpret_cast<uint64_t>(to)) % 16;
    const uint64_t head = misaligned < bytes ? misaligned : bytes;
    const uint64_t body = (bytes - head) / 16 * 16;
    const uint64_t tail = head + body;
    Mover::order_before_copies();
    coop_.sync();
    if (share.index == 0) {
      impl::copy_words<impl::Word1>(coop_, chunks.to, chunks.from, head);
      impl::copy_words<impl::Word1>(coop_, chunks.to + tail, chunks.from + tail, bytes - tail);
    }
    chunks.to += head;
    chunks.from += head;
    chunks.bytes = body;
    if (Mover::issues(coop_)) arrived = pump(chunks, poll);
  }
  return agree(coop_, arrived, poll.aborted(), kNoRank, deadline);
}

}  // namespace cco::device
