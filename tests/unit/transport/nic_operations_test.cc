#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/transport/nic_rig.h"

namespace cco {
namespace {

using testing::NicRig;

class NicOperations : public ::testing::TestWithParam<std::string> {
 protected:
  NicRig::Options options(uint32_t operations = 16) const {
    return {.format = GetParam(), .operations = operations};
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, NicOperations, ::testing::Values("mlx5", "bnxt", "ionic"),
                         [](const auto& info) { return info.param; });

void fill(uint8_t* data, uint64_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(random());
}

void expect_complete(NicRig& rig, uint32_t queue = 0) {
  const NicRig::Completion seen = rig.look(queue);
  EXPECT_EQ(seen.units, rig.posted_units(queue));
  EXPECT_EQ(seen.syndrome, 0u);
  EXPECT_TRUE(rig.nic().status().ok()) << rig.nic().status();
}

// Goal    a write moves own bytes to the peer, a read the peer's to here, and nothing else changes.
// Method  compare both whole windows with what they should be, for lengths around packets.
TEST_P(NicOperations, WritesAndReadsMoveTheirBytesAlone) {
  NicRig rig(options());
  for (const uint64_t bytes : {1u, 7u, 4095u, 4096u, 4097u, 20000u}) {
    fill(rig.data(0), NicRig::kWindowBytes, 1);
    fill(rig.data(1), NicRig::kWindowBytes, 2);
    std::vector<uint8_t> own(rig.data(0), rig.data(0) + NicRig::kWindowBytes);
    std::vector<uint8_t> peer(rig.data(1), rig.data(1) + NicRig::kWindowBytes);
    std::copy_n(own.begin() + 3, bytes, peer.begin() + 40001);
    std::copy_n(peer.begin() + 5, bytes, own.begin() + 30002);

    rig.run(rig.write(3, 40001, bytes));
    expect_complete(rig);
    rig.run(rig.read(30002, 5, bytes));
    expect_complete(rig);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), rig.data(0))) << bytes;
    EXPECT_TRUE(std::equal(peer.begin(), peer.end(), rig.data(1))) << bytes;
  }
}

// Goal    inline bytes arrive as they lie in the entry, at every length an entry holds.
// Method  lengths up to 28 (32 with two slots of bnxt and ionic); the bytes around stay.
TEST_P(NicOperations, InlineBytesArrive) {
  NicRig rig(options());
  for (uint32_t bytes = 1; bytes <= 28; ++bytes) {
    std::vector<uint8_t> sent(bytes);
    fill(sent.data(), bytes, bytes);
    std::memset(rig.data(1), 0xee, 64);
    rig.run(rig.inline_write(8, sent));
    expect_complete(rig);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), rig.data(1) + 8));
    EXPECT_EQ(rig.data(1)[7], 0xee);
    EXPECT_EQ(rig.data(1)[8 + bytes], 0xee);
  }
}

// Goal    a fetch-and-add adds on the peer and brings what was there.
// Method  add twice, once over the end of 64 bits, and look at both sides.
TEST_P(NicOperations, FetchAndAddReturnsWhatWas) {
  NicRig rig(options());
  rig.signal(1, 3) = ~uint64_t{0} - 1;
  rig.run(rig.add(24, 5, 40));
  expect_complete(rig);
  EXPECT_EQ(rig.signal(1, 3), 3u);
  EXPECT_EQ(rig.signal(0, 5), ~uint64_t{0} - 1);
  rig.run(rig.add(24, uint64_t{1} << 40, 48));
  EXPECT_EQ(rig.signal(1, 3), 3 + (uint64_t{1} << 40));
  EXPECT_EQ(rig.signal(0, 6), 3u);
}

// Goal    a compare-and-swap swaps only what it finds.
// Method  one that fits, one that does not; the result is what was there each time. ConnectX's
//         takes two blocks, so something short has to follow before the count is right.
TEST_P(NicOperations, CompareAndSwapSwapsWhatFits) {
  NicRig rig(options());
  NicOperation swap = rig.add(8, 77, 16);
  swap.opcode = NicOpcode::kCompareSwap;
  swap.compare = 5;
  rig.signal(1, 1) = 5;
  rig.run(swap);
  rig.run(rig.nothing());
  expect_complete(rig);
  EXPECT_EQ(rig.signal(1, 1), 77u);
  EXPECT_EQ(rig.signal(0, 2), 5u);
  rig.run(swap);
  rig.run(rig.nothing());
  expect_complete(rig);
  EXPECT_EQ(rig.signal(1, 1), 77u);
  EXPECT_EQ(rig.signal(0, 2), 77u);
}

