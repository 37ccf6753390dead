#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <type_traits>

#include "emulated_node.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;
using testing::kLongNs;

template <typename C>
class Barrier : public ::testing::Test {};
using Groups = ::testing::Types<ThreadCoop, WarpCoop, BlockCoop>;
TYPED_TEST_SUITE(Barrier, Groups);

// Goal    what any rank stored before the barrier, all threads of all ranks see after it, round
//         after round and on several barriers at once; epochs outlive the object.
// Method  each block stores the round at every peer, meets, checks, meets again. A new object every
//         few rounds. Teams larger than the group (one thread) and smaller.
TYPED_TEST(Barrier, PublishesToAllRanks) {
  constexpr uint32_t kRounds = 24, kBlocks = 2, kThreads = 5;
  for (const uint32_t ranks : {1u, 2u, 3u, 5u}) {
    EmulatedNode node({.ranks = ranks, .barrier_count = kBlocks});
    std::atomic<uint32_t> wrong{0};
    node.run(kBlocks, kThreads, [&](uint32_t rank) {
      const TypeParam coop{};
      if (thread_index() != coop.thread_rank()) return;
      const DeviceComm comm = node.comm(rank);
      const Window window = node.window(rank);
      const Deadline deadline = Deadline::after(comm, kLongNs);
      const uint64_t slots = 8 * uint64_t{ranks} * block_index();
      for (uint64_t round = 1; round <= kRounds;) {
        LsaBarrier<TypeParam> barrier(coop, comm, block_index());
        for (int i = 0; i < 4; ++i, ++round) {
          for (uint32_t peer = coop.thread_rank(); peer < ranks; peer += coop.size()) {
            put_value<uint64_t>(peer, at(window, slots + 8 * rank), round);
          }
          if (barrier.sync(deadline).status != WaitStatus::kArrived) ++wrong;
          for (uint32_t peer = 0; peer < ranks; ++peer) {
            if (*local_ptr<uint64_t>(window, slots + 8 * peer) != round) ++wrong;
          }
          if (barrier.sync(deadline).status != WaitStatus::kArrived) ++wrong;
        }
      }
    });
    EXPECT_EQ(wrong, 0u) << ranks << " ranks";
  }
}

// Goal    a wait that times out says so to all threads, names the lowest missing rank in the world,
//         and can be taken up again until the rank comes.
// Method  of ranks 4, 5, 6 (world) only 4 comes; later 5, then 6.
TYPED_TEST(Barrier, TimedOutWaitNamesTheMissingAndGoesOn) {
  EmulatedNode node({.ranks = 3, .lsa_first = 4});
  std::atomic<uint32_t> wrong{0};
  const auto arrive = [&](uint32_t rank) {
    const DeviceComm comm = node.comm(rank);
    LsaBarrier<ThreadCoop> barrier(ThreadCoop{}, comm, 0);
    barrier.arrive();
  };
  EmulatedNode::run_on(0, 1, 3, [&](uint32_t) {
    const TypeParam coop{};
    if (thread_index() != coop.thread_rank()) return;
    const DeviceComm comm = node.comm(0);
    LsaBarrier<TypeParam> barrier(coop, comm, 0);
    const auto expect = [&](WaitResult result, WaitStatus status, uint32_t rank) {
      if (result.status != status || result.rank != rank) ++wrong;
      coop.sync();
    };
    expect(barrier.sync(Deadline::after(comm, 100'000)), WaitStatus::kTimedOut, 5);
    if (coop.is_leader()) arrive(1);
    coop.sync();
    expect(barrier.wait(Deadline::after(comm, 100'000)), WaitStatus::kTimedOut, 6);
    if (coop.is_leader()) arrive(2);
    coop.sync();
    expect(barrier.sync(Deadline::after(comm, kLongNs)), WaitStatus::kArrived, kNoRank);
    expect(barrier.sync(Deadline::after(comm, 100'000)), WaitStatus::kTimedOut, 5);
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    an object that ends after a time-out leaves the barrier usable: a new one finishes the
//         round.
// Method  time out, destroy, let the peer come, sync with a new object; then a normal round.
TEST(BarrierRetry, NewObjectFinishesTheRound) {
  EmulatedNode node({.ranks = 2});
  const DeviceComm comm = node.comm(0);
  {
    LsaBarrier<ThreadCoop> barrier(ThreadCoop{}, comm, 0);
    EXPECT_EQ(barrier.sync(Deadline::after(comm, 1000)).status, WaitStatus::kTimedOut);
  }
  std::atomic<uint32_t> wrong{0};
  node.run(1, 1, [&](uint32_t rank) {
    const DeviceComm mine = node.comm(rank);
    LsaBarrier<ThreadCoop> barrier(ThreadCoop{}, mine, 0);
    for (int i = 0; i < 3; ++i) {
      if (barrier.sync(Deadline::after(mine, kLongNs)).status != WaitStatus::kArrived) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    a lost peer ends the barrier for all threads with its name.
// Method  abort while nobody else comes.
TYPED_TEST(Barrier, EndsWhenAPeerIsLost) {
  EmulatedNode node({.ranks = 2});
  std::atomic<uint32_t> right{0};
  std::thread daemon([&] { node.abort(CCO_ABORT_PEER_LOST, 1); });
  EmulatedNode::run_on(0, 1, 4, [&](uint32_t) {
    const TypeParam coop{};
    if (thread_index() != coop.thread_rank()) return;
    const DeviceComm comm = node.comm(0);
    LsaBarrier<TypeParam> barrier(coop, comm, 0);
    const WaitResult result = barrier.sync(Deadline::after(comm, ~uint64_t{0}));
    if (result.status == WaitStatus::kPeerLost && result.rank == 1) ++right;
  });
  daemon.join();
  const bool single = std::is_same_v<TypeParam, ThreadCoop>;
  EXPECT_EQ(right, single ? 1u : 4u);
}

// Goal    the epoch passes 2^64 without a stumble.
// Method  set all words just below, then meet across the wrap.
TEST(BarrierWrap, EpochWraps) {
  EmulatedNode node({.ranks = 2});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const DeviceComm comm = node.comm(rank);
    for (uint32_t word = 0; word < 3; ++word) {
      *local_ptr<uint64_t>(comm.control, comm.barrier_offset + 8 * word) = ~uint64_t{0} - 2;
    }
  }
  std::atomic<uint32_t> wrong{0};
  node.run(1, 2, [&](uint32_t rank) {
    const DeviceComm comm = node.comm(rank);
    LsaBarrier<BlockCoop> barrier(BlockCoop{}, comm, 0);
    for (int i = 0; i < 6; ++i) {
      if (barrier.sync(Deadline::after(comm, kLongNs)).status != WaitStatus::kArrived) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0u);
  const DeviceComm comm = node.comm(0);
  EXPECT_EQ(*local_ptr<uint64_t>(comm.control, comm.barrier_offset), 3u);
}

}  // namespace
}  // namespace cco::device
