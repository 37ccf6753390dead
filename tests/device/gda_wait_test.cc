// Waiting on GDA, and what happens when nothing comes: signals, counters, flushes, refusals,
// failures, time-outs and lost peers, over each provider.
#include <chrono>
#include <functional>

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
using device::kNoRank;
using device::NoSignal;
using device::SignalAdd;
using device::SignalInc;
using device::thread_index;
using device::ThreadCoop;
using device::WaitResult;
using device::WaitStatus;
using device::WarpCoop;
using device::Window;

constexpr uint64_t kShortNs = 20'000'000;

class Waits : public GdaTest {};

void expect(const WaitResult& result, WaitStatus status, uint32_t rank, const char* what) {
  EXPECT_EQ(static_cast<int>(result.status), static_cast<int>(status)) << what;
  EXPECT_EQ(result.rank, rank) << what;
}

// Goal    wait_signal() consumes what it waited for, wait_signal_at_least() nothing; a reset leaves
//         nothing to consume, and later signals count from there.
// Method  one sender, checked by the receiver after each step.
TEST_P(Waits, SignalsAreConsumedOrNot) {
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  const auto send = [&](uint64_t value) {
    run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
      EXPECT_TRUE(has_arrived(gda.signal(ThreadCoop{}, peer, SignalAdd{6, value}, deadline)));
      EXPECT_TRUE(has_arrived(gda.flush(ThreadCoop{}, peer, deadline)));
    });
  };
  const auto receive = [&](auto body) {
    run_on(all, peer, 3, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
      body(gda, deadline);
    });
  };
  send(5);
  receive([](const Gda& gda, const Deadline& deadline) {
    EXPECT_TRUE(has_arrived(gda.wait_signal_at_least(WarpCoop{}, 6, 5, deadline)));
    EXPECT_TRUE(has_arrived(gda.wait_signal(WarpCoop{}, 6, 2, deadline)));
    EXPECT_EQ(gda.read_signal(6), 3u);
    EXPECT_EQ(gda.read_signal(6, 1), 1u);
    WarpCoop{}.sync();  // All have read.
    EXPECT_TRUE(has_arrived(gda.wait_signal(WarpCoop{}, 6, 3, deadline)));
    EXPECT_EQ(gda.read_signal(6), 0u);
    const Deadline now = Deadline::after(gda.comm(), 0);
    expect(gda.wait_signal(WarpCoop{}, 6, 1, now), WaitStatus::kTimedOut, kNoRank, "consumed");
    EXPECT_TRUE(has_arrived(gda.wait_signal_at_least(WarpCoop{}, 6, 5, deadline)));
    expect(gda.wait_signal_at_least(WarpCoop{}, 6, 6, now), WaitStatus::kTimedOut, kNoRank, "sum");
  });
  send(100);
  run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline) {
    gda.reset_signal(6);
    EXPECT_EQ(gda.read_signal(6), 0u);
  });
  send(7);
  receive([](const Gda& gda, const Deadline& deadline) {
    EXPECT_TRUE(has_arrived(gda.wait_signal(WarpCoop{}, 6, 7, deadline)));
    EXPECT_EQ(gda.read_signal(6), 0u);
  });
}

// Goal    signals of several senders add up; each sender's count is kept.
// Method  all ranks signal one with values of their own.
TEST_P(Waits, SignalsOfAllSendersAddUp) {
  EmulatedTransports all(options());
  uint64_t total = 0;
  for (uint32_t rank = 0; rank < ranks(); ++rank) total += 3 * (uint64_t{1} << 20 * (rank % 3));
  run(all, 1, 1, [&](uint32_t rank, const Gda& gda, const Window&, Deadline deadline) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(has_arrived(
          gda.signal(ThreadCoop{}, 1, SignalAdd{2, uint64_t{1} << 20 * (rank % 3)}, deadline)));
    }
    if (rank == 1) {
      EXPECT_TRUE(has_arrived(gda.wait_signal(ThreadCoop{}, 2, total, deadline)));
      EXPECT_EQ(gda.read_signal(2), 0u);
    }
  });
}