// Goal    an operation of no bytes takes its turn, moves nothing and looks at no key.
// Method  the format's own form, and a write of no bytes whose keys name nothing.
TEST_P(NicOperations, NoBytesCompleteAndMoveNothing) {
  NicRig rig(options());
  rig.run(rig.nothing());
  expect_complete(rig);
  if (GetParam() != "mlx5") {  // There a place of no bytes means 2 GiB.
    NicOperation empty = rig.write(0, 0, 0);
    empty.local_key = empty.remote_key = 1;
    rig.run(empty);
    expect_complete(rig);
  }
  EXPECT_TRUE(rig.port().calls.empty());
}

// Goal    success is reported only where it was asked for, and then for all before it.
// Method  three unsignaled writes leave the completion as it was; a signaled one covers them.
TEST_P(NicOperations, CompletionsOnlyWhereAskedFor) {
  NicRig rig(options());
  const uint64_t before = rig.look().units;
  NicOperation quiet = rig.write(0, 100, 10);
  quiet.signaled = false;
  for (int i = 0; i < 3; ++i) rig.run(quiet);
  EXPECT_EQ(rig.port().calls.size(), 3u);
  EXPECT_EQ(rig.look().units, before);
  rig.run(rig.nothing());
  expect_complete(rig);
}

// Goal    rings wrap for ever, and so do the counters that hardware cuts to 16 and 24 bits.
// Method  start short of each wrap, post in batches of one to all that fits, and check signal, data
//         and completion after each.
TEST_P(NicOperations, EveryCounterWraps) {
  for (const uint64_t start : {uint64_t{0}, uint64_t{0xfff0}, uint64_t{0xffffffe2},
                               uint64_t{0xfffff0}, uint64_t{0x1fffffff1}}) {
    NicRig::Options wrapping = options();
    wrapping.schedule.first_index = start / 3 * 3;
    NicRig rig(wrapping);
    uint64_t sent = 0;
    for (uint32_t round = 0; round < 60; ++round) {
      for (uint32_t i = 0; i <= round % 15; ++i) {
        NicOperation operation = i % 2 == 0 ? rig.add(0, 1) : rig.write(sent % 1000, sent, 8);
        operation.signaled = i == round % 15;
        rig.data(0)[sent % 1000] = static_cast<uint8_t>(sent);
        rig.post(operation);
        sent += 1 - i % 2;
      }
      rig.ring();
      rig.step_until_idle();
      ASSERT_EQ(rig.look().units, rig.posted_units()) << "from " << start << " in " << round;
      ASSERT_EQ(rig.signal(1, 0), sent);
    }
    EXPECT_TRUE(rig.nic().status().ok()) << rig.nic().status();
  }
}

// Goal    packet numbers of bnxt wrap at 24 bits, with messages of many packets.
// Method  start just below and send messages of 1 to 16 packets; the NIC compares each number.
TEST(NicBnxt, PacketNumbersWrap) {
  NicRig rig({.format = "bnxt", .operations = 16, .first_psn = 0xffffe0});
  for (uint32_t i = 0; i < 30; ++i) {
    rig.run(rig.write(0, 0, 1 + i % 16 * 4096));
    expect_complete(rig);
  }
}

// Goal    a queue that is full to its last usable place is served, whoever reads completions late.
// Method  fill it several times without looking in between.
TEST_P(NicOperations, FullQueueIsServed) {
  NicRig rig(options());
  for (uint32_t round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 15; ++i) rig.post(rig.add(0, 1));
    rig.ring();
    rig.step_until_idle();
    EXPECT_EQ(rig.signal(1, 0), 15u * (round + 1));
  }
  expect_complete(rig);
}

// Goal    lost, merged and repeated doorbells are harmless.
// Method  ring only after five posts; the same value again; then a value that was overtaken (mlx5,
//         where the record counts).
TEST_P(NicOperations, DoorbellsMayBeLostMergedAndRepeated) {
  NicRig rig(options());
  for (uint32_t i = 0; i < 5; ++i) rig.post(rig.add(0, 1));
  rig.ring();
  rig.step_until_idle();
  EXPECT_EQ(rig.signal(1, 0), 5u);
  rig.ring();
  EXPECT_EQ(rig.step_until_idle(), 0u);
  EXPECT_EQ(rig.signal(1, 0), 5u);
  if (GetParam() == "mlx5") {
    rig.post(rig.add(0, 1));
    const uint64_t overtaken = rig.doorbell_value();
    rig.post(rig.add(0, 1));
    rig.ring();
    rig.step_until_idle();
    rig.set_doorbell(overtaken);
    rig.step_until_idle();
  }
  expect_complete(rig);
  EXPECT_EQ(rig.signal(1, 0), GetParam() == "mlx5" ? 7u : 5u);
}

