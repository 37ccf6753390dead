#include "cco/device/lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "emulated_node.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;
using testing::kLongNs;

// Goal    a thread outside any launch is a group of one.
// Method  every call, from the test itself.
TEST(Lanes, OutsideALaunchThereIsOne) {
  const ActiveLanes lanes = ActiveLanes::here();
  EXPECT_EQ(lanes.count(), 1u);
  EXPECT_TRUE(lanes.is_leader());
  lanes.sync();
  EXPECT_TRUE(lanes.any(true));
  EXPECT_FALSE(lanes.any(false));
  EXPECT_EQ(lanes.broadcast(7, 0), 7u);
  EXPECT_EQ(lanes.exclusive_sum(7), 0u);
  EXPECT_EQ(lanes.sum(7), 7u);
  EXPECT_EQ(lanes.matching(3).count(), 1u);
}

// Goal    a lane that is known to be alone is told what a group of one is.
// Method  every call of both.
TEST(Lanes, OneLaneIsAGroupOfOne) {
  const OneLane one;
  const ActiveLanes lanes = ActiveLanes::alone();
  EXPECT_EQ(one.count(), lanes.count());
  EXPECT_EQ(one.rank(), lanes.rank());
  EXPECT_EQ(one.is_leader(), lanes.is_leader());
  one.sync();
  for (const bool mine : {false, true}) EXPECT_EQ(one.any(mine), lanes.any(mine));
  EXPECT_EQ(one.broadcast(7, 0), lanes.broadcast(7, 0));
  EXPECT_EQ(one.exclusive_sum(7), lanes.exclusive_sum(7));
  EXPECT_EQ(one.sum(7), lanes.sum(7));
}

