// The contract of sdma.h, for every provider that runs here.
#include "cco/device/sdma.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/emulated_transports.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;
using testing::EmulatedTransports;
using testing::kLongNs;

constexpr uint64_t kWindowBytes = uint64_t{4} << 20;
constexpr uint64_t kHalf =
    kWindowBytes / 2;  // Sources lie in the first half, copies in the second.
constexpr uint32_t kQueues = 2;

EmulatedTransports::Options options_of(const std::string& provider, uint32_t ranks = 2,
                                       uint64_t window_bytes = kWindowBytes) {
  EmulatedTransports::Options options;
  options.node.ranks = ranks;
  options.node.window_bytes = window_bytes;
  options.sdma = provider;
  options.sdma_plan.queue_count = kQueues;
  return options;
}

/// Byte i of what `rank` sends.
char pattern(uint32_t rank, uint64_t i) { return static_cast<char>(i * 31 + i / 251 + rank * 77); }

void fill(EmulatedNode& node, uint32_t rank) {
  for (uint64_t i = 0; i < kHalf; ++i) node.data(rank)[i] = pattern(rank, i);
  std::fill(node.data(rank) + kHalf, node.data(rank) + 2 * kHalf, '\x55');
}

/// Whether bytes [offset, offset + bytes) of the second half are those of `sender` from `from`,
/// with nothing changed right before and after.
bool holds(const EmulatedNode& node, uint32_t rank, uint64_t offset, uint32_t sender, uint64_t from,
           uint64_t bytes) {
  const char* const copied = node.data(rank) + kHalf + offset;
  for (uint64_t i = 0; i < bytes; ++i) {
    if (copied[i] != pattern(sender, from + i)) return false;
  }
  return (offset == 0 || copied[-1] == '\x55') && copied[bytes] == '\x55';
}

/// What one thread does in a kernel, with its failures counted.
struct Actor {
  Actor(EmulatedTransports& transports, uint32_t rank, std::atomic<uint32_t>& wrong)
      : comm(transports.comm(rank)),
        window(transports.node().window(rank)),
        sdma(comm),
        deadline(Deadline::after(comm, kLongNs)),
        wrong(wrong) {}
  void expect(bool condition) const { wrong += condition ? 0 : 1; }
  void arrived(WaitResult result) const { expect(result.status == WaitStatus::kArrived); }

  const DeviceComm comm;
  const Window window;
  const Sdma sdma;
  const Deadline deadline;
  std::atomic<uint32_t>& wrong;
};

class SdmaTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Providers, SdmaTest, ::testing::Values("host", "copy-engine"),
                         [](const auto& provider) {
                           std::string name = provider.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

struct Piece {
  uint64_t bytes, from, to;
};
const Piece kPieces[] = {{0, 0, 64},   {1, 3, 7},           {15, 64, 65},      {4095, 1, 128},
                         {4096, 0, 0}, {65536, 4096, 8192}, {1 << 20, 17, 19}, {100, 5, 4000}};

template <typename C>
void move_pieces(EmulatedTransports& transports, uint32_t rank, uint32_t peer, C coop,
                 std::atomic<uint32_t>& wrong) {
  const Actor self(transports, rank, wrong);
  const Sdma& sdma = self.sdma;
  EmulatedNode& node = transports.node();
  uint64_t risen = sdma.read_signal(rank, 1);
  for (const Piece& piece : kPieces) {
    for (const bool is_put : {true, false}) {
      char* const copied = node.data(is_put ? peer : rank) + kHalf;
      if (coop.is_leader()) std::fill(copied, copied + kHalf, '\x55');
      coop.sync();
      const Place from = at(self.window, piece.from), to = at(self.window, kHalf + piece.to);
      self.arrived(
          is_put ? sdma.put<kSdmaSignalLocal>(coop, peer, to, from, piece.bytes, 1, self.deadline)
                 : sdma.get<kSdmaSignalLocal>(coop, peer, from, to, piece.bytes, 1, self.deadline));
      ++risen;
      if (is_put) {
        self.arrived(sdma.wait_signal(coop, rank, 1, risen, self.deadline));
      } else {
        self.arrived(sdma.quiet(coop, peer, self.deadline));
      }
      if (coop.is_leader()) {
        self.expect(is_put ? holds(node, peer, piece.to, rank, piece.from, piece.bytes)
                           : holds(node, rank, piece.to, peer, piece.from, piece.bytes));
      }
      coop.sync();
    }
  }
  self.arrived(sdma.wait_signal(coop, rank, 1, risen, self.deadline));
  self.expect(sdma.read_signal(rank, 1) == risen);
}

// Goal    put and get move exactly the bytes asked for, of any length and alignment, by each kind
//         of group, to a peer and to the rank itself; the local signal and quiet() each say when.
// Method  one rank at work; every length both ways; a guard byte on each side.
TEST_P(SdmaTest, MovesAnyLengthByAnyGroup) {
  EmulatedTransports transports(options_of(GetParam()));
  std::atomic<uint32_t> wrong{0};
  for (uint32_t rank = 0; rank < 2; ++rank) fill(transports.node(), rank);
  for (const uint32_t peer : {1u, 0u}) {
    const auto run = [&](uint32_t threads, auto coop) {
      EmulatedNode::run_on(
          0, 1, threads, [&](uint32_t rank) { move_pieces(transports, rank, peer, coop, wrong); });
    };
    run(1, ThreadCoop{});
    run(6, WarpCoop{});
    run(40, BlockCoop{});
    EXPECT_EQ(wrong, 0u) << "to rank " << peer;
    EXPECT_TRUE(transports.sdma(0).status().ok()) << transports.sdma(0).status();
  }
}

template <typename C>
class SdmaGroups : public ::testing::Test {};
using Groups = ::testing::Types<ThreadCoop, WarpCoop, BlockCoop>;
TYPED_TEST_SUITE(SdmaGroups, Groups);

// Goal    what a put carries is there, for every thread of the group, when the wait for its remote
//         signal returns; what the sender's group stored before the put is what is carried.
// Method  two ranks send each other a block per round, written by all threads right before; the
//         answer, a signal alone on another queue, paces the rounds.
TYPED_TEST(SdmaGroups, PutThenSignalPublishes) {
  constexpr uint64_t kBytes = 640, kRounds = 15;
  for (const char* const provider : {"host", "copy-engine"}) {
    EmulatedTransports transports(options_of(provider, 2, 8192));
    std::atomic<uint32_t> wrong{0};
    transports.node().run(1, 40, [&](uint32_t rank) {
      const TypeParam coop{};
      if (thread_index() != coop.thread_rank()) return;
      const Actor self(transports, rank, wrong);
      const uint32_t peer = 1 - rank;
      for (uint64_t round = 1; round <= kRounds; ++round) {
        char* const mine = local_ptr<char>(self.window);
        for (uint64_t i = coop.thread_rank(); i < kBytes; i += coop.size()) {
          mine[i] = static_cast<char>(round * 2 + rank);
        }
        self.arrived(self.sdma.template put<kSdmaSignalRemote>(
            coop, peer, at(self.window, 4096), at(self.window, 0), kBytes, 0, self.deadline));
        self.arrived(self.sdma.wait_signal(coop, peer, 0, round, self.deadline));
        for (uint64_t i = 0; i < kBytes; ++i) {
          self.expect(local_ptr<char>(self.window)[4096 + i] ==
                      static_cast<char>(round * 2 + peer));
        }
        self.arrived(self.sdma.quiet_queue(coop, peer, 0, self.deadline));
        self.arrived(self.sdma.signal(coop, peer, 1, self.deadline));
        self.arrived(self.sdma.wait_signal(coop, peer, 1, round, self.deadline));
      }
      self.expect(self.sdma.read_signal(peer, 0) == kRounds);
      self.expect(self.sdma.read_signal(rank, 0) == 0);
    });
    EXPECT_EQ(wrong, 0u) << provider;
  }
}

/// Runs one call of ThreadCoop by `threads` threads; returns how often (rank 0, queue) has risen at
/// the peer and here, by then and after all has landed.
struct Risen {
  uint64_t remote[kQueues];
  uint64_t local[kQueues];
};
template <typename F>
Risen count_signals(EmulatedTransports& transports, uint32_t threads, F call) {
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, threads, [&](uint32_t rank) {
    const Actor self(transports, rank, wrong);
    call(self);
    block_sync();
    self.arrived(self.sdma.quiet(BlockCoop{}, 1, self.deadline));
    self.arrived(self.sdma.quiet(BlockCoop{}, 0, self.deadline));
  });
  EXPECT_EQ(wrong, 0u);
  const DeviceComm here = transports.comm(0), there = transports.comm(1);
  Risen risen{};
  for (uint32_t queue = 0; queue < kQueues; ++queue) {
    risen.remote[queue] = Sdma(there).read_signal(0, queue);
    risen.local[queue] = Sdma(here).read_signal(0, queue);
  }
  return risen;
}