// Goal    both published forms of ConnectX's doorbell work.
// Method  ring by the last entry's first bytes, over the wrap of the index.
TEST(NicMlx5, RingsByTheLastEntry) {
  NicRig rig({.format = "mlx5",
              .operations = 16,
              .schedule = {.first_index = 0xfff8},
              .rings_last_entry = true});
  for (uint32_t i = 0; i < 40; ++i) rig.run(rig.add(0, 1));
  expect_complete(rig);
  EXPECT_EQ(rig.signal(1, 0), 40u);
}

// Goal    an entry of two blocks is performed wherever it lies, also over the end of the ring, and
//         its completion carries the first block's index, as hardware's does.
// Method  masked compare-and-swap of 64 bits at odd places; a NOP after it brings the count up.
TEST(NicMlx5, TwoBlocksAndAMask) {
  NicRig rig({.format = "mlx5", .operations = 16, .schedule = {.first_index = 0xfffd}});
  NicOperation swap = rig.add(0, 0);
  swap.opcode = NicOpcode::kCompareSwap;
  swap.compare_mask = 0xff;
  swap.swap_mask = 0xff00;
  for (uint32_t i = 0; i < 20; ++i) {
    rig.signal(1, 0) = 0x123456789abcdef0 + i;
    swap.compare = 0xaa00 + ((0xf0 + i) & 0xff);  // Its upper bits are masked out.
    swap.operand = ~uint64_t{0};
    EXPECT_EQ(rig.post(swap), 2u);
    rig.ring();
    rig.step_until_idle();
    EXPECT_EQ(rig.signal(1, 0), (0x123456789abcdef0 + i) | 0xff00) << i;
    EXPECT_EQ(rig.signal(0, 0), 0x123456789abcdef0 + i) << i;
    EXPECT_EQ(rig.look().units, rig.posted_units() - 1);
    rig.run(rig.nothing());
    expect_complete(rig);
  }
}

// Goal    DUMP looks at its range and moves nothing.
// Method  a good one completes without a copy.
TEST(NicMlx5, DumpReadsOwnMemory) {
  NicRig rig({.format = "mlx5"});
  NicOperation dump = rig.write(0, 0, 8);
  dump.opcode = NicOpcode::kLocalRead;
  rig.run(dump);
  expect_complete(rig);
  EXPECT_TRUE(rig.port().calls.empty());
}

// Goal    before anything completes, the completion says so in each format's way.
// Method  look at fresh queues, at the start of time and later.
TEST_P(NicOperations, FreshQueueHasCompletedNothing) {
  for (const uint64_t start : {uint64_t{0}, uint64_t{0xfff0}}) {
    NicRig::Options fresh = options();
    fresh.schedule.first_index = start / 3 * 3;
    NicRig rig(fresh);
    EXPECT_EQ(rig.look().units, fresh.schedule.first_index);
    EXPECT_EQ(rig.look().syndrome, 0u);
    EXPECT_EQ(rig.step_until_idle(), 0u);
  }
}

// Goal    queues of one NIC are served side by side.
// Method  three queues, operations on all before any is rung.
TEST_P(NicOperations, QueuesAreIndependent) {
  NicRig::Options several = options();
  several.queue_count = 3;
  NicRig rig(several);
  for (uint32_t queue = 0; queue < 3; ++queue) {
    for (uint32_t i = 0; i <= queue; ++i) rig.post(rig.add(8 * queue, 1), queue);
  }
  rig.ring(2);
  rig.step_until_idle();
  EXPECT_EQ(rig.signal(1, 2), 3u);
  EXPECT_EQ(rig.signal(1, 0), 0u);
  rig.ring(0);
  rig.ring(1);
  rig.step_until_idle();
  for (uint32_t queue = 0; queue < 3; ++queue) {
    EXPECT_EQ(rig.signal(1, queue), queue + 1);
    expect_complete(rig, queue);
  }
}

}  // namespace
}  // namespace cco
