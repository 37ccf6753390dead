#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/unit/transport/nic_rig.h"

namespace cco {
namespace {

using testing::NicRig;
using testing::RecordingPort;

const char* const kFormats[] = {"mlx5", "bnxt", "ionic"};

NicSchedule wild(uint64_t seed) {
  return {.seed = seed,
          .delay_percent = 30,
          .merge_percent = 50,
          .late_percent = 60,
          .shuffles_queues = true,
          .piece_bytes = 100};
}

// Posts random batches on three queues: writes to places of their own, then one signal for each
// batch. Returns what the NIC asked of memory.
std::vector<RecordingPort::Call> run_batches(NicRig& rig, uint32_t queues, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint64_t> sent(queues);
  for (uint32_t round = 0; round < 40; ++round) {
    for (uint32_t queue = 0; queue < queues; ++queue) {
      const uint32_t writes = random() % 6;
      for (uint32_t i = 0; i < writes; ++i) {
        const uint64_t place = queue * 8192 + i * 1024;
        std::memset(rig.data(0) + place, static_cast<int>(round + i), 1024);
        NicOperation write = rig.write(place, place, 1 + random() % 1024);
        write.signaled = false;
        rig.post(write, queue);
        if (random() % 3 == 0) rig.ring(queue);
      }
      rig.post(rig.add(8 * queue, 1), queue);
      rig.ring(queue);
      ++sent[queue];
    }
    rig.step_until_idle();
    for (uint32_t queue = 0; queue < queues; ++queue) {
      EXPECT_EQ(rig.signal(1, queue), sent[queue]);
      EXPECT_EQ(rig.look(queue).units, rig.posted_units(queue));
    }
  }
  EXPECT_TRUE(rig.nic().status().ok()) << rig.nic().status();
  return rig.port().calls;
}

// Addresses of two rigs differ; what is the same is the order of kinds and lengths, and the offset.
std::vector<RecordingPort::Call> relative(std::vector<RecordingPort::Call> calls, NicRig& rig) {
  for (RecordingPort::Call& call : calls) {
    if (call.kind == 'c') call.destination -= reinterpret_cast<uint64_t>(rig.data(1));
    if (call.kind == 'a') call.destination -= reinterpret_cast<uint64_t>(&rig.signal(1, 0));
    if (call.kind == 'w') call.destination -= reinterpret_cast<uint64_t>(&rig.signal(0, 0));
  }
  return calls;
}

// Goal    a seed fixes what the NIC does; another seed does something else.
// Method  the same operations three times, comparing all that memory was asked for.
TEST(NicSchedule, SeedsDecide) {
  for (const char* const format : kFormats) {
    std::vector<std::vector<RecordingPort::Call>> traces;
    for (const uint64_t seed : {7, 7, 8}) {
      NicRig rig({.format = format, .operations = 64, .queue_count = 3, .schedule = wild(seed)});
      traces.push_back(relative(run_batches(rig, 3, 1), rig));
    }
    EXPECT_TRUE(traces[0] == traces[1]) << format;
    EXPECT_FALSE(traces[0] == traces[2]) << format;
  }
}

// Goal    without a schedule all happens at once and in the order of posting.
// Method  the destinations of writes rise as they were posted, each write in one piece.
TEST(NicSchedule, NoneIsInOrder) {
  NicRig rig({.format = "mlx5", .operations = 64});
  for (uint32_t i = 0; i < 20; ++i) rig.post(rig.write(0, i * 1000, 999));
  rig.ring();
  EXPECT_EQ(rig.step_until_idle(), 1u);
  ASSERT_EQ(rig.port().calls.size(), 20u);
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(rig.port().calls[i].destination, reinterpret_cast<uint64_t>(rig.data(1)) + i * 1000);
    EXPECT_EQ(rig.port().calls[i].bytes, 999u);
  }
}

// Goal    writes land late and out of order, yet never after a later signal of their queue, and a
//         completion covers all of them.
// Method  at each addition of the trace, all bytes of the writes before it have landed; somewhere
//         the order differs from that of posting.
TEST(NicSchedule, NothingPassesASignal) {
  for (const char* const format : kFormats) {
    bool was_reordered = false;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      NicRig rig({.format = format,
                  .operations = 64,
                  .schedule = {.seed = seed, .late_percent = 60, .piece_bytes = 100}});
      for (uint32_t i = 0; i < 12; ++i) {
        NicOperation write = rig.write(0, i * 1024, 1000);
        write.signaled = false;
        rig.post(write);
      }
      rig.post(rig.add(0, 1));
      rig.post(rig.write(0, 40000, 1000));
      rig.ring();
      rig.step_until_idle();
      EXPECT_EQ(rig.look().units, rig.posted_units());

      uint64_t landed = 0;
      uint64_t last = 0;
      for (const RecordingPort::Call& call : rig.port().calls) {
        if (call.kind == 'a') break;
        landed += call.bytes;
        was_reordered |= call.destination < last;
        last = call.destination;
      }
      EXPECT_EQ(landed, 12 * 1000u) << format << " seed " << seed;
    }
    EXPECT_TRUE(was_reordered) << format;
  }
}

