// GDA's contract, over each provider, on two nodes of one or two ranks.
#include "tests/device/gda_node.h"

namespace cco::testing {
namespace {

using device::at;
using device::BlockCoop;
using device::Deadline;
using device::Gda;
using device::GdaPost;
using device::GdaRequest;
using device::kGdaAggregate;
using device::kGdaSamePeer;
using device::kNoRank;
using device::local_ptr;
using device::NoSignal;
using device::SignalAdd;
using device::SignalInc;
using device::thread_index;
using device::ThreadCoop;
using device::WaitResult;
using device::WaitStatus;
using device::WarpCoop;
using device::Window;

class Transfers : public GdaTest {};

/// Rounds of a block of bytes to the partner, by each kind of group in turn; the partner's answer
/// paces them. Counts what went wrong.
uint32_t exchange_blocks(EmulatedTransports& all, uint64_t rounds) {
  constexpr uint64_t kBytes = 600, kFrom = 3, kTo = 8192 + 5;
  const uint32_t ranks = all.node().options().ranks;
  std::atomic<uint32_t> wrong{0};
  const auto body = [&](auto coop, uint32_t rank, const Gda& gda, const Window& window,
                        const Deadline& deadline) {
    const uint32_t peer = (rank + ranks / 2) % ranks;
    for (uint64_t round = 1; round <= rounds; ++round) {
      if (coop.is_leader()) {
        std::memset(local_ptr<char>(window, kFrom), static_cast<int>(round + rank), kBytes);
      }
      coop.sync();
      wrong += !has_arrived(gda.put(coop, peer, at(window, kTo), at(window, kFrom), kBytes,
                                    {deadline, SignalInc{3}}));
      wrong += !has_arrived(gda.wait_signal(coop, 3, 1, deadline));
      const char* const received = local_ptr<char>(window, kTo);
      for (uint64_t i = 0; i < kBytes; ++i) {
        wrong += received[i] != static_cast<char>(round + peer);
      }
      wrong += !has_arrived(gda.flush(coop, peer, deadline));
      wrong += !has_arrived(gda.signal(coop, peer, SignalAdd{4, 2}, deadline));
      wrong += !has_arrived(gda.wait_signal(coop, 4, 2, deadline));
    }
    wrong += gda.read_signal(3) != 0;
    wrong += gda.read_signal(4) != 0;
  };
  const auto run = [&](uint32_t threads, auto coop) {
    all.node().run(1, threads, [&](uint32_t rank) {
      const device::DeviceComm comm = all.comm(rank);
      body(coop, rank, Gda(comm, 0), all.node().window(rank), Deadline::after(comm, kLongNs));
    });
  };
  run(1, ThreadCoop{});
  run(5, WarpCoop{});
  run(40, BlockCoop{});
  return wrong;
}

// Goal    a put before a signal is visible to every thread of the group that waited for it.
// Method  partners send each other a block per round and read all of what came.
TEST_P(Transfers, PutThenSignalPublishes) {
  EmulatedTransports all(options());
  EXPECT_EQ(exchange_blocks(all, 10), 0u);
  for (uint32_t rank = 0; rank < ranks(); ++rank) EXPECT_TRUE(all.gda(rank).status().ok());
}

// Goal    the same over NICs that delay, merge doorbells, land writes late and in pieces.
// Method  seeds of a schedule that does all of it often.
TEST_P(Transfers, PutThenSignalPublishesWhateverTheNicDoes) {
  if (is_proxy()) return;  // Has no schedule.
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    EmulatedTransports::Options chaos = options();
    chaos.nic_schedule = NicSchedule{.seed = seed,
                                     .delay_percent = 30,
                                     .merge_percent = 40,
                                     .late_percent = 50,
                                     .shuffles_queues = true,
                                     .piece_bytes = 64,
                                     .max_message_bytes = 256};
    EmulatedTransports all(chaos);
    EXPECT_EQ(exchange_blocks(all, 4), 0u) << "seed " << seed;
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      EXPECT_TRUE(all.gda(rank).status().ok()) << all.gda(rank).status();
    }
  }
}