// Goal    threads of a warp that put together to one peer and queue raise one signal; one each with
//         kSdmaSignalPerCopy; both kinds with both options; and all their bytes move.
// Method  a warp of 12 and one of 32; queues by lane; counts after quiet().
TEST_P(SdmaTest, OneSignalPerGroupOrPerCopy) {
  constexpr uint64_t kBytes = 96;
  const auto check = [&](uint32_t threads, auto call, Risen expected) {
    EmulatedTransports transports(options_of(GetParam()));
    fill(transports.node(), 0);
    fill(transports.node(), 1);
    const Risen risen = count_signals(transports, threads, [&](const Actor& self) {
      const uint64_t offset = thread_index() * kBytes;
      self.arrived(call(self, at(self.window, kHalf + offset), at(self.window, offset)));
    });
    for (uint32_t queue = 0; queue < kQueues; ++queue) {
      EXPECT_EQ(risen.remote[queue], expected.remote[queue]) << "queue " << queue;
      EXPECT_EQ(risen.local[queue], expected.local[queue]) << "queue " << queue;
    }
    EXPECT_TRUE(holds(transports.node(), 1, 0, 0, 0, threads * kBytes));
  };
  const ThreadCoop thread{};
  check(12,
        [&](const Actor& self, Place to, Place from) {
          return self.sdma.put<kSdmaSignalRemote>(thread, 1, to, from, kBytes, 0, self.deadline);
        },
        {{1, 0}, {0, 0}});
  check(12,
        [&](const Actor& self, Place to, Place from) {
          return self.sdma.put<kSdmaSignalRemote | kSdmaSignalPerCopy>(
              thread, 1, to, from, kBytes, thread_index() % 2, self.deadline);
        },
        {{6, 6}, {0, 0}});
  check(32,
        [&](const Actor& self, Place to, Place from) {
          return self.sdma.put<kSdmaSignalRemote | kSdmaSignalLocal>(
              thread, 1, to, from, kBytes, thread_index() % 3 == 0 ? 1 : 0, self.deadline);
        },
        {{1, 1}, {1, 1}});
  check(32,
        [&](const Actor& self, Place to, Place from) {
          constexpr uint32_t kAll =
              kSdmaSignalRemote | kSdmaSignalLocal | kSdmaSignalPerCopy | kSdmaSameQueue;
          return self.sdma.put<kAll>(thread, 1, to, from, kBytes, 1, self.deadline);
        },
        {{0, 32}, {0, 32}});
  check(40,
        [&](const Actor& self, Place to, Place from) {
          return self.sdma.put<kSdmaSignalLocal | kSdmaSameQueue>(thread, 1, to, from, kBytes, 0,
                                                                  self.deadline);
        },
        {{0, 0}, {2, 0}});
}

// Goal    a put of no bytes, a signal alone, and puts to the rank itself raise their signals too,
//         for threads with and without bytes in one call.
// Method  counts after quiet().
TEST_P(SdmaTest, NoBytesStillSignal) {
  EmulatedTransports transports(options_of(GetParam()));
  const Risen risen = count_signals(transports, 5, [&](const Actor& self) {
    const ThreadCoop thread{};
    const Place to = at(self.window, kHalf + 8 * thread_index());
    const Place from = at(self.window, 8 * thread_index());
    self.arrived(
        self.sdma.put<kSdmaSignalRemote>(WarpCoop{}, 1, to, from, 0, 0, self.deadline));  // 1
    self.arrived(self.sdma.put<kSdmaSignalRemote | kSdmaSignalPerCopy>(
        thread, 1, to, from, thread_index() % 2 * 8, 0, self.deadline));  // 5
    self.arrived(self.sdma.signal<kSdmaSignalRemote | kSdmaSignalLocal>(BlockCoop{}, 1, 1,
                                                                        self.deadline));  // 1, 1
    self.arrived(self.sdma.put<kSdmaSignalRemote | kSdmaSignalLocal>(thread, 0, to, from, 8, 1,
                                                                     self.deadline));  // 0, 2
    self.arrived(self.sdma.put(thread, 1, to, from, 0, 1, self.deadline));             // Nothing.
  });
  EXPECT_EQ(risen.remote[0], 6u);
  EXPECT_EQ(risen.remote[1], 1u);
  EXPECT_EQ(risen.local[0], 0u);
  EXPECT_EQ(risen.local[1], 3u);
}