// Goal    all threads of a warp that call together find each other, and no thread of another warp;
//         what they tell each other arrives.
// Method  warps of 32 and 8, many rounds, values that depend on lane and round.
TEST(Lanes, WholeWarpsExchange) {
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, 40, [&](uint32_t) {
    const uint32_t lane = thread_index() % warp_size();
    const uint32_t size = thread_index() < 32 ? 32 : 8;
    for (uint64_t round = 0; round < 20; ++round) {
      const ActiveLanes lanes = ActiveLanes::here();
      if (lanes.count() != size || lanes.rank() != lane) ++wrong;
      const uint32_t chosen = static_cast<uint32_t>(round % size);
      if (lanes.broadcast(100 * round + lane, chosen) != 100 * round + chosen) ++wrong;
      if (lanes.exclusive_sum(round + lane) != round * lane + lane * (lane - 1) / 2) ++wrong;
      if (lanes.sum(3) != 3 * size || lanes.exclusive_sum(3) != 3 * lane) ++wrong;
      if (lanes.any(false) || !lanes.any(lane == chosen)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    every exchange is a barrier that orders memory among the members.
// Method  plain stores by one member, read by all after a broadcast.
TEST(Lanes, ExchangesOrderMemory) {
  uint64_t stored = 0;
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, 8, [&](uint32_t) {
    for (uint64_t round = 1; round <= 50; ++round) {
      const ActiveLanes lanes = ActiveLanes::here();
      if (lanes.rank() == round % 8) stored = round;
      lanes.broadcast(0, 0);
      if (stored != round) ++wrong;
      lanes.sync();
    }
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    a divergent call has those threads alone.
// Method  only lane 3 calls while the others leave or go to a barrier; then half of a warp calls
//         while the other half waits at the block's barrier.
TEST(Lanes, DivergentCallsHaveTheirCallersAlone) {
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, 40, [&](uint32_t) {
    const uint32_t lane = thread_index() % warp_size();
    if (lane == 3) {
      const ActiveLanes lanes = ActiveLanes::here();
      if (lanes.count() != 1 || !lanes.is_leader()) ++wrong;
    }
    warp_sync();
    if (thread_index() < 32 && lane % 2 == 1) {
      const ActiveLanes lanes = ActiveLanes::here();
      if (lanes.count() != 16 || lanes.rank() != lane / 2) ++wrong;
      if (lanes.sum(lane) != 256) ++wrong;
    }
    block_sync();
    if (lane == 5) return;
    const ActiveLanes lanes = ActiveLanes::here();
    if (lanes.count() != (thread_index() < 32 ? 31u : 7u)) ++wrong;
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    calls in two branches are two calls, though they are made at the same time.
// Method  even and odd threads each make one, and talk.
TEST(Lanes, BranchesAreApart) {
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, 9, [&](uint32_t) {
    for (uint32_t round = 0; round < 10; ++round) {
      if (thread_index() % 2 == 0) {
        const ActiveLanes even = ActiveLanes::here();
        if (even.count() != 5 || even.sum(thread_index()) != 20) ++wrong;
        even.sync();
      } else {
        const ActiveLanes odd = ActiveLanes::here();
        if (odd.count() != 4 || odd.broadcast(thread_index(), 2) != 5) ++wrong;
      }
      warp_sync();
    }
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    a thread that polls for what the callers produce does not keep them apart for ever; and
//         threads that were released by the same word meet again.
// Method  lane 0 polls for a word that lane 1 stores after a call of lanes 1..7; then all of 1..7
//         poll for one word that lane 0 stores, and make a call.
TEST(Lanes, PollingThreadsAreNotWaitedFor) {
  EmulatedNode node({});
  std::atomic<uint32_t> wrong{0};
  for (uint32_t repeat = 0; repeat < 20; ++repeat) {
    uint64_t produced = 0, released = 0;
    EmulatedNode::run_on(0, 1, 8, [&](uint32_t) {
      const auto poll_for = [&](const uint64_t* word) {
        Poll poll(Deadline::after(node.comm(0), kLongNs));
        while (load_acquire_system(word) == 0) {
          if (!poll.again()) return void(++wrong);
        }
      };
      if (thread_index() == 0) {
        poll_for(&produced);
        store_release_system(&released, 1);
      } else {
        const ActiveLanes lanes = ActiveLanes::here();
        if (lanes.count() != 7) ++wrong;
        if (lanes.is_leader()) store_release_system(&produced, 1);
        poll_for(&released);
        if (ActiveLanes::here().count() != 7) ++wrong;
      }
    });
  }
  EXPECT_EQ(wrong, 0u);
}

// Goal    matching() groups by key, each group whole and by itself; for_each_key() visits every
//         group once, one at a time.
// Method  keys by lane modulo 3; groups exchange without the others; a plain counter shows overlap.
TEST(Lanes, GroupsByKey) {
  std::atomic<uint32_t> wrong{0}, inside{0};
  std::mutex mutex;
  std::map<uint64_t, uint32_t> members;
  EmulatedNode::run_on(0, 1, 20, [&](uint32_t) {
    const uint32_t lane = thread_index();
    const uint64_t key = uint64_t{lane % 3} << 40;
    const ActiveLanes lanes = ActiveLanes::here();
    const ActiveLanes same = lanes.matching(key);
    if (same.count() != (lane % 3 == 2 ? 6u : 7u) || same.rank() != lane / 3) ++wrong;
    if (same.broadcast(lane, 1) != 3 + lane % 3) ++wrong;
    lanes.for_each_key(key, [&](const ActiveLanes& group) {
      if (group.is_leader() && inside.fetch_add(1) != 0) ++wrong;
      const uint64_t sum = group.sum(1);
      if (sum != group.count()) ++wrong;
      if (group.is_leader()) --inside;
      const std::lock_guard<std::mutex> lock(mutex);
      ++members[key];
    });
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(members,
            (std::map<uint64_t, uint32_t>{{0, 7}, {uint64_t{1} << 40, 7}, {uint64_t{2} << 40, 6}}));
}

}  // namespace
}  // namespace cco::device