// Goal    exactly the bytes asked for move, in both directions, at any alignment and length, and
//         none as well.
// Method  a frame of known bytes around each range; gets are compared with what the partner holds.
TEST_P(Transfers, PutAndGetMoveExactly) {
  EmulatedTransports all(options());
  std::atomic<uint32_t> wrong{0};
  for (const uint64_t bytes : {0, 1, 3, 16, 4095, 20001}) {
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      std::memset(all.node().data(rank), static_cast<int>(0x10 + rank), kWindowBytes);
    }
    run_on(all, 0, 3, [&](uint32_t rank, const Gda& gda, const Window& window, Deadline deadline) {
      const WarpCoop coop;
      const uint32_t peer = partner(rank);
      wrong += !has_arrived(
          gda.put(coop, peer, at(window, 101), at(window, 7), bytes, {deadline, SignalInc{0}}));
      wrong += !has_arrived(
          gda.get(coop, peer, at(window, 30001), at(window, 40003), bytes, {deadline}));
      wrong += !has_arrived(gda.flush(coop, deadline));
    });
    const uint32_t peer = partner(0);
    run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
      wrong += !has_arrived(gda.wait_signal(ThreadCoop{}, 0, 1, deadline));
    });
    const auto count = [&](uint32_t rank, uint64_t from, uint64_t size, uint32_t of) {
      const char* const data = all.node().data(rank) + from;
      return std::count(data, data + size, static_cast<char>(0x10 + of));
    };
    EXPECT_EQ(count(peer, 0, 101, peer), 101) << bytes;
    EXPECT_EQ(count(peer, 101, bytes, 0), bytes);
    EXPECT_EQ(count(peer, 101 + bytes, kWindowBytes - 101 - bytes, peer),
              kWindowBytes - 101 - bytes);
    EXPECT_EQ(count(0, 0, 40003, 0), 40003);
    EXPECT_EQ(count(0, 40003, bytes, peer), bytes);
    EXPECT_EQ(count(0, 40003 + bytes, kWindowBytes - 40003 - bytes, 0),
              kWindowBytes - 40003 - bytes);
  }
  EXPECT_EQ(wrong, 0u);
}

// Goal    values of 1, 2, 4 and 8 bytes land, and touch nothing beside them.
// Method  a byte pattern of each size at an odd offset between bytes of another.
TEST_P(Transfers, PutValue) {
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  std::memset(all.node().data(peer), 0x55, 256);
  std::atomic<uint32_t> wrong{0};
  run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    const ThreadCoop coop;
    wrong += !has_arrived(gda.put_value<uint8_t>(coop, peer, at(window, 11), 0xa1, {deadline}));
    wrong += !has_arrived(gda.put_value<uint16_t>(coop, peer, at(window, 31), 0xb2b1, {deadline}));
    wrong += !has_arrived(gda.put_value<float>(coop, peer, at(window, 51), 1.5f, {deadline}));
    wrong += !has_arrived(
        gda.put_value<int64_t>(coop, peer, at(window, 71), -2, {deadline, SignalAdd{2, 9}}));
    wrong += !has_arrived(gda.flush(coop, peer, deadline));
  });
  run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
    wrong += !has_arrived(gda.wait_signal(ThreadCoop{}, 2, 9, deadline));
  });
  EXPECT_EQ(wrong, 0u);
  std::vector<char> expected(256, 0x55);
  const float real = 1.5f;
  std::memcpy(&expected[11], "\xa1", 1);
  std::memcpy(&expected[31], "\xb1\xb2", 2);
  std::memcpy(&expected[51], &real, 4);
  std::memcpy(&expected[71], "\xfe\xff\xff\xff\xff\xff\xff\xff", 8);
  EXPECT_EQ(std::memcmp(all.node().data(peer), expected.data(), expected.size()), 0);
}