// Goal    a counter counts flushes, of one peer or all; waits on it consume nothing.
// Method  puts, then each kind of counter call; what was put is there when it returns.
TEST_P(Waits, Counters) {
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  run_on(all, 0, 3, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    const WarpCoop coop;
    EXPECT_TRUE(has_arrived(gda.put_value<uint32_t>(coop, peer, at(window, 0), 77, {deadline})));
    EXPECT_TRUE(has_arrived(gda.counter(coop, 3, peer, deadline)));
    uint32_t seen = 0;
    std::memcpy(&seen, all.node().data(peer), sizeof seen);
    EXPECT_EQ(seen, 77u);
    EXPECT_TRUE(has_arrived(gda.counter(coop, 3, deadline)));
    EXPECT_TRUE(has_arrived(gda.wait_counter(coop, 3, 2, deadline)));
    EXPECT_TRUE(has_arrived(gda.wait_counter(coop, 3, 2, deadline)));
    EXPECT_EQ(gda.read_counter(3), 2u);
    EXPECT_EQ(gda.read_counter(3, 1), 0u);
    EXPECT_EQ(gda.read_counter(2), 0u);
    const Deadline now = Deadline::after(gda.comm(), 0);
    expect(gda.wait_counter(coop, 3, 3, now), WaitStatus::kTimedOut, kNoRank, "counter");
  });
  run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline) {
    gda.reset_counter(3);
    EXPECT_EQ(gda.read_counter(3), 0u);
  });
}

// Goal    flush_async() takes all that was posted before, aggregated posts included, and wait()
//         ends when that is done.
// Method  an aggregated get; its bytes are read after wait().
TEST_P(Waits, FlushInTwoSteps) {
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  std::memset(all.node().data(peer), 0x6b, 64);
  run_on(all, 0, 4, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    GdaRequest request{};
    EXPECT_TRUE(has_arrived(gda.get(BlockCoop{}, peer, at(window, 0), at(window, 1024), 64,
                                    {deadline, NoSignal{}, kGdaAggregate})));
    EXPECT_TRUE(has_arrived(gda.flush_async(BlockCoop{}, peer, &request, deadline)));
    EXPECT_EQ(request.peer, peer);
    EXPECT_TRUE(has_arrived(gda.wait(BlockCoop{}, request, deadline)));
    EXPECT_EQ(device::local_ptr<char>(window, 1024)[thread_index() * 16], 0x6b);
  });
}