// Goal    aggregated puts take effect by commit(), by quiet(), or by the next plain put on their
//         queue, and none of these ever dead-locks.
// Method  each of the three ends, after more aggregated puts than a ring has room for, from one
//         thread and from a warp.
TEST_P(SdmaTest, AggregatedPutsAreStarted) {
  EmulatedTransports transports(options_of(GetParam()));
  std::atomic<uint32_t> wrong{0};
  fill(transports.node(), 0);
  fill(transports.node(), 1);
  constexpr uint32_t kPuts = 3000;
  for (const uint32_t threads : {1u, 4u}) {
    for (uint32_t end = 0; end < 3; ++end) {
      const uint64_t before = Sdma(transports.comm(1)).read_signal(0, 0);
      EmulatedNode::run_on(0, 1, threads, [&](uint32_t rank) {
        const Actor self(transports, rank, wrong);
        const Sdma& sdma = self.sdma;
        const ThreadCoop thread{};
        const uint64_t at_thread = thread_index() * 64;
        for (uint32_t i = 0; i < kPuts; ++i) {
          self.arrived(sdma.put<kSdmaAggregate | kSdmaSignalRemote | kSdmaSignalPerCopy>(
              thread, 1, at(self.window, kHalf + at_thread), at(self.window, at_thread), 64, 0,
              self.deadline));
        }
        if (end == 0) self.arrived(sdma.commit(thread, 1, 0, self.deadline));
        if (end == 1) self.arrived(sdma.quiet(thread, 1, self.deadline));
        if (end == 2) {
          self.arrived(sdma.put(thread, 1, at(self.window, kHalf + at_thread),
                                at(self.window, at_thread), 64, 0, self.deadline));
        }
      });
      EmulatedNode::run_on(1, 1, 1, [&](uint32_t rank) {
        const Actor self(transports, rank, wrong);
        self.arrived(
            self.sdma.wait_signal(ThreadCoop{}, 0, 0, before + kPuts * threads, self.deadline));
      });
      EmulatedNode::run_on(0, 1, 1, [&](uint32_t rank) {  // The last plain put raised no signal.
        const Actor self(transports, rank, wrong);
        self.arrived(self.sdma.quiet(ThreadCoop{}, 1, self.deadline));
      });
      EXPECT_EQ(wrong, 0u) << threads << " threads, end " << end;
      EXPECT_TRUE(holds(transports.node(), 1, 0, 0, 0, 64 * threads));
    }
  }
}

// Goal    many threads of several warps and blocks on the same queue, some aggregating, lose and
//         double nothing.
// Method  two blocks of 40 threads put words to distinct places on both queues, by threads and by
//         warps in turn, and a signal each.
TEST_P(SdmaTest, ManyProducersShareAQueue) {
  constexpr uint32_t kThreads = 40, kRounds = 12;
  EmulatedTransports transports(options_of(GetParam()));
  EmulatedNode& node = transports.node();
  fill(node, 0);
  fill(node, 1);
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 2, kThreads, [&](uint32_t rank) {
    const Actor self(transports, rank, wrong);
    const ThreadCoop thread{};
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint64_t place =
          24 * ((uint64_t{round} * 2 + block_index()) * kThreads + thread_index());
      const Place to = at(self.window, kHalf + place), from = at(self.window, place);
      const uint32_t queue = (thread_index() + round) % 2;
      if (thread_index() % 5 == 0) {
        self.arrived(self.sdma.put<kSdmaSignalRemote | kSdmaSignalPerCopy | kSdmaAggregate>(
            thread, 1, to, from, 24, queue, self.deadline));
      } else {
        self.arrived(self.sdma.put<kSdmaSignalRemote | kSdmaSignalPerCopy>(thread, 1, to, from, 24,
                                                                           queue, self.deadline));
      }
      if (round % 4 == 3) {
        self.arrived(self.sdma.signal(WarpCoop{}, 1, 0, self.deadline));
      }
    }
    self.arrived(self.sdma.quiet(WarpCoop{}, 1, self.deadline));
  });
  EXPECT_EQ(wrong, 0u);
  const DeviceComm there = transports.comm(1);
  const uint64_t warps = 2 * 2;
  EXPECT_EQ(Sdma(there).read_signal(0, 0) + Sdma(there).read_signal(0, 1),
            uint64_t{2} * kThreads * kRounds + warps * kRounds / 4);
  EXPECT_TRUE(holds(node, 1, 0, 0, 0, uint64_t{24} * 2 * kThreads * kRounds));
}