// Goal    threads that post together are sorted by peer: all data arrives, and each peer's signal
//         is that of the last thread that named it, once.
// Method  eight threads of a warp, each to a peer of its own or another's, each with a signal and a
//         value of its own.
TEST_P(Transfers, ThreadsAreSortedByPeer) {
  EmulatedTransports all(options());
  constexpr uint32_t kThreads = 8;
  std::atomic<uint32_t> wrong{0};
  run_on(all, 0, kThreads, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    const uint32_t lane = thread_index();
    *local_ptr<uint64_t>(window, 8 * lane) = 100 + lane;
    wrong += !has_arrived(gda.put(ThreadCoop{}, lane % ranks(), at(window, 512 + 8 * lane),
                                  at(window, 8 * lane), 8, {deadline, SignalAdd{lane, lane + 1}}));
    wrong += !has_arrived(gda.flush(ThreadCoop{}, deadline));
  });
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    const uint32_t last = kThreads - ranks() + peer;
    run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
      wrong += !has_arrived(gda.wait_signal_at_least(ThreadCoop{}, last, last + 1, deadline));
      for (uint32_t id = 0; id < kThreads; ++id) {
        EXPECT_EQ(gda.read_signal(id), id == last ? last + 1 : 0) << "signal " << id;
      }
    });
    for (uint32_t lane = peer; lane < kThreads; lane += ranks()) {
      uint64_t value = 0;
      std::memcpy(&value, all.node().data(peer) + 512 + 8 * lane, 8);
      EXPECT_EQ(value, 100 + lane);
    }
  }
  EXPECT_EQ(wrong, 0u);
}

// Goal    threads that promise one peer post at once, with one signal; a refused thread among them
//         spoils nothing.
// Method  eight threads, of which the last is out of range, to one peer.
TEST_P(Transfers, ThreadsWithOnePeer) {
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  std::atomic<uint32_t> wrong{0};
  run_on(all, 0, 8, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    const uint32_t lane = thread_index();
    const uint64_t to = lane == 7 ? kWindowBytes - 7 : 512 + 8 * lane;
    *local_ptr<uint64_t>(window, 8 * lane) = 100 + lane;
    const WaitResult result = gda.put(ThreadCoop{}, peer, at(window, to), at(window, 8 * lane), 8,
                                      {deadline, SignalAdd{0, lane + 1}, kGdaSamePeer});
    wrong += result.status != (lane == 7 ? WaitStatus::kRefused : WaitStatus::kArrived);
    wrong += lane == 7 && result.rank != peer;
  });
  run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    wrong += !has_arrived(gda.wait_signal(ThreadCoop{}, 0, 7, deadline));
    for (uint32_t lane = 0; lane < 7; ++lane) {
      wrong += *local_ptr<uint64_t>(window, 512 + 8 * lane) != 100 + lane;
    }
    wrong += gda.read_signal(0) != 0;
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    aggregated posts are performed once a later post rings, or a flush; more of them than the
//         queue holds never stop it.
// Method  a queue of 16; counts of aggregated posts below and above, ended by each.
TEST_P(Transfers, AggregatedPostsArePerformed) {
  EmulatedTransports::Options small = options();
  small.gda_plan.queue_depth = 16;
  EmulatedTransports all(small);
  const uint32_t peer = partner(0);
  std::atomic<uint32_t> wrong{0};
  uint64_t value = 0;
  for (const uint32_t count : {1u, 5u, 7u, 60u}) {
    for (const bool flushes : {false, true}) {
      ++value;
      run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
        for (uint32_t i = 0; i < count; ++i) {
          wrong += !has_arrived(gda.put_value<uint64_t>(
              ThreadCoop{}, peer, at(window, 8 * i), value, {deadline, NoSignal{}, kGdaAggregate}));
        }
        wrong += !has_arrived(flushes ? gda.flush(ThreadCoop{}, deadline)
                                      : gda.signal(ThreadCoop{}, peer, SignalInc{0}, deadline));
        wrong += !has_arrived(gda.flush(ThreadCoop{}, deadline));
      });
      for (uint32_t i = 0; i < count; ++i) {
        uint64_t seen = 0;
        std::memcpy(&seen, all.node().data(peer) + 8 * i, 8);
        wrong += seen != value;
      }
    }
  }
  EXPECT_EQ(wrong, 0u);
}