// Goal    each wrong argument is refused with the peer's name, before anything is posted or moved.
// Method  every call with each of its arguments out of range; the posted counts stay 0.
TEST_P(Waits, WrongArgumentsAreRefused) {
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  run_on(all, 0, 3, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    const WarpCoop coop;
    Window none = window;
    none.generation = 0;
    const uint64_t top = ~uint64_t{0};
    const uint64_t size = window.size_bytes;
    const auto put = [&](const Gda& on, uint32_t to, const device::Place& into,
                         const device::Place& from, uint64_t bytes, device::RemoteAction action) {
      return on.put(coop, to, into, from, bytes, {deadline, action});
    };
    const auto refused = [&](const WaitResult& result, const char* what, uint32_t rank) {
      expect(result, WaitStatus::kRefused, rank, what);
    };
    const auto w = [&](uint64_t offset) { return at(window, offset); };
    const uint32_t nobody = ranks();
    const Gda no_context(gda.comm(), 2);
    device::DeviceComm without = gda.comm();
    without.gda = 0;
    const Gda no_gda(without, 0);
    refused(put(gda, nobody, w(0), w(0), 8, NoSignal{}), "peer", nobody);
    refused(put(gda, top & kNoRank, w(0), w(0), 8, NoSignal{}), "peer", kNoRank);
    refused(put(no_context, peer, w(0), w(0), 8, NoSignal{}), "context", peer);
    refused(put(no_gda, peer, w(0), w(0), 8, NoSignal{}), "no GDA", peer);
    refused(put(gda, peer, at(none, 0), w(0), 8, NoSignal{}), "destination window", peer);
    refused(put(gda, peer, w(0), at(none, 0), 8, NoSignal{}), "source window", peer);
    refused(put(gda, peer, w(size - 7), w(0), 8, NoSignal{}), "destination", peer);
    refused(put(gda, peer, w(0), w(size - 7), 8, NoSignal{}), "source", peer);
    refused(put(gda, peer, w(size + 1), w(0), 0, NoSignal{}), "destination", peer);
    refused(put(gda, peer, w(8), w(0), top - 3, NoSignal{}), "bytes wrap", peer);
    refused(put(gda, peer, w(0), w(0), uint64_t{1} << 32, NoSignal{}), "4 GiB", peer);
    refused(put(gda, peer, w(top), w(0), 2, NoSignal{}), "offset wraps", peer);
    refused(put(gda, peer, w(0), w(0), 8, SignalInc{16}), "signal", peer);
    refused(gda.put_value<uint64_t>(coop, peer, w(size - 7), 1, {deadline}), "value", peer);
    refused(gda.get(coop, nobody, w(0), w(0), 8, {deadline}), "get", nobody);
    refused(gda.get(coop, peer, w(0), w(64), 8, {deadline, SignalInc{0}}), "get's action", peer);
    refused(gda.signal(coop, peer, SignalInc{16}, deadline), "signal", peer);
    refused(gda.signal(coop, peer, NoSignal{}, deadline), "no signal", peer);
    refused(gda.wait_signal(coop, 16, 1, deadline), "wait_signal", kNoRank);
    refused(gda.wait_signal_at_least(coop, 16, 1, deadline), "at_least", kNoRank);
    refused(gda.wait_counter(coop, 16, 1, deadline), "wait_counter", kNoRank);
    refused(gda.counter(coop, 16, deadline), "counter", kNoRank);
    refused(gda.counter(coop, 16, peer, deadline), "counter", peer);
    refused(gda.flush(coop, nobody, deadline), "flush", nobody);
    refused(no_context.flush(coop, deadline), "flush", kNoRank);
    refused(no_gda.flush(coop, deadline), "flush", kNoRank);
    refused(no_gda.wait_signal(coop, 0, 1, deadline), "no GDA", kNoRank);
    GdaRequest request{nobody, 0};
    refused(gda.wait(coop, request, deadline), "wait", nobody);
    EXPECT_TRUE(has_arrived(gda.flush(coop, deadline)));
    // The same by threads, each with an argument of its own.
    refused(gda.put(ThreadCoop{}, nobody + thread_index(), w(0), w(0), 8, {deadline}), "peer",
            nobody + thread_index());
  });
  if (is_proxy()) {
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(ring_of(all, 0).posted), 0u);
  } else {
    for (uint32_t to = 0; to < ranks(); ++to) {
      const auto* state = reinterpret_cast<cco_gda_queue_state*>(queue_of(all, 0, to).state);
      EXPECT_EQ(state->reserved, 0u);
    }
  }
}

