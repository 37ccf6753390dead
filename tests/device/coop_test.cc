#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "emulated_node.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;

// Goal    ranks and sizes of a warp group are right in full and in last, partial warps.
// Method  70 threads: warps of 32, 32 and 6.
TEST(Coop, WarpsOfABlock) {
  std::vector<uint32_t> ranks(70), sizes(70);
  EmulatedNode::run_on(0, 1, 70, [&](uint32_t) {
    ranks[thread_index()] = WarpCoop{}.thread_rank();
    sizes[thread_index()] = WarpCoop{}.size();
  });
  for (uint32_t thread = 0; thread < 70; ++thread) {
    EXPECT_EQ(ranks[thread], thread % 32);
    EXPECT_EQ(sizes[thread], thread < 64 ? 32u : 6u);
  }
}

template <typename C>
class Group : public ::testing::Test {};
using Groups = ::testing::Types<ThreadCoop, WarpCoop, BlockCoop>;
TYPED_TEST_SUITE(Group, Groups);

// Goal    any() tells every member, and only members of that group, whether one brought true; and
//         it orders memory among them.
// Method  in round r the member of rank r % size brings true after a plain store that all then
//         read.
TYPED_TEST(Group, AnyIsUniformAndOrders) {
  constexpr uint32_t kThreads = 48;
  std::vector<uint64_t> stored(kThreads);
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, kThreads, [&](uint32_t) {
    const TypeParam coop{};
    const uint32_t first = thread_index() - coop.thread_rank();
    for (uint32_t round = 0; round < 50; ++round) {
      const uint32_t chosen = round % coop.size();
      if (coop.thread_rank() == chosen) stored[first + chosen] = round;
      if (coop.any(false)) ++wrong;
      if (!coop.any(coop.thread_rank() == chosen)) ++wrong;
      if (stored[first + chosen] != round) ++wrong;
      coop.sync();
    }
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    minimum() is the smallest of all members' values, on every member.
// Method  values with equal high parts, the extremes, and no candidate at all.
TYPED_TEST(Group, MinimumIsUniform) {
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, 37, [&](uint32_t) {
    const TypeParam coop{};
    const uint32_t rank = coop.thread_rank();
    const uint32_t last = coop.size() - 1;
    if (minimum(coop, kNoRank) != kNoRank) ++wrong;
    if (minimum(coop, 1000 + last - rank) != 1000) ++wrong;
    if (minimum(coop, rank == last ? 0 : kNoRank) != 0) ++wrong;
    if (minimum(coop, rank == last ? 0x80000001u : 0x80000002u) != 0x80000001u) ++wrong;
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    rank arithmetic agrees with itself and knows who is outside.
// Method  a team in the middle of a world.
TEST(Team, WorldAndLsaRanks) {
  DeviceComm comm{};
  comm.lsa_first = 8;
  comm.lsa_size = 4;
  comm.lsa_rank = 3;
  EXPECT_EQ(world_rank(comm, 2), 10u);
  EXPECT_EQ(lsa_rank(comm, 10), 2u);
  EXPECT_EQ(lsa_rank(comm, 7), kNoRank);
  EXPECT_EQ(lsa_rank(comm, 12), kNoRank);
  EXPECT_EQ(lsa_rank_after(comm, 1), 0u);
  EXPECT_EQ(lsa_rank_after(comm, 0), 3u);
}

// Goal    nanoseconds become ticks without overflow, and results survive their encoding.
// Method  slow and fast clocks, the largest budget; round trips.
TEST(Deadline, UnitsAndEncoding) {
  EXPECT_EQ(ticks_of(1'000'000, 100'000), 100'000u);
  EXPECT_EQ(ticks_of(15, 100'000), 1u);
  EXPECT_EQ(ticks_of(123'456'789, 1'000'000), 123'456'789u);
  EXPECT_EQ(ticks_of(~uint64_t{0}, 1'000'000), ~uint64_t{0});
  DeviceComm comm{};
  comm.clock_khz = 1'000'000;
  EXPECT_EQ(Deadline::after(comm, ~uint64_t{0}).at_ticks, ~uint64_t{0});
  EXPECT_EQ(Deadline::after(comm, ~uint64_t{0} - 1).at_ticks, ~uint64_t{0});
  for (const WaitResult result :
       {WaitResult{WaitStatus::kArrived, kNoRank}, WaitResult{WaitStatus::kTimedOut, kNoRank},
        WaitResult{WaitStatus::kPeerLost, 0}}) {
    EXPECT_EQ(WaitResult::decode(result.encode()).status, result.status);
    EXPECT_EQ(WaitResult::decode(result.encode()).rank, result.rank);
  }
}

}  // namespace
}  // namespace cco::device