// Goal    a NIC is not rung by an aggregated post, while half of its queue is free.
// Method  the queue's doorbell word, before and after.
TEST_P(Transfers, AggregatedPostsDoNotRing) {
  if (is_proxy()) return;  // Nobody rings.
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  uint64_t& doorbell = *reinterpret_cast<uint64_t*>(queue_of(all, 0, peer).doorbell);
  run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    const uint64_t before = __atomic_load_n(&doorbell, __ATOMIC_RELAXED);
    EXPECT_TRUE(has_arrived(gda.put(ThreadCoop{}, peer, at(window, 0), at(window, 64), 8,
                                    {deadline, NoSignal{}, kGdaAggregate})));
    EXPECT_EQ(__atomic_load_n(&doorbell, __ATOMIC_RELAXED), before);
    EXPECT_TRUE(has_arrived(gda.signal(ThreadCoop{}, peer, SignalInc{0}, deadline)));
    EXPECT_NE(__atomic_load_n(&doorbell, __ATOMIC_RELAXED), before);
  });
}

// Goal    many threads of several blocks share small queues, which wrap often; nothing is lost.
// Method  queues of 16; each thread writes its own words with rising values to every rank, now and
//         then without ringing; then each block flushes and signals.
TEST_P(Transfers, ManyProducersOfSmallQueues) {
  EmulatedTransports::Options small = options();
  small.gda_plan.queue_depth = 16;
  EmulatedTransports all(small);
  constexpr uint32_t kBlocks = 2, kThreads = 6;
  constexpr uint64_t kRounds = 40;
  std::atomic<uint32_t> wrong{0};
  run(all, kBlocks, kThreads,
      [&](uint32_t rank, const Gda& gda, const Window& window, Deadline deadline) {
        const uint32_t producer = device::block_index() * kThreads + thread_index();
        for (uint64_t round = 1; round <= kRounds; ++round) {
          const auto peer = static_cast<uint32_t>((round + producer) % ranks());
          const uint64_t to = 8 * (uint64_t{rank} * kBlocks * kThreads + producer);
          wrong += !has_arrived(
              gda.put_value<uint64_t>(ThreadCoop{}, peer, at(window, to), round,
                                      {deadline, NoSignal{}, round % 3 == 0 ? kGdaAggregate : 0}));
        }
        wrong += !has_arrived(gda.flush(BlockCoop{}, deadline));
        for (uint32_t peer = 0; peer < ranks(); ++peer) {
          wrong += !has_arrived(gda.signal(BlockCoop{}, peer, SignalInc{5}, deadline));
        }
        wrong +=
            !has_arrived(gda.wait_signal_at_least(BlockCoop{}, 5, kBlocks * ranks(), deadline));
      });
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    EXPECT_TRUE(all.gda(rank).status().ok()) << all.gda(rank).status();
    for (uint32_t sender = 0; sender < ranks(); ++sender) {
      for (uint32_t producer = 0; producer < kBlocks * kThreads; ++producer) {
        uint64_t value = 0;
        std::memcpy(&value, all.node().data(rank) + 8 * (sender * kBlocks * kThreads + producer),
                    8);
        // The last round in which this producer's turn was this rank.
        uint64_t expected = kRounds;
        while ((expected + producer) % ranks() != rank) --expected;
        EXPECT_EQ(value, expected) << sender << " " << producer;
      }
    }
  }
  EXPECT_EQ(wrong, 0u);
}