template <typename C>
void refuse_all(const Actor& self, C coop) {
  const Sdma& sdma = self.sdma;
  const Deadline& deadline = self.deadline;
  const auto refused = [&](WaitResult result, uint32_t rank) {
    self.expect(result.status == WaitStatus::kRefused && result.rank == rank);
  };
  const Place from = at(self.window, 0), to = at(self.window, kHalf);
  refused(sdma.put(coop, 2, to, from, 8, 0, deadline), kNoRank);
  refused(sdma.put(coop, ~0u, to, from, 8, 0, deadline), kNoRank);
  refused(sdma.put(coop, 1, to, from, 8, kQueues, deadline), 1);
  refused(sdma.get(coop, 1, from, to, 8, ~0u, deadline), 1);
  refused(sdma.put(coop, 1, to, from, kHalf + 1, 0, deadline), 1);
  refused(sdma.put(coop, 1, from, to, kHalf + 1, 0, deadline), 1);
  refused(sdma.put(coop, 1, to, from, ~uint64_t{0}, 0, deadline), 1);
  refused(sdma.put(coop, 1, at(self.window, kWindowBytes + 1), from, 0, 0, deadline), 1);
  refused(sdma.get(coop, 1, at(self.window, ~uint64_t{0} - 3), to, 8, 0, deadline), 1);
  Window dead = self.window;
  dead.generation = 0;
  refused(sdma.put<kSdmaSignalRemote>(coop, 1, at(dead, 0), from, 8, 0, deadline), 1);
  refused(sdma.put<kSdmaSignalRemote>(coop, 1, to, at(dead, 0), 8, 0, deadline), 1);
  refused(sdma.signal(coop, 2, 0, deadline), kNoRank);
  refused(sdma.commit(coop, 1, kQueues, deadline), 1);
  refused(sdma.quiet(coop, 2, deadline), kNoRank);
  refused(sdma.quiet_queue(coop, 1, kQueues, deadline), 1);
  refused(sdma.wait_signal(coop, 2, 0, 0, deadline), kNoRank);
  refused(sdma.wait_signal(coop, 1, kQueues, 0, deadline), 1);
  self.expect(sdma.read_signal(2, 0) == 0 && sdma.read_signal(0, kQueues) == 0);
}

// Goal    a wrong argument is refused, named, and posts nothing: peer, queue, range, dead window,
//         no SDMA at all, or an unknown kind of it.
// Method  each, for every group; then no signal has risen, no byte has moved, and the same group
//         still can put.
TEST_P(SdmaTest, WrongArgumentsAreRefused) {
  EmulatedTransports transports(options_of(GetParam()));
  fill(transports.node(), 1);
  const Risen risen = count_signals(transports, 3, [&](const Actor& self) {
    refuse_all(self, ThreadCoop{});
    refuse_all(self, WarpCoop{});
    refuse_all(self, BlockCoop{});
  });
  EXPECT_EQ(risen.remote[0] + risen.remote[1] + risen.local[0] + risen.local[1], 0u);
  EXPECT_TRUE(holds(transports.node(), 1, 0, 1, 0, 0));
  // A thread with a wrong argument does not keep the others from theirs.
  const Risen one = count_signals(transports, 4, [&](const Actor& self) {
    const bool is_wrong = thread_index() == 0;
    const WaitResult result = self.sdma.put<kSdmaSignalRemote | kSdmaSignalPerCopy>(
        ThreadCoop{}, 1, at(self.window, kHalf), at(self.window, is_wrong ? kWindowBytes : 0), 8, 0,
        self.deadline);
    self.expect(result.status == (is_wrong ? WaitStatus::kRefused : WaitStatus::kArrived));
  });
  EXPECT_EQ(one.remote[0], 3u);

  DeviceComm comm = transports.comm(0);
  const auto status = [&] {
    return Sdma(comm).signal(ThreadCoop{}, 1, 0, Deadline::after(comm, kLongNs)).status;
  };
  cco_sdma_device other = *reinterpret_cast<const cco_sdma_device*>(comm.sdma);
  comm.sdma = reinterpret_cast<uint64_t>(&other);
  EXPECT_EQ(status(), WaitStatus::kArrived);
  other.provider = 3;
  EXPECT_EQ(status(), WaitStatus::kRefused);
  other.provider = 0;
  EXPECT_EQ(status(), WaitStatus::kRefused);
  comm.sdma = 0;
  EXPECT_EQ(status(), WaitStatus::kRefused);
  EXPECT_EQ(Sdma(comm).queue_count(), 0u);
}

