// Ways to build LsaBarrier, timed beside it by `cco-bench barrier_trials`. The team has at most a
// warp's size of ranks. Those named bare_ leave out a part of the order, so they are no barriers:
// they show what the part costs.
#include "cco/device.hpp"

namespace cco::device {
namespace {

enum Trait : uint32_t {
  kLoads = 7,          ///< Loads that poll, spread over the time that one takes; 0: one, no spread.
  kRotate = 8,         ///< Each round is another warp's.
  kSplit = 16,         ///< One warp tells, another one listens.
  kMmio = 32,          ///< st.mmio
  kAdd = 64,           ///< red.release
  kEachWarp = 128,     ///< Every warp publishes for itself; nothing is synchronised before.
  kWholeWarp = 256,    ///< All lanes execute the fence.
  kNoRelease = 512,    ///< Not a barrier.
  kGpuRelease = 1024,  ///< Not a barrier between GPUs.
  kNoAcquire = 2048,   ///< Not a barrier.
  kNoAgreement = 4096,  ///< Every warp polls, and no result for the block.
  kRotateTwo = 8192,    ///< Two warps in turn.
  kPull = 16384,        ///< The flag stays in the own memory; who waits for it reads it there.
};

CCO_DEVICE uint32_t cycles() {
#if CCO_CUDA
  uint32_t value;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(value)::"memory");
  return value;
#else
  return static_cast<uint32_t>(ticks());
#endif
}

CCO_DEVICE void store_mmio(uint64_t* word, uint64_t value) {
#if CCO_CUDA
  asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
  store_relaxed_system(word, value);
#endif
}

template <uint32_t kCount, uint32_t kTripCycles>
CCO_DEVICE bool poll_word(const uint64_t* word, uint64_t target, Poll& poll) {
  uint64_t seen[kCount];
  CCO_UNROLL for (uint32_t k = 0; k < kCount; ++k) {
    seen[k] = load_relaxed_system(word);
    if (CCO_GPU && k + 1 < kCount) {
      for (const uint32_t start = cycles(); cycles() - start < kTripCycles / kCount;) {
      }
    }
  }
  for (;;) {
    CCO_UNROLL for (uint32_t k = 0; k < kCount; ++k) {
      if (impl::reached(seen[k], target)) return true;
      seen[k] = load_relaxed_system(word);
    }
    if (!poll.again()) return false;
  }
}

/// What a thread needs, all of it in registers.
struct Post {
  uint64_t* theirs;
  const uint64_t* mine;
};

template <uint32_t kTraits>
CCO_DEVICE void tell(const Post& post, uint64_t epoch) {
  if constexpr ((kTraits & kAdd) != 0) {
    add_release_system(post.theirs, uint64_t{1});
    return;
  }
  if constexpr ((kTraits & kGpuRelease) != 0) {
    publish_device();
  } else if constexpr ((kTraits & (kNoRelease | kWholeWarp)) == 0) {
    publish_system();
  }
  if constexpr ((kTraits & kEachWarp) != 0) {
    add_published_system(post.theirs, uint64_t{1});
  } else if constexpr ((kTraits & kMmio) != 0) {
    store_mmio(post.theirs, epoch);
  } else {
    store_published_system(post.theirs, epoch);
  }
}

template <uint32_t kTraits>
CCO_DEVICE bool hear(const Post& post, uint64_t epoch, Poll& poll) {
  constexpr uint32_t kCount = (kTraits & kLoads) != 0 ? (kTraits & kLoads) : 1;
  const bool arrived = poll_word < kCount,
             (kTraits & kPull) != 0 ? 1800 : 260 > (post.mine, epoch, poll);
  if ((kTraits & kNoAcquire) == 0 && arrived) acquire_system(post.mine);
  return arrived;
}

template <uint32_t kTraits>
CCO_DEVICE WaitResult trial(const DeviceComm& comm, uint32_t index, uint64_t iterations,
                            const Deadline& deadline) {
  const BlockCoop block;
  const uint32_t warps = (block.size() + warp_size() - 1) / warp_size();
  const uint32_t warp = block.thread_rank() / warp_size();
  const uint32_t peer = block.thread_rank() % warp_size();
  const bool has_peer = peer < comm.lsa_size && peer != comm.lsa_rank;
  const uint64_t words = comm.barrier_offset + 8 * uint64_t{index} * (comm.lsa_size + 1);
  uint64_t* const own = local_ptr<uint64_t>(comm.control, words, 8);
  Post post{own, own};
  if (has_peer) {
    post.theirs = peer_ptr<uint64_t>(comm.control, peer, words + 8 * (1 + comm.lsa_rank), 8);
    post.mine = local_ptr<const uint64_t>(comm.control, words + 8 * (1 + peer), 8);
  }
  if ((kTraits & kPull) != 0 && has_peer) {
    post.theirs = local_ptr<uint64_t>(comm.control, words + 8 * (1 + comm.lsa_rank), 8);
    post.mine = peer_ptr<const uint64_t>(comm.control, peer, words + 8 * (1 + peer), 8);
  }
  uint64_t epoch = load_relaxed_device(own);
  WaitResult outcome{WaitStatus::kArrived, kNoRank};
  for (uint64_t i = 0; i < iterations && outcome.status == WaitStatus::kArrived; ++i) {
    constexpr bool kTurns = (kTraits & (kRotate | kRotateTwo)) != 0;
    const uint32_t among = (kTraits & kRotateTwo) != 0 && warps > 2 ? 2 : warps;
    const uint32_t teller = kTurns ? static_cast<uint32_t>(i) % among : 0;
    const uint32_t listener = (kTraits & kSplit) != 0 && warps > 1 ? (teller + 1) % warps : teller;
    epoch += (kTraits & kEachWarp) != 0 ? warps : 1;
    if ((kTraits & kEachWarp) != 0) {
      warp_sync();
      if (has_peer) tell<kTraits>(post, epoch);
    } else {
      block.sync();
      if ((kTraits & kWholeWarp) != 0 && warp == teller) publish_system();
      if (warp == teller && has_peer) tell<kTraits>(post, epoch);
    }
    Poll poll(deadline);
    bool arrived = true;
    const bool listens = warp == listener || (kTraits & kNoAgreement) != 0;
    if (listens && has_peer) arrived = hear<kTraits>(post, epoch, poll);
    if constexpr ((kTraits & kNoAgreement) != 0) {
      warp_sync();
    } else {
      outcome = agree(block, arrived, poll.aborted(), kNoRank, deadline);
    }
  }
  block.sync();
  if (block.is_leader()) store_relaxed_device(own, epoch);
  return outcome;
}

}  // namespace