// Goal    writes of no bytes have no ranges to check, late or not; a late write's own error is told
//         at once.
// Method  all writes are late: an empty one without keys, then one of a wrong key.
TEST(NicSchedule, LateWritesAreCheckedAtOnce) {
  for (const char* const format : kFormats) {
    NicRig rig({.format = format, .schedule = {.late_percent = 100}});
    NicOperation write = rig.nothing();
    write.signaled = false;
    rig.run(write);
    EXPECT_TRUE(rig.nic().status().ok()) << format << rig.nic().status();
    write = rig.write(0, 0, 8);
    write.signaled = false;
    rig.post(write);
    write.remote_key = 99;
    rig.post(write);
    rig.ring();
    EXPECT_TRUE(rig.nic().step());
    EXPECT_EQ(rig.look().syndrome, rig.format().syndrome(NicFault::kRemoteAccess)) << format;
  }
}

// Goal    a long copy lands in pieces, in random order, all before its completion.
// Method  step until the completion shows; all bytes are there, and came out of order.
TEST(NicSchedule, PiecesMakeTheWhole) {
  NicRig rig({.format = "ionic", .schedule = {.seed = 3, .piece_bytes = 512}});
  for (uint32_t i = 0; i < 60000; ++i) rig.data(0)[i] = static_cast<uint8_t>(i * 7);
  rig.run(rig.write(0, 100, 60000));
  EXPECT_EQ(rig.look().units, rig.posted_units());
  EXPECT_TRUE(std::equal(rig.data(0), rig.data(0) + 60000, rig.data(1) + 100));
  const auto& calls = rig.port().calls;
  EXPECT_GT(calls.size(), 30u);
  EXPECT_FALSE(std::is_sorted(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
    return a.destination < b.destination;
  }));
}

// Goal    queues overtake each other, operations of one queue never do.
// Method  additions of distinct amounts on two queues; the trace mixes the queues, and each queue's
//         results are running sums.
TEST(NicSchedule, OrderWithinAQueueAlone) {
  NicRig rig({.format = "mlx5",
              .operations = 64,
              .queue_count = 2,
              .schedule = {.seed = 5, .delay_percent = 30, .shuffles_queues = true}});
  for (uint32_t i = 0; i < 20; ++i) {
    for (uint32_t queue = 0; queue < 2; ++queue) {
      rig.post(rig.add(8 * queue, 1, 8 * (10 + queue * 20 + i)), queue);
    }
  }
  rig.ring(0);
  rig.ring(1);
  EXPECT_GT(rig.step_until_idle(), 5u);
  uint32_t changes = 0;
  uint64_t last = 0;
  for (const RecordingPort::Call& call : rig.port().calls) {
    if (call.kind != 'a') continue;
    changes += call.destination != last ? 1 : 0;
    last = call.destination;
  }
  EXPECT_GT(changes, 4u);
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(rig.signal(0, 10 + i), i);
    EXPECT_EQ(rig.signal(0, 30 + i), i);
  }
}

// Goal    the operation that is chosen fails with the status that is chosen, and its queue with it.
// Method  the third of five; two happen, the rest is flushed.
TEST(NicSchedule, InjectsAnError) {
  for (const char* const format : kFormats) {
    NicRig rig({.format = format, .schedule = {.fail_operation = 3, .fail_syndrome = 0x0c}});
    for (uint32_t i = 0; i < 3; ++i) rig.run(rig.add(0, 1));
    EXPECT_EQ(rig.look().syndrome, 0x0cu) << format;
    for (uint32_t i = 0; i < 2; ++i) rig.run(rig.add(0, 1));
    EXPECT_EQ(rig.signal(1, 0), 2u);
    EXPECT_TRUE(absl::IsUnavailable(rig.nic().status())) << rig.nic().status();
    EXPECT_TRUE(absl::StrContains(rig.nic().status().message(), "injected")) << rig.nic().status();
  }
}

}  // namespace
}  // namespace cco
