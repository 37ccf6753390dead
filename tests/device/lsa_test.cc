#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "emulated_node.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;
using testing::kLongNs;

template <typename C>
class Signals : public ::testing::Test {};
using Groups = ::testing::Types<ThreadCoop, WarpCoop, BlockCoop>;
TYPED_TEST_SUITE(Signals, Groups);

// Goal    a put before a signal is visible to every thread of the group that waited for the signal.
// Method  two ranks send each other a block of plain bytes per round, by signal_add and signal_set
//         in turn, and each thread of the receiver reads all of it. The answer paces the rounds.
TYPED_TEST(Signals, PutThenSignalPublishes) {
  constexpr uint64_t kBytes = 512, kRounds = 20;
  EmulatedNode node({.ranks = 2});
  std::atomic<uint32_t> wrong{0};
  node.run(1, 40, [&](uint32_t rank) {
    const TypeParam coop{};
    if (thread_index() != coop.thread_rank()) return;
    const DeviceComm comm = node.comm(rank);
    const Window window = node.window(rank);
    const Deadline deadline = Deadline::after(comm, kLongNs);
    const uint32_t peer = 1 - rank;
    for (uint64_t round = 1; round <= kRounds; ++round) {
      std::vector<char> sent(kBytes, static_cast<char>(round + rank));
      put(coop, peer, at(window, 0), sent.data(), kBytes);
      if (round % 2 == 0) {
        signal_set(coop, comm, peer, 3, round);
      } else {
        signal_add(coop, comm, peer, 3, 1);
      }
      if (wait_at_least(coop, comm, 3, round, deadline).status != WaitStatus::kArrived) ++wrong;
      const char* const received = local_ptr<char>(window);
      for (uint64_t i = 0; i < kBytes; ++i) {
        if (received[i] != static_cast<char>(round + peer)) ++wrong;
      }
      signal_add(coop, comm, peer, 4, 1);  // Read; may be overwritten.
      if (wait_at_least(coop, comm, 4, round, deadline).status != WaitStatus::kArrived) ++wrong;
    }
    if (read_signal(comm, 3) != kRounds) ++wrong;
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    signals compare wrap-safe: a value just past 2^64 has reached a target just below.
// Method  pairs around the wrap.
TEST(Wait, ComparesAcrossTheWrap) {
  EmulatedNode node({});
  const DeviceComm comm = node.comm(0);
  const uint64_t top = ~uint64_t{0};
  const auto status = [&](uint64_t value, uint64_t target) {
    store_relaxed_system(signal_ptr(comm, 0, 0), value);
    return wait_at_least(ThreadCoop{}, comm, 0, target, Deadline::after(comm, 0)).status;
  };
  EXPECT_EQ(status(top, top), WaitStatus::kArrived);
  EXPECT_EQ(status(0, top), WaitStatus::kArrived);
  EXPECT_EQ(status(5, top - 5), WaitStatus::kArrived);
  EXPECT_EQ(status(top, 0), WaitStatus::kTimedOut);
  EXPECT_EQ(status(top - 5, 5), WaitStatus::kTimedOut);
  EXPECT_EQ(status(0, 1), WaitStatus::kTimedOut);
}

/// Waits for a signal nobody sends, in a block; every thread's result, and how long it took.
std::vector<WaitResult> wait_in_vain(const EmulatedNode& node, uint64_t deadline_ns) {
  std::vector<WaitResult> results(40, WaitResult{WaitStatus::kArrived, 0});
  EmulatedNode::run_on(0, 1, 40, [&](uint32_t) {
    const DeviceComm comm = node.comm(0);
    results[thread_index()] =
        wait_at_least(BlockCoop{}, comm, 0, 1, Deadline::after(comm, deadline_ns));
  });
  return results;
}

// Goal    a wait ends at its deadline, not before, with the same answer for all threads.
// Method  nobody signals.
TEST(Wait, TimesOutForTheWholeGroup) {
  EmulatedNode node({});
  const auto begin = std::chrono::steady_clock::now();
  for (const WaitResult& result : wait_in_vain(node, 30'000'000)) {
    EXPECT_EQ(result.status, WaitStatus::kTimedOut);
    EXPECT_EQ(result.rank, kNoRank);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
}

// Goal    a set abort word ends a wait early and for all threads, naming the lost rank, and it wins
//         over a deadline that has passed too.
// Method  set it before, and set it during an endless wait.
TEST(Wait, EndsWhenAPeerIsLost) {
  EmulatedNode node({.ranks = 2, .lsa_first = 4});
  std::thread daemon([&] { node.abort(CCO_ABORT_PEER_LOST, 5); });
  for (const WaitResult& result : wait_in_vain(node, ~uint64_t{0})) {
    EXPECT_EQ(result.status, WaitStatus::kPeerLost);
    EXPECT_EQ(result.rank, 5u);
  }
  daemon.join();
  for (const WaitResult& result : wait_in_vain(node, 0)) {
    EXPECT_EQ(result.status, WaitStatus::kPeerLost);
  }
}

// Goal    what has arrived counts even when the group was aborted or the deadline has passed.
// Method  signal, abort, then wait with no time left.
TEST(Wait, ArrivedBeatsDeadlineAndAbort) {
  EmulatedNode node({});
  const DeviceComm comm = node.comm(0);
  signal_add(ThreadCoop{}, comm, 0, 0, 1);
  node.abort(CCO_ABORT_REQUESTED, 1);
  EXPECT_EQ(wait_at_least(ThreadCoop{}, comm, 0, 1, Deadline::after(comm, 0)).status,
            WaitStatus::kArrived);
}

// Goal    a communicator without an abort word still waits and times out.
// Method  abort_word 0.
TEST(Wait, WorksWithoutAnAbortWord) {
  EmulatedNode node({});
  DeviceComm comm = node.comm(0);
  comm.abort_word = 0;
  EXPECT_EQ(wait_at_least(ThreadCoop{}, comm, 0, 1, Deadline::after(comm, 1000)).status,
            WaitStatus::kTimedOut);
}

// Goal    in checked builds an index outside the communicator's signals or barriers stops the
//         kernel.
// Method  the first index that is not there.
TEST(LsaDeathTest, WrongIndicesStop) {
  EmulatedNode node({.signal_count = 16, .barrier_count = 4});
  const DeviceComm comm = node.comm(0);
  EXPECT_DEATH(signal_add(ThreadCoop{}, comm, 1, 16, 1), "signal index.*: 16, limit 16");
  EXPECT_DEATH(read_signal(comm, 1000), "signal index.*: 1000, limit 16");
  EXPECT_DEATH(signal_ptr(comm, 2, 0), "LSA rank out of range: 2, limit 2");
  EXPECT_DEATH(LsaBarrier<ThreadCoop>(ThreadCoop{}, comm, 4), "barrier index.*: 4, limit 4");
}

}  // namespace
}  // namespace cco::device
