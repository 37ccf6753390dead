#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <vector>

#include "device/transport/engine_thread.h"
#include "tests/device/work_rings.h"

namespace cco::device {
namespace {

using testing::DirectBackend;
using testing::EmulatedNode;
using testing::kLongNs;
using testing::plain_meaning;
using testing::team_of;
using testing::TestRing;

constexpr uint64_t kShortNs = 2'000'000;

/// Two ranks; rank 0 has a ring whose consumer can be started and stopped.
class Ring : public ::testing::Test {
 protected:
  void make(uint32_t depth, uint64_t first = 0) {
    ring_.emplace(depth, first);
    ASSERT_TRUE(
        windows_.add({EmulatedNode::kWindowGeneration, node_.options().window_bytes, node_.bases()})
            .ok());
  }
  void start() {
    if (!consumer_.has_value()) {
      consumer_.emplace(team_, plain_meaning(node_, 4), std::vector{ring_->host()}, &backend_,
                        WorkConsumer::Options{});
    }
    engine_.emplace([this] { return consumer_->step(); }, kHostPace);
  }
  void stop() { engine_.reset(); }

  Deadline deadline(uint64_t nanoseconds) { return Deadline::after(node_.comm(0), nanoseconds); }
  /// What raises signal 0 of rank 1.
  static cco_work_item signal() {
    cco_work_item item{};
    item.header = CCO_WORK_HEADER(0, CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, 1);
    item.signal_delta = 1;
    return item;
  }
  uint64_t signal_of(uint32_t rank) const {
    return load_acquire_system(
        reinterpret_cast<const uint64_t*>(node_.control_bases()[rank] + node_.transport_offset()));
  }
  uint64_t post(const cco_work_item& item, uint64_t nanoseconds = kLongNs) {
    const Deadline until = deadline(nanoseconds);
    Poll poll(until);
    impl::WorkGuess guess;
    return impl::post_work(ring_->device(), guess, item, poll);
  }
  bool complete(uint64_t position) {
    const Deadline until = deadline(kLongNs);
    Poll poll(until);
    while (!is_completed(position)) {
      if (!poll.again()) return false;
    }
    return true;
  }
  bool is_completed(uint64_t position) {
    uint64_t completed = 0;
    return impl::work_completed(ring_->device(), position, &completed);
  }