// Goal    a connection leaves out whom it says, for posts and flushes alike.
// Method  each type; who is connected is worked out anew.
TEST_P(Waits, ConnectionsLeaveRanksOut) {
  for (const uint32_t type : {CCO_GDA_CONNECT_NONE, CCO_GDA_CONNECT_FULL,
                              CCO_GDA_CONNECT_CROSS_NODE, CCO_GDA_CONNECT_RAIL}) {
    EmulatedTransports::Options some = options();
    some.gda_plan.connection = type;
    EmulatedTransports all(some);
    const uint32_t per_node = ranks() / 2;
    run_on(all, 1, 1, [&](uint32_t rank, const Gda& gda, const Window& window, Deadline deadline) {
      for (uint32_t peer = 0; peer < ranks(); ++peer) {
        const bool other_node = peer / per_node != rank / per_node;
        const bool expected = type == CCO_GDA_CONNECT_FULL ||
                              (type == CCO_GDA_CONNECT_CROSS_NODE && other_node) ||
                              (type == CCO_GDA_CONNECT_RAIL && peer == partner(rank));
        EXPECT_EQ(gda.connected(peer), expected) << type << " " << peer;
        const WaitResult put =
            gda.put(ThreadCoop{}, peer, at(window, 0), at(window, 64), 8, {deadline});
        const WaitStatus status = expected ? WaitStatus::kArrived : WaitStatus::kRefused;
        expect(put, status, expected ? kNoRank : peer, "put");
        expect(gda.flush(ThreadCoop{}, peer, deadline), status, expected ? kNoRank : peer, "flush");
      }
      EXPECT_TRUE(has_arrived(gda.flush(ThreadCoop{}, deadline)));
    });
  }
}

// Goal    an error completion becomes kFailed with the peer, for whoever waits and for whoever
//         posts later; the host reads the queue's word and the provider's status; other peers go
//         on.
// Method  the second operation fails by injection with a status of the format; for the proxy, a
//         window that is gone.
TEST_P(Waits, ErrorsAreReported) {
  EmulatedTransports::Options failing = options();
  failing.gda_plan.queue_depth = 16;
  if (!is_proxy()) failing.nic_schedule = NicSchedule{.fail_operation = 2, .fail_syndrome = 9};
  EmulatedTransports all(failing);
  const uint32_t peer = partner(0);
  const uint32_t other = 0;
  run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    const auto put = [&](uint32_t to) {
      return gda.put(ThreadCoop{}, to, at(window, 0), at(window, 64), 8, {deadline});
    };
    EXPECT_TRUE(has_arrived(put(peer)));
    EXPECT_TRUE(has_arrived(gda.flush(ThreadCoop{}, peer, deadline)));
    if (is_proxy()) all.windows(0).remove(EmulatedNode::kWindowGeneration);
    EXPECT_TRUE(has_arrived(put(peer)));
    expect(gda.flush(ThreadCoop{}, peer, deadline), WaitStatus::kFailed, peer, "flush");
    expect(gda.flush(ThreadCoop{}, deadline), WaitStatus::kFailed, peer, "flush of all");
    expect(gda.counter(ThreadCoop{}, 0, deadline), WaitStatus::kFailed, peer, "counter");
    EXPECT_EQ(gda.read_counter(0), 0u);
    if (is_proxy()) return;
    expect(put(peer), WaitStatus::kFailed, peer, "put");
    expect(gda.signal(ThreadCoop{}, peer, SignalInc{0}, deadline), WaitStatus::kFailed, peer,
           "signal");
    EXPECT_TRUE(has_arrived(put(other)));
    EXPECT_TRUE(has_arrived(gda.flush(ThreadCoop{}, other, deadline)));
  });
  EXPECT_FALSE(all.gda(0).status().ok());
  if (is_proxy()) return;
  const uint64_t error = *reinterpret_cast<uint64_t*>(queue_of(all, 0, peer).error);
  EXPECT_EQ(CCO_GDA_ERROR_SYNDROME(error), 9u);
  EXPECT_EQ(CCO_GDA_ERROR_PEER(error), peer);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(queue_of(all, 0, other).error), 0u);
}