// Goal    lengths beyond the largest message are cut, also into more pieces than the queue holds;
//         the signal comes once, after the last.
// Method  messages of 256 bytes at most and a queue of 16.
TEST_P(Transfers, LongPutsAreCut) {
  EmulatedTransports::Options small = options();
  small.gda_plan.queue_depth = 16;
  if (!is_proxy()) small.nic_schedule = NicSchedule{.max_message_bytes = 256};
  EmulatedTransports all(small);
  constexpr uint64_t kBytes = 20'000;
  const uint32_t peer = partner(0);
  for (uint64_t i = 0; i < kBytes; ++i) all.node().data(0)[i] = static_cast<char>(i * 7 + i / 256);
  std::atomic<uint32_t> wrong{0};
  run_on(all, 0, 2, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    wrong += !has_arrived(gda.put(WarpCoop{}, peer, at(window, 30'001), at(window, 0), kBytes,
                                  {deadline, SignalInc{0}}));
    wrong += !has_arrived(
        gda.get(WarpCoop{}, peer, at(window, 30'001), at(window, 24'000), 5'000, {deadline}));
    wrong += !has_arrived(gda.flush(WarpCoop{}, peer, deadline));
  });
  run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
    wrong += !has_arrived(gda.wait_signal(ThreadCoop{}, 0, 1, deadline));
    wrong += gda.read_signal(0) != 0;
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(std::memcmp(all.node().data(peer) + 30'001, all.node().data(0), kBytes), 0);
  EXPECT_EQ(std::memcmp(all.node().data(0) + 24'000, all.node().data(0), 5'000), 0);
}

// Goal    indices wrap at 16, 24 and 32 bits without anybody noticing.
// Method  queues of 16 that begin just below, and enough operations to pass it twice over.
TEST_P(Transfers, IndicesWrap) {
  if (is_proxy()) return;
  for (const uint64_t first : {0xfff0ull, 0xfffff0ull, 0xfffffff0ull}) {
    EmulatedTransports::Options late = options();
    late.gda_plan.queue_depth = 16;
    late.nic_schedule = NicSchedule{.first_index = first};
    EmulatedTransports all(late);
    EXPECT_EQ(exchange_blocks(all, 12), 0u) << first;
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      EXPECT_TRUE(all.gda(rank).status().ok()) << all.gda(rank).status();
      const auto& state =
          *reinterpret_cast<cco_gda_queue_state*>(queue_of(all, rank, partner(rank)).state);
      EXPECT_GT(state.reserved, first + 64);
    }
  }
}

// Goal    contexts are independent: one that nobody serves does not hold up another.
// Method  context 0 is deaf; context 1 puts, signals and flushes.
TEST_P(Transfers, ContextsAreIndependent) {
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  const Deaf deaf(all, 0, peer);
  run_on(
      all, 0, 1,
      [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
        const Gda blocked(gda.comm(), 0);
        EXPECT_TRUE(has_arrived(
            blocked.put(ThreadCoop{}, peer, at(window, 0), at(window, 64), 8, {deadline})));
        EXPECT_TRUE(has_arrived(gda.put(ThreadCoop{}, peer, at(window, 0), at(window, 64), 8,
                                        {deadline, SignalInc{0}})));
        EXPECT_TRUE(has_arrived(gda.flush(ThreadCoop{}, deadline)));
      },
      1);
  run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
    EXPECT_TRUE(has_arrived(gda.wait_signal(ThreadCoop{}, 0, 1, deadline)));
  });
}

INSTANTIATE_TEST_SUITE_P(, Transfers,
                         ::testing::Combine(::testing::Values("proxy", "mlx5", "bnxt", "ionic"),
                                            ::testing::Values(1u, 2u)),
                         name_of);

}  // namespace
}  // namespace cco::testing
