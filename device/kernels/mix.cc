// One kernel that uses every transport at once, a block for each: loads and stores with LSA's
// signals, SDMA in bulk, TDM by tiles, GDA in many puts. What arrives is checked.
#include "device/kernels/mix.h"

#include "cco/device.hpp"
#include "cco/device/gda.h"
#include "cco/device/sdma.h"
#include "device/kernels/store_result.h"

namespace cco::device {
namespace {

using kernels::kMixGda;
using kernels::kMixLsa;
using kernels::kMixPartUnit;
using kernels::kMixPitchBytes;
using kernels::kMixSdma;
using kernels::kMixStages;
using kernels::kMixTdm;
using kernels::kMixTileRowBytes;
using kernels::kMixTileRows;
using kernels::mix_destination;
using kernels::mix_shared_bytes;
using kernels::mix_source;
using kernels::mix_word;

/// One block's part in one round.
struct Part {
  const DeviceComm& comm;
  const Window& window;
  const Deadline& deadline;
  uint64_t bytes;
  uint64_t round;  ///< From 1 on: how often this role has sent, this time included.
  uint32_t role;
  uint32_t next;  ///< LSA ranks: whom it sends to, and who sends to it.
  uint32_t previous;

  CCO_DEVICE Place source(uint64_t offset = 0) const {
    return at(window, mix_source(role, bytes) + offset);
  }
  CCO_DEVICE Place destination(uint64_t offset = 0) const {
    return at(window, mix_destination(role, bytes) + offset);
  }
};

constexpr WaitResult kDone{WaitStatus::kArrived, kNoRank};
CCO_DEVICE bool good(const WaitResult& result) { return result.status == WaitStatus::kArrived; }

CCO_DEVICE WaitResult send_by_lsa(const Part& part) {
  put(BlockCoop{}, part.next, part.destination(), part.source(), part.bytes);
  signal_add(BlockCoop{}, part.comm, part.next, kMixLsa, 1);
  return wait_at_least(BlockCoop{}, part.comm, kMixLsa, part.round, part.deadline);
}

CCO_DEVICE WaitResult send_by_sdma(const Part& part) {
  const Sdma sdma(part.comm);
  const WaitResult posted = sdma.put<kSdmaSignalRemote>(
      BlockCoop{}, part.next, part.destination(), part.source(), part.bytes, 0, part.deadline);
  if (!good(posted)) return posted;
  return sdma.wait_signal(BlockCoop{}, part.previous, 0, part.round, part.deadline);
}

CCO_DEVICE WaitResult send_by_tdm(const Part& part) {
  constexpr TdmTile kTile{kMixTileRows, kMixTileRowBytes, kMixPitchBytes};
  constexpr uint32_t kTilesPerPitch = kMixPitchBytes / kMixTileRowBytes;
  Tdm<BlockCoop, kMixStages> tdm(BlockCoop{}, dynamic_shared_memory(), mix_shared_bytes());
  const uint64_t tiles = part.bytes / kMixPartUnit * kTilesPerPitch;
  for (uint64_t tile = 0; tile < tiles; ++tile) {
    const uint64_t offset =
        tile / kTilesPerPitch * kMixPartUnit + tile % kTilesPerPitch * kMixTileRowBytes;
    void* const stage = tdm.stage(tile % kMixStages);
    tdm.wait_stores<kMixStages - 1>();  // The store that had this stage before.
    tdm.load_async(stage, part.comm.lsa_rank, part.source(offset), kTile);
    const WaitResult loaded = tdm.wait_loads<0>(part.deadline);
    if (!good(loaded)) return loaded;
    tdm.store_async(part.next, part.destination(offset), stage, kTile);
  }
  tdm.finish_stores();
  signal_add(BlockCoop{}, part.comm, part.next, kMixTdm, 1);
  return wait_at_least(BlockCoop{}, part.comm, kMixTdm, part.round, part.deadline);
}

CCO_DEVICE WaitResult send_by_gda(const Part& part) {
  const BlockCoop block;
  const Gda gda(part.comm, 0);
  const uint32_t peer = world_rank(part.comm, part.next);
  const uint64_t chunk = part.bytes / block.size() / 16 * 16;
  const uint64_t offset = block.thread_rank() * chunk;
  const uint64_t mine = block.thread_rank() + 1 == block.size() ? part.bytes - offset : chunk;
  const WaitResult posted =
      impl::combine(block, gda.put(ThreadCoop{}, peer, part.destination(offset),
                                   part.source(offset), mine, GdaPost{part.deadline}));
  if (!good(posted)) return posted;
  const WaitResult raised = gda.signal(block, peer, SignalInc{0}, part.deadline);
  if (!good(raised)) return raised;
  return gda.wait_signal_at_least(block, 0, part.round, part.deadline);
}

CCO_DEVICE WaitResult send(const Part& part) {
  switch (part.role) {
    case kMixLsa:
      return send_by_lsa(part);
    case kMixSdma:
      return send_by_sdma(part);
    case kMixTdm:
      return send_by_tdm(part);
    default:
      return send_by_gda(part);
  }
}

/// 0, or one more than the lowest word that is wrong.
CCO_DEVICE uint32_t find_wrong(const Part& part) {
  const BlockCoop block;
  const uint32_t sender = world_rank(part.comm, part.previous);
  const uint64_t* const words =
      local_ptr<uint64_t>(part.window, part.destination().offset, part.bytes);
  uint32_t wrong = ~uint32_t{0};
  for (uint64_t i = block.thread_rank(); i < part.bytes / 8; i += block.size()) {
    if (words[i] == mix_word(sender, part.role, part.round, i)) continue;
    wrong = static_cast<uint32_t>(i);
    break;
  }
  return block.any(wrong != ~uint32_t{0}) ? minimum(block, wrong) + 1 : 0;
}

}  // namespace

/// Every block of `roles` (bit r: role r) makes its part, `part_bytes` (a multiple of
/// kMixPartUnit), of round `round`, sends it to the next LSA rank, waits for what the one before
/// sends, and checks that. Four blocks, of which the others do nothing; `result` and `wrong` have a
/// word for each: the WaitResult, and 0 or one more than the index of the first word that is wrong.
/// LSA barriers 0 to 3, signals 0 to 3, SDMA queue 0, GDA context 0 and signal 0.
CCO_KERNEL void mix_transports(DeviceComm comm, Window window, uint64_t part_bytes, uint64_t round,
                               uint32_t roles, uint64_t deadline_ns, uint64_t* wrong,
                               uint64_t* result) {
  const BlockCoop block;
  const uint32_t role = block_index();
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  const Part part{comm,
                  window,
                  deadline,
                  part_bytes,
                  round,
                  role,
                  lsa_rank_after(comm, 1),
                  lsa_rank_after(comm, comm.lsa_size - 1)};
  WaitResult outcome = kDone;
  if ((roles >> role & 1) != 0) {
    uint64_t* const words = local_ptr<uint64_t>(window, part.source().offset, part_bytes);
    for (uint64_t i = block.thread_rank(); i < part_bytes / 8; i += block.size()) {
      words[i] = mix_word(comm.rank, role, round, i);
    }
    block.sync();
    outcome = send(part);
    const uint32_t found = good(outcome) ? find_wrong(part) : 0;
    if (block.is_leader()) wrong[role] = found;
    // Whoever sends the next round must not meet a reader of this one.
    if (good(outcome)) outcome = LsaBarrier<BlockCoop>(block, comm, role).sync(deadline);
  }
  kernels::store_result(result + role, outcome);
}

CCO_KERNEL_TABLE(mix, mix_transports);

}  // namespace cco::device