// Goal    a put into a window that the peer's NIC does not know fails with remote access, not with
//         silence.
// Method  the keys a kernel sees name no window. Nothing follows the put that would be flushed and
//         hide its status.
TEST_P(Waits, WrongKeysAreReported) {
  if (is_proxy()) return;  // Has no keys.
  EmulatedTransports all(options());
  const uint32_t peer = partner(0);
  const std::vector<uint32_t> keys(ranks(), 0x1234);
  run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    Window stale = window;
    stale.remote_keys = reinterpret_cast<uint64_t>(keys.data());
    EXPECT_TRUE(
        has_arrived(gda.put(ThreadCoop{}, peer, at(stale, 0), at(window, 64), 8, {deadline})));
    expect(gda.flush(ThreadCoop{}, deadline), WaitStatus::kFailed, peer, "flush");
    expect(gda.signal(ThreadCoop{}, peer, SignalInc{0}, deadline), WaitStatus::kFailed, peer,
           "signal");
  });
  const uint32_t access = provider() == "mlx5" ? 0x13 : provider() == "bnxt" ? 7 : 9;
  const uint64_t error = *reinterpret_cast<uint64_t*>(queue_of(all, 0, peer).error);
  EXPECT_EQ(CCO_GDA_ERROR_SYNDROME(error), access);
  run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline) {
    EXPECT_EQ(gda.read_signal(0), 0u);
  });
}

// Goal    a peer's queue that nobody serves: posts go on until it is full, then each times out by
//         its deadline and names the peer, and so does a flush. Nothing is left behind: once served
//         again, the queue takes all that was accepted, in order, and goes on.
// Method  a queue of 16 whose doorbells go nowhere for a while.
TEST_P(Waits, FullQueueTimesOutAndRecovers) {
  if (is_proxy()) return;  // Its ring: work_ring_test.
  EmulatedTransports::Options small = options();
  small.gda_plan.queue_depth = 16;
  EmulatedTransports all(small);
  const uint32_t peer = partner(0);
  uint64_t accepted = 0;
  const auto put = [&](const Gda& gda, const Window& window, const Deadline& deadline) {
    return gda.put_value<uint64_t>(ThreadCoop{}, peer, at(window, 0), accepted + 1,
                                   {deadline, SignalInc{0}});
  };
  {
    const Deaf deaf(all, 0, peer);
    run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline) {
      WaitResult result;
      for (;; ++accepted) {
        ASSERT_LT(accepted, 16u);
        result = put(gda, window, Deadline::after(gda.comm(), kShortNs));
        if (!has_arrived(result)) break;
      }
      expect(result, WaitStatus::kTimedOut, peer, "put");
      EXPECT_GE(accepted, 6u);
      const Deadline soon = Deadline::after(gda.comm(), kShortNs);
      expect(gda.flush(ThreadCoop{}, soon), WaitStatus::kTimedOut, peer, "flush of all");
      expect(gda.flush(ThreadCoop{}, peer, soon), WaitStatus::kTimedOut, peer, "flush");
      expect(gda.counter(ThreadCoop{}, 0, soon), WaitStatus::kTimedOut, peer, "counter");
      EXPECT_TRUE(has_arrived(gda.flush(ThreadCoop{}, 0, Deadline::after(gda.comm(), kLongNs))));
    });
  }
  // What the doorbell should have said.
  auto& queue = queue_of(all, 0, peer);
  const uint64_t rung = reinterpret_cast<cco_gda_queue_state*>(queue.state)->rung;
  if (provider() == "mlx5") device::impl::Mlx5::ring(queue, rung);
  if (provider() == "bnxt") device::impl::Bnxt::ring(queue, rung);
  if (provider() == "ionic") device::impl::Ionic::ring(queue, rung);
  run_on(all, 0, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
    EXPECT_TRUE(has_arrived(put(gda, window, deadline)));
    ++accepted;
    EXPECT_TRUE(has_arrived(gda.flush(ThreadCoop{}, deadline)));
  });
  run_on(all, peer, 1, [&](uint32_t, const Gda& gda, const Window& window, Deadline) {
    EXPECT_EQ(gda.read_signal(0), accepted);
    EXPECT_EQ(*device::local_ptr<uint64_t>(window, 0), accepted);
  });
}