  EmulatedNode node_{{.ranks = 2, .window_bytes = 16384, .transport_bytes = 4096}};
  WindowRegistry windows_;
  const TransportTeam team_ = team_of(node_, 0, &windows_);
  std::optional<TestRing> ring_;
  DirectBackend backend_;
  std::optional<WorkConsumer> consumer_;
  std::optional<EngineThread> engine_;
};

// Goal    an item arrives in the ring as it was posted, with its position in the header and its lap
//         in every other word.
// Method  every field has a value of its own, the delta all bits; look at the slots of two laps.
TEST_F(Ring, KeepsEveryField) {
  make(2);
  cco_work_item item{CCO_WORK_HEADER(0, 3, 2, 0xfedc),
                     ~uint64_t{1} >> 1,
                     2ull << 40,
                     3ull << 40,
                     4ull << 40,
                     5ull << 40,
                     6ull << 40,
                     ~uint64_t{6}};
  const auto expect = [&](uint32_t position) {
    constexpr size_t kWords = sizeof item / sizeof(uint64_t);
    uint64_t want[kWords], got[kWords];
    std::memcpy(want, &item, sizeof item);
    std::memcpy(got, &ring_->items()[position % 2], sizeof item);
    EXPECT_EQ(got[0], CCO_WORK_HEADER(position + 1, 3, 2 | CCO_WORK_DELTA_TOP, 0xfedc));
    for (size_t i = 1; i < kWords; ++i) {
      EXPECT_EQ(got[i] & ~CCO_WORK_TOP, want[i] & ~CCO_WORK_TOP) << i;
      EXPECT_EQ((got[i] & CCO_WORK_TOP) != 0, position < 2) << i;
    }
  };
  EXPECT_EQ(post(item), 1u);
  expect(0);
  EXPECT_EQ(ring_->items()[1].header, 0u);
  EXPECT_EQ(post(item), 2u);
  expect(1);
  ring_->complete(1);
  EXPECT_EQ(post(item), 3u);
  expect(2);
}

// Goal    a producer that remembers where it was posts in its turn, whatever others have done
//         since.
// Method  two producers, each with a guess of its own, in turn and in any order, over a full lap;
//         one knows of completions; guesses that are far behind and far ahead.
TEST_F(Ring, GuessesAreOnlyGuesses) {
  make(4);
  const Deadline until = deadline(kLongNs);
  impl::WorkGuess one, other;
  const auto post_by = [&](impl::WorkGuess& guess) {
    Poll poll(until);
    return impl::post_work(ring_->device(), guess, signal(), poll);
  };
  EXPECT_EQ(post_by(one), 1u);
  EXPECT_EQ(post_by(other), 2u);
  EXPECT_EQ(post_by(other), 3u);
  EXPECT_EQ(post_by(one), 4u) << "its guess was two behind";
  ring_->complete(4);
  one.completed = 4 | CCO_WORK_FAILED;
  EXPECT_EQ(post_by(one), 5u);
  EXPECT_EQ(post_by(other), 6u) << "it has yet to hear of the completions";
  other.next = 1000;
  EXPECT_EQ(post_by(other), 7u);
  EXPECT_EQ(post_by(one), 8u);
  const Deadline soon = deadline(kShortNs);
  Poll poll(soon);
  EXPECT_EQ(impl::post_work(ring_->device(), one, signal(), poll), 0u) << "full";
  EXPECT_EQ(ring_->posted(), 8u);
}

// Goal    items of many threads all get through, each once, while the ring wraps over a thousand
//         times; and what an item fetches is there when it is completed.
// Method  80 threads put a value of their own to the peer and get it back, over a ring of 4. TSan
//         would report a missing order.
TEST_F(Ring, ManyProducersAndAThousandWraps) {
  constexpr uint32_t kRounds = 30, kBlocks = 2, kThreads = 40;
  make(4);
  start();
  std::atomic<uint32_t> wrong{0};
  auto* const own = reinterpret_cast<uint64_t*>(node_.data(0));
  EmulatedNode::run_on(0, kBlocks, kThreads, [&](uint32_t) {
    const uint64_t slot = block_index() * kThreads + thread_index();
    for (uint64_t round = 1; round <= kRounds; ++round) {
      cco_work_item item = signal();
      own[2 * slot] = slot << 32 | round;
      item.header = CCO_WORK_HEADER(0, CCO_WORK_PUT, CCO_WORK_SIGNAL_REMOTE, 1);
      item.bytes = 8;
      item.remote_generation = item.local_generation = EmulatedNode::kWindowGeneration;
      item.remote_offset = item.local_offset = 16 * slot;
      if (post(item) == 0) ++wrong;
      item.header = CCO_WORK_HEADER(0, CCO_WORK_GET, CCO_WORK_SIGNAL_LOCAL, 1);
      item.local_offset += 8;
      if (!complete(post(item))) ++wrong;
      if (own[2 * slot + 1] != (slot << 32 | round)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0u);
  constexpr uint64_t kItems = uint64_t{kRounds} * kBlocks * kThreads;
  EXPECT_EQ(ring_->posted(), 2 * kItems);
  EXPECT_EQ(ring_->completed(), 2 * kItems);
  EXPECT_EQ(signal_of(0), kItems);
  EXPECT_EQ(signal_of(1), kItems);
  EXPECT_EQ(impl::work_error(ring_->device()), 0u);
}

// Goal    positions go on where the sequence in the header wraps.
// Method  begin just below 2^32.
TEST_F(Ring, SequenceWraps) {
  make(8, (uint64_t{1} << 32) - 20);
  start();
  uint64_t last = 0;
  for (int i = 0; i < 40; ++i) last = post(signal());
  EXPECT_EQ(last, (uint64_t{1} << 32) + 20);
  EXPECT_TRUE(complete(last));
  EXPECT_EQ(signal_of(1), 40u);
}

// Goal    threads that give up on a full ring leave no hole: what was posted is performed, and the
//         ring goes on.
// Method  40 threads post to a ring of 8 that nobody serves; then serve it, and post again.
TEST_F(Ring, GivesUpWithoutAHole) {
  make(8);
  std::atomic<uint32_t> posted{0};
  EmulatedNode::run_on(0, 1, 40, [&](uint32_t) {
    if (post(signal(), kShortNs) != 0) ++posted;
  });
  EXPECT_EQ(posted, 8u);
  EXPECT_EQ(ring_->posted(), 8u);
  EXPECT_FALSE(is_completed(1));
  start();
  EmulatedNode::run_on(0, 1, 40, [&](uint32_t) {
    if (post(signal()) != 0) ++posted;
  });
  EXPECT_EQ(posted, 48u);
  EXPECT_TRUE(complete(48));
  EXPECT_EQ(signal_of(1), 48u);
  stop();
  for (int i = 0; i < 8; ++i) EXPECT_NE(post(signal(), kShortNs), 0u);
  EXPECT_EQ(post(signal(), kShortNs), 0u) << "the consumer has stopped";
  start();
  EXPECT_TRUE(complete(post(signal())));
  EXPECT_EQ(signal_of(1), 57u);
}

// Goal    a thread that waits for room leaves when the group is aborted, and says so.
// Method  a full ring, an abort from another thread, a deadline that never comes.
TEST_F(Ring, AbortEndsTheWaitForRoom) {
  make(2);
  while (post(signal(), 0) != 0) {
  }
  bool aborted = false;
  uint64_t position = 1;
  EmulatedNode::run_on(0, 1, 2, [&](uint32_t) {
    if (thread_index() == 1) return node_.abort(CCO_ABORT_PEER_LOST, 1);
    const Deadline never = deadline(~uint64_t{0});
    Poll poll(never);
    impl::WorkGuess guess;
    position = impl::post_work(ring_->device(), guess, signal(), poll);
    aborted = poll.aborted();
  });
  EXPECT_EQ(position, 0u);
  EXPECT_TRUE(aborted);
}

// Goal    an error of one item is seen by producers, and completes it.
// Method  an item for a rank that is not there.
TEST_F(Ring, ErrorsAreSeen) {
  make(4);
  start();
  cco_work_item item = signal();
  item.header = CCO_WORK_HEADER(0, CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, 7);
  EXPECT_TRUE(complete(post(item)));
  const uint64_t error = impl::work_error(ring_->device());
  EXPECT_EQ(CCO_WORK_ERROR_REASON(error), CCO_WORK_BAD_PEER);
  EXPECT_EQ(CCO_WORK_ERROR_PEER(error), 7u);
  EXPECT_TRUE(ring_->has_failed());
  EXPECT_TRUE(complete(post(signal()))) << "the ring goes on";
  EXPECT_EQ(signal_of(1), 1u);
}

}  // namespace
}  // namespace cco::device