#define CCO_TRIAL(name, traits)                                                                    \
  CCO_KERNEL void name(DeviceComm comm, uint32_t index, uint64_t iterations, uint64_t deadline_ns, \
                       uint64_t* result) {                                                         \
    const Deadline deadline = Deadline::after(comm, deadline_ns);                                  \
    const WaitResult outcome = trial<(traits)>(comm, index + block_index(), iterations, deadline); \
    if (thread_index() == 0) result[block_index()] = outcome.encode();                             \
  }

CCO_TRIAL(lean, 0)
CCO_TRIAL(lean_2, 2)
CCO_TRIAL(lean_3, 3)
CCO_TRIAL(lean_4, 4)
CCO_TRIAL(rotate, kRotate)
CCO_TRIAL(rotate_two, kRotateTwo)
CCO_TRIAL(rotate_3, kRotate + 3)
CCO_TRIAL(split, kSplit)
CCO_TRIAL(split_3, kSplit + 3)
CCO_TRIAL(rotate_split, kRotate + kSplit)
CCO_TRIAL(rotate_split_3, kRotate + kSplit + 3)
CCO_TRIAL(mmio, kMmio)
CCO_TRIAL(mmio_rotate_split_3, kMmio + kRotate + kSplit + 3)
CCO_TRIAL(add, kAdd)
CCO_TRIAL(each_warp, kEachWarp)
CCO_TRIAL(whole_warp, kWholeWarp)
CCO_TRIAL(pull, kPull)
CCO_TRIAL(pull_4, kPull + 4)
CCO_TRIAL(pull_7, kPull + 7)
CCO_TRIAL(pull_rotate_7, kPull + kRotate + 7)
CCO_TRIAL(pull_rotate_split_7, kPull + kRotate + kSplit + 7)
CCO_TRIAL(bare_pull_7, kPull + kNoRelease + 7)
CCO_TRIAL(bare_no_release, kNoRelease)
CCO_TRIAL(bare_gpu_release, kGpuRelease)
CCO_TRIAL(bare_no_acquire, kNoAcquire)
CCO_TRIAL(bare_no_agreement, kNoAgreement)
CCO_TRIAL(bare_floor_3, kNoRelease + kNoAcquire + kNoAgreement + 3)

CCO_KERNEL_TABLE(barrier_trials, lean, lean_2, lean_3, lean_4, rotate, rotate_two, rotate_3, split,
                 split_3, rotate_split, rotate_split_3, mmio, mmio_rotate_split_3, add, each_warp,
                 whole_warp, pull, pull_4, pull_7, pull_rotate_7, pull_rotate_split_7, bare_pull_7,
                 bare_no_release, bare_gpu_release, bare_no_acquire, bare_no_agreement,
                 bare_floor_3);

}  // namespace cco::device