// Goal    a wait for a signal that nobody raises ends at its deadline, for the whole group, and
//         names the sender; what has been risen counts even then.
// Method  each group, with no time at all.
TEST_P(SdmaTest, WaitsNameTheSender) {
  EmulatedTransports transports(options_of(GetParam()));
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, 3, [&](uint32_t rank) {
    const Actor self(transports, rank, wrong);
    const Deadline soon = Deadline::after(self.comm, 1'000'000);
    const auto check = [&](auto coop) {
      const WaitResult result = self.sdma.wait_signal(coop, 1, 1, 1, soon);
      self.expect(result.status == WaitStatus::kTimedOut && result.rank == 1);
      self.arrived(self.sdma.wait_signal(coop, 1, 1, 0, soon));
    };
    check(ThreadCoop{});
    check(WarpCoop{});
    check(BlockCoop{});
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    when a peer is lost every pending wait ends within 50 ms and names the lost rank.
// Method  one thread each waits for the signal of a rank that sends nothing; the abort comes then.
//         The quickest of five counts, for the machine may be busy with other things.
TEST_P(SdmaTest, LostPeersEndWaits) {
  using Clock = std::chrono::steady_clock;
  Clock::duration quickest = std::chrono::hours(1);
  for (int attempt = 0; attempt < 5 && quickest >= std::chrono::milliseconds(50); ++attempt) {
    EmulatedTransports transports(options_of(GetParam(), 3));
    std::atomic<uint32_t> wrong{0}, waiting{0};
    Clock::time_point aborted_at, ended_at[3];
    std::thread daemon([&] {
      while (waiting < 3) std::this_thread::yield();
      aborted_at = Clock::now();
      transports.node().abort(CCO_ABORT_PEER_LOST, 2);
    });
    transports.node().run(1, 1, [&](uint32_t rank) {
      const Actor self(transports, rank, wrong);
      ++waiting;
      const WaitResult result =
          self.sdma.wait_signal(ThreadCoop{}, (rank + 1) % 3, 0, 1, self.deadline);
      self.expect(result.status == WaitStatus::kPeerLost && result.rank == 2);
      ended_at[rank] = Clock::now();
    });
    daemon.join();
    EXPECT_EQ(wrong, 0u);
    quickest = std::min(quickest, *std::max_element(ended_at, ended_at + 3) - aborted_at);
  }
  EXPECT_LT(quickest, std::chrono::milliseconds(50));
}

// Goal    what the engine refuses is told: the copy engine's error at the next quiet(), which names
//         the peer; and neither moves anything nor raises a signal.
// Method  a window that the engine does not know.
TEST(SdmaCopyEngine, ErrorsAreTold) {
  EmulatedTransports transports(options_of("copy-engine"));
  std::atomic<uint32_t> wrong{0};
  transports.windows(0).remove(EmulatedNode::kWindowGeneration);
  EmulatedNode::run_on(0, 1, 2, [&](uint32_t rank) {
    const Actor self(transports, rank, wrong);
    self.arrived(self.sdma.put<kSdmaSignalRemote>(BlockCoop{}, 1, at(self.window, 64),
                                                  at(self.window, 0), 8, 0, self.deadline));
    const WaitResult result = self.sdma.quiet(BlockCoop{}, 1, self.deadline);
    self.expect(result.status == WaitStatus::kFailed && result.rank == 1);
    self.arrived(self.sdma.quiet_queue(BlockCoop{}, 1, 1, self.deadline));  // The other ring works.
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(Sdma(transports.comm(1)).read_signal(0, 0), 0u);
}

}  // namespace
}  // namespace cco::device