/// Every wait that GDA has, made to wait for what never comes.
using Wait = std::function<WaitResult(const Gda&, const Window&, uint32_t peer, const Deadline&)>;
const std::pair<const char*, Wait> kEveryWait[] = {
    {"put into a full queue",
     [](const Gda& gda, const Window& window, uint32_t peer, const Deadline& deadline) {
       for (;;) {
         const WaitResult result =
             gda.put(WarpCoop{}, peer, at(window, 0), at(window, 64), 8, {deadline});
         if (!has_arrived(result)) return result;
       }
     }},
    {"put by threads",
     [](const Gda& gda, const Window& window, uint32_t peer, const Deadline& deadline) {
       for (;;) {
         const WaitResult result =
             gda.put(ThreadCoop{}, peer, at(window, 0), at(window, 64), 8, {deadline});
         if (!has_arrived(result)) return result;
       }
     }},
    {"flush", [](const Gda& gda, const Window&, uint32_t peer,
                 const Deadline& deadline) { return gda.flush(WarpCoop{}, peer, deadline); }},
    {"flush of all", [](const Gda& gda, const Window&, uint32_t,
                        const Deadline& deadline) { return gda.flush(WarpCoop{}, deadline); }},
    {"counter", [](const Gda& gda, const Window&, uint32_t,
                   const Deadline& deadline) { return gda.counter(WarpCoop{}, 0, deadline); }},
    {"signal",
     [](const Gda& gda, const Window&, uint32_t, const Deadline& deadline) {
       return gda.wait_signal(WarpCoop{}, 0, 1, deadline);
     }},
    {"signal, absolute",
     [](const Gda& gda, const Window&, uint32_t, const Deadline& deadline) {
       return gda.wait_signal_at_least(WarpCoop{}, 0, 1, deadline);
     }},
    {"wait for a counter", [](const Gda& gda, const Window&, uint32_t, const Deadline& deadline) {
       return gda.wait_counter(WarpCoop{}, 0, 1, deadline);
     }}};

// Goal    every wait ends when a peer is lost, names it, and soon, whatever its own deadline.
// Method  each wait is pending on three threads when the word is set; a clock measures.
TEST_P(Waits, LostPeerEndsEveryWait) {
  for (const auto& [what, wait] : kEveryWait) {
    EmulatedTransports::Options small = options();
    small.gda_plan.queue_depth = 16;
    EmulatedTransports all(small);
    const uint32_t peer = partner(0);
    const Deaf deaf(all, 0, peer);
    std::atomic<uint32_t> begun{0};
    std::vector<WaitResult> results(3);
    std::chrono::steady_clock::time_point lost_at;
    std::thread killer([&] {
      while (begun.load() != 3) std::this_thread::yield();
      lost_at = std::chrono::steady_clock::now();
      all.node().abort(CCO_ABORT_PEER_LOST, peer);
    });
    run_on(all, 0, 3, [&](uint32_t, const Gda& gda, const Window& window, Deadline deadline) {
      if (!has_arrived(gda.put(WarpCoop{}, peer, at(window, 0), at(window, 64), 8, {deadline}))) {
        ADD_FAILURE() << "the first put";
      }
      ++begun;
      results[thread_index()] = wait(gda, window, peer, deadline);
    });
    killer.join();
    const auto took = std::chrono::steady_clock::now() - lost_at;
    for (const WaitResult& result : results) expect(result, WaitStatus::kPeerLost, peer, what);
    // Below 50 ms by design; the machine may be busy, and sanitizers are slow.
    EXPECT_LT(took, std::chrono::seconds(1)) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(, Waits,
                         ::testing::Combine(::testing::Values("proxy", "mlx5", "bnxt", "ionic"),
                                            ::testing::Values(1u, 2u)),
                         name_of);

}  // namespace
}  // namespace cco::testing
