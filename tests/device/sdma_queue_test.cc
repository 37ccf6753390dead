// User queues in tight places: small rings, short copies, engines that dawdle or have stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cco/device/sdma.h"
#include "device/transport/engine_thread.h"
#include "device/transport/user_queue.h"
#include "tests/device/emulated_transports.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;
using testing::EmulatedTransports;
using testing::kLongNs;

constexpr uint64_t kWindowBytes = uint64_t{4} << 20;
constexpr uint64_t kHalf = kWindowBytes / 2;

/// Two ranks; rank 0's provider is "host" with these options.
class Queues {
 public:
  explicit Queues(const HostSdmaOptions& options, uint32_t queue_count = 1)
      : transports_(node_options(queue_count)) {
    const uint64_t device = transports_.sdma(0).device();
    SdmaPlan plan;
    plan.queue_count = queue_count;
    plan.signal_offset = reinterpret_cast<const cco_sdma_device*>(device)->signal_offset;
    plan.state_offset = device - transports_.team(0).own_words();
    transports_.stop(0);
    auto provider = open_host_sdma(transports_.team(0), plan, options);
    if (!provider.ok()) throw std::runtime_error(provider.status().ToString());
    provider_ = *std::move(provider);
    for (uint64_t i = 0; i < kHalf; ++i) data(0)[i] = static_cast<char>(i * 37 + i / 1000);
  }
  ~Queues() { provider_.reset(); }

  EmulatedNode& node() { return transports_.node(); }
  WindowRegistry& windows() { return transports_.windows(0); }
  absl::Status status() const { return provider_->status(); }
  char* data(uint32_t rank) { return node().data(rank); }
  bool holds(uint64_t offset, uint64_t from, uint64_t bytes) {
    return std::memcmp(data(1) + kHalf + offset, data(0) + from, bytes) == 0;
  }
  DeviceComm comm(uint32_t rank) const {
    DeviceComm comm = transports_.comm(rank);
    if (rank == 0) comm.sdma = provider_->device();
    return comm;
  }
  uint64_t risen() const { return Sdma(comm(1)).read_signal(0, 0); }
  cco_sdma_queue queue(uint32_t peer) const {
    const auto* const device = reinterpret_cast<const cco_sdma_device*>(provider_->device());
    return reinterpret_cast<const cco_sdma_queue*>(device->queues)[peer * device->queue_count];
  }

  /// `body(sdma, window, deadline)` by `threads` threads of rank 0.
  template <typename F>
  void run(uint32_t threads, F body, uint64_t deadline_ns = kLongNs) {
    EmulatedNode::run_on(0, 1, threads, [&](uint32_t) {
      const DeviceComm comm = this->comm(0);
      body(Sdma(comm), node().window(0), Deadline::after(comm, deadline_ns));
    });
  }
  /// The engine hears no more of what is posted to rank 1; one put is.
  void deafen_consumer() {
    auto* const device = reinterpret_cast<cco_sdma_device*>(provider_->device());
    for (uint32_t i = 0; i < device->queue_count; ++i) {
      reinterpret_cast<cco_sdma_queue*>(device->queues)[device->queue_count + i].doorbell =
          reinterpret_cast<uint64_t>(&unheard_);
    }
    run(1, [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
      EXPECT_EQ(sdma.put(ThreadCoop{}, 1, at(window, kHalf), at(window, 0), 8, 0, deadline).status,
                WaitStatus::kArrived);
    });
  }
  /// An engine that stops at its first packet, after which nothing is consumed.
  void stop_consumer() {
    windows().remove(EmulatedNode::kWindowGeneration);
    run(1, [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
      EXPECT_EQ(sdma.put(ThreadCoop{}, 1, at(window, kHalf), at(window, 0), 8, 0, deadline).status,
                WaitStatus::kArrived);
      while (status().ok()) std::this_thread::yield();
    });
  }

 private:
  static EmulatedTransports::Options node_options(uint32_t queue_count) {
    EmulatedTransports::Options options;
    options.node.window_bytes = kWindowBytes;
    options.sdma = "host";
    options.sdma_plan.queue_count = queue_count;
    return options;
  }

  EmulatedTransports transports_;
  uint64_t unheard_ = 0;
  std::unique_ptr<SdmaProvider> provider_;
};

bool arrived(WaitResult result) { return result.status == WaitStatus::kArrived; }

// Goal    a copy longer than the largest chunk is split, in order, with one signal at the end, also
//         if its packets need the ring many times over; the ring wraps more than a thousand times.
// Method  chunks of 32 bytes and the smallest ring; lengths around chunks, halves and whole rings,
//         by one thread, and by 7 threads of different lengths as one; then 2 MiB until the ring
//         has wrapped often enough.
TEST(SdmaQueue, SplitsLongCopiesAndWraps) {
  Queues queues({.ring_bytes = kSmallestSdmaRing, .largest_copy = 32});
  std::atomic<uint32_t> wrong{0};
  uint64_t signals = 0;
  for (const uint64_t bytes : {31, 32, 33, 8191, 8192, 8193, 16384, 100'001}) {
    std::memset(queues.data(1) + kHalf, 0, kHalf);
    for (const uint32_t threads : {1u, 7u}) {
      queues.run(threads, [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
        const uint64_t mine = bytes / (thread_index() + 1);
        const uint64_t offset = thread_index() * (bytes + 5);
        wrong += !arrived(sdma.put<kSdmaSignalRemote>(ThreadCoop{}, 1, at(window, kHalf + offset),
                                                      at(window, offset + 3), mine, 0, deadline));
        wrong += !arrived(sdma.quiet(ThreadCoop{}, 1, deadline));
        wrong += !queues.holds(offset, offset + 3, mine);
      });
      EXPECT_EQ(queues.risen(), ++signals);
    }
  }
  const cco_sdma_queue queue = queues.queue(1);
  const auto wraps = [&] {
    return load_relaxed_device(reinterpret_cast<uint64_t*>(queue.reserved_index)) /
           queue.ring_bytes;
  };
  while (wraps() < 1000 && wrong == 0) {
    queues.run(1, [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
      wrong += !arrived(sdma.put<kSdmaSignalRemote>(ThreadCoop{}, 1, at(window, kHalf),
                                                    at(window, 0), kHalf, 0, deadline));
      wrong += !arrived(sdma.quiet(ThreadCoop{}, 1, deadline));
    });
    ++signals;
  }
  EXPECT_TRUE(queues.holds(0, 0, kHalf));
  EXPECT_EQ(queues.risen(), signals);
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(queues.status().ok()) << queues.status();
}

// Goal    indices may pass 2^64: nothing compares them otherwise than by their difference.
// Method  a queue that begins a little below, and the engine that knows; puts across the wrap.
TEST(SdmaQueue, IndicesPassTheirOwnWrap) {
  constexpr uint64_t kBegin = ~uint64_t{0} - 64 * 1024 + 1;
  std::vector<uint32_t> ring(kSmallestSdmaRing / 4);
  alignas(64) uint64_t words[6] = {kBegin, kBegin, kBegin, kBegin, kBegin, kBegin};
  uint64_t landed[2] = {kBegin, kBegin}, signal = 0;
  const cco_sdma_queue queue{
      reinterpret_cast<uint64_t>(ring.data()), kSmallestSdmaRing,
      reinterpret_cast<uint64_t>(&words[0]),   reinterpret_cast<uint64_t>(&words[1]),
      reinterpret_cast<uint64_t>(&words[2]),   reinterpret_cast<uint64_t>(&words[3]),
      reinterpret_cast<uint64_t>(&words[4]),   reinterpret_cast<uint64_t>(&words[5])};
  cco_sdma_device device{};
  device.queue_count = 1;
  device.packets = CCO_SDMA_PACKETS_GFX9;
  device.queues = reinterpret_cast<uint64_t>(&queue);
  device.landed = reinterpret_cast<uint64_t>(landed);
  device.largest_copy = 64;
  const auto port = open_host_port();
  SdmaEngine engine(CCO_SDMA_PACKETS_GFX9, port.get(),
                    {{ring.data(), kSmallestSdmaRing, &words[0], &words[1], &words[2], "queue"}},
                    [](uint64_t, uint64_t) { return true; });
  const impl::SdmaProducer producer(device, 0, 0);
  const Deadline never{~uint64_t{0}, nullptr};
  std::vector<char> from(4096, 'x'), to(4096);
  for (uint64_t i = 1; i <= 40; ++i) {
    std::fill(from.begin(), from.end(), static_cast<char>(i));
    const impl::SdmaCopy copy{reinterpret_cast<uint64_t>(to.data()),
                              reinterpret_cast<uint64_t>(from.data()), from.size()};
    ASSERT_EQ(producer.post(ActiveLanes::alone(), copy, {reinterpret_cast<uint64_t>(&signal), 0},
                            false, i % 2 == 0, never),
              WaitStatus::kArrived);
    ASSERT_EQ(producer.ring(never), WaitStatus::kArrived);
    while (engine.step()) {
    }
    ASSERT_EQ(signal, i);
    ASSERT_EQ(to, from);
    const EngineThread consumer([&engine] { return engine.step(); }, kHostPace);
    ASSERT_EQ(producer.wait_landed(never), WaitStatus::kArrived);
  }
  EXPECT_LT(words[3], kBegin) << "the indices have not wrapped";
  EXPECT_TRUE(engine.status().ok()) << engine.status();
}

// Goal    an engine that reads packets late, in small portions, with queues in any order, and
//         overlaps copies breaks no promise: not the order of put and signal, not quiet(), no byte.
// Method  seeded schedules in both formats; several threads, chunks of 64 bytes; after each signal
//         and after each quiet() all bytes are compared.
TEST(SdmaQueue, KeepsItsPromisesOnDawdlingEngines) {
  constexpr uint64_t kBytes = 5000, kRounds = 6;
  for (const uint32_t packets : {CCO_SDMA_PACKETS_GFX9, CCO_SDMA_PACKETS_GFX1250}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      Queues queues({.ring_bytes = kSmallestSdmaRing,
                     .largest_copy = 64,
                     .packets = packets,
                     .schedule = {seed}},
                    2);
      std::atomic<uint32_t> wrong{0};
      queues.run(6, [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
        const ThreadCoop thread{};
        for (uint64_t round = 0; round < kRounds; ++round) {
          const uint64_t offset = thread_index() * kBytes;
          char* const source = queues.data(0) + offset;
          std::memset(source, static_cast<int>(round + seed), kBytes);
          const uint32_t queue = thread_index() % 2;
          wrong += !arrived(sdma.put<kSdmaSignalLocal | kSdmaSignalPerCopy>(
              thread, 1, at(window, kHalf + offset), at(window, offset), kBytes, queue, deadline));
          if (round % 2 == 0) {
            wrong += !arrived(sdma.wait_signal(thread, 0, queue, 3 * (round + 1), deadline));
          } else {
            wrong += !arrived(sdma.quiet(thread, 1, deadline));
          }
          wrong += !queues.holds(offset, offset, kBytes);
          warp_sync();
        }
      });
      EXPECT_EQ(wrong, 0u) << "packets " << packets << ", seed " << seed;
      EXPECT_TRUE(queues.status().ok()) << queues.status();
    }
  }
}

// Goal    when nothing is consumed, put times out once the ring is full, quiet at once; they name
//         the peer; what did not fit has left no trace, and the ring of another peer works.
// Method  an engine that hears no doorbell.
TEST(SdmaQueue, TimesOutWhenNothingIsConsumed) {
  Queues queues({.ring_bytes = kSmallestSdmaRing});
  queues.deafen_consumer();
  const cco_sdma_queue queue = queues.queue(1);
  const auto reserved = [&] {
    return load_relaxed_device(reinterpret_cast<uint64_t*>(queue.reserved_index));
  };
  const auto timed_out = [](WaitResult result) {
    return result.status == WaitStatus::kTimedOut && result.rank == 1;
  };
  constexpr uint64_t kShort = 2'000'000;
  queues.run(
      1,
      [&](const Sdma& sdma, const Window&, const Deadline& deadline) {
        EXPECT_TRUE(timed_out(sdma.quiet(ThreadCoop{}, 1, deadline)));
      },
      kShort);
  uint32_t posted = 0;
  queues.run(1, [&](const Sdma& sdma, const Window& window, const Deadline&) {
    const DeviceComm comm = queues.comm(0);
    const auto put = [&] {
      return sdma.put<kSdmaSignalRemote | kSdmaAggregate>(
          ThreadCoop{}, 1, at(window, kHalf), at(window, 0), 8, 0, Deadline::after(comm, kShort));
    };
    WaitResult result = put();
    for (; arrived(result) && posted < 1000; ++posted) result = put();
    EXPECT_TRUE(timed_out(result));
    const uint64_t full = reserved();
    EXPECT_TRUE(timed_out(put()));
    const Deadline deadline = Deadline::after(comm, kShort);
    // A full ring has been rung: nobody can wait for room that only a doorbell makes.
    EXPECT_TRUE(arrived(sdma.commit(ThreadCoop{}, 1, 0, deadline)));
    EXPECT_TRUE(timed_out(sdma.quiet_queue(ThreadCoop{}, 1, 0, deadline)));
    EXPECT_EQ(reserved(), full);
    const Deadline later = Deadline::after(comm, kLongNs);
    EXPECT_TRUE(arrived(sdma.signal(ThreadCoop{}, 0, 0, later)));
    EXPECT_TRUE(arrived(sdma.wait_signal(ThreadCoop{}, 0, 0, 1, later)));
  });
  EXPECT_GT(posted, 200u) << "the ring holds 512 units";
  EXPECT_LE(reserved(), queue.ring_bytes);
  EXPECT_EQ(queues.risen(), 0u);
}

// Goal    once an engine has stopped, quiet() says kFailed, and so does a put that finds no room,
//         at once, to every group, with the peer; the ring of another peer works; the host finds
//         where and why.
// Method  an engine that has stopped at an unknown window; deadlines that a broken test alone sees.
TEST(SdmaQueue, FailsWhenTheEngineHasStopped) {
  Queues queues({.ring_bytes = kSmallestSdmaRing, .largest_copy = 32});
  queues.stop_consumer();
  EXPECT_EQ(queues.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(queues.status().message().find("queue 0 to LSA rank 1 stopped at 0: COPY"),
            std::string::npos)
      << queues.status();
  std::atomic<uint32_t> wrong{0};
  const auto failed = [&](WaitResult result) {
    wrong += result.status != WaitStatus::kFailed || result.rank != 1;
  };
  queues.run(40, [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
    const auto check = [&](auto coop) {
      failed(sdma.quiet(coop, 1, deadline));
      failed(sdma.put(coop, 1, at(window, kHalf), at(window, 0), 32768, 0, deadline));
      failed(sdma.quiet_queue(coop, 1, 0, deadline));
    };
    check(BlockCoop{});
    check(WarpCoop{});
    check(ThreadCoop{});
  });
  EXPECT_EQ(wrong, 0u);
  queues.run(1, [&](const Sdma& sdma, const Window&, const Deadline& deadline) {
    EXPECT_TRUE(arrived(sdma.signal(ThreadCoop{}, 0, 0, deadline)));
    EXPECT_TRUE(arrived(sdma.wait_signal(ThreadCoop{}, 0, 0, 1, deadline)));
  });
}

// Goal    groups of every kind time out alike when the ring is full: one result for all members.
// Method  a full ring; a block, a warp, and threads that post as one.
TEST(SdmaQueue, AFullRingTimesOutForTheWholeGroup) {
  Queues queues({.ring_bytes = kSmallestSdmaRing, .largest_copy = 32});
  queues.deafen_consumer();
  std::atomic<uint32_t> wrong{0};
  queues.run(
      40,
      [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
        const auto check = [&](auto coop) {
          const WaitResult result =
              sdma.put(coop, 1, at(window, kHalf), at(window, 0), 32768, 0, deadline);
          wrong += result.status != WaitStatus::kTimedOut || result.rank != 1;
        };
        check(BlockCoop{});
        check(WarpCoop{});
        check(ThreadCoop{});
      },
      5'000'000);
  EXPECT_EQ(wrong, 0u);
}

// Goal    a lost peer ends a put that waits for room, and a quiet(), within 50 ms, and both name
//         the rank.
// Method  a deaf consumer and endless deadlines; the quickest of five counts, for the machine may
//         be busy with other things.
TEST(SdmaQueue, LostPeersEndPutAndQuiet) {
  using Clock = std::chrono::steady_clock;
  Clock::duration quickest = std::chrono::hours(1);
  for (int attempt = 0; attempt < 5 && quickest >= std::chrono::milliseconds(50); ++attempt) {
    Queues queues({.ring_bytes = kSmallestSdmaRing, .largest_copy = 32}, 2);
    queues.deafen_consumer();
    std::atomic<uint32_t> wrong{0}, waiting{0};
    Clock::time_point aborted_at, ended_at[2];
    std::thread daemon([&] {
      while (waiting < 2) std::this_thread::yield();
      aborted_at = Clock::now();
      queues.node().abort(CCO_ABORT_PEER_LOST, 1);
    });
    queues.run(
        2,
        [&](const Sdma& sdma, const Window& window, const Deadline& deadline) {
          ++waiting;
          const WaitResult result =
              thread_index() == 0
                  ? sdma.put(ThreadCoop{}, 1, at(window, kHalf), at(window, 0), kHalf, 0, deadline)
                  : sdma.quiet_queue(ThreadCoop{}, 1, 0, deadline);
          wrong += result.status != WaitStatus::kPeerLost || result.rank != 1;
          ended_at[thread_index()] = Clock::now();
        },
        ~uint64_t{0});
    daemon.join();
    EXPECT_EQ(wrong, 0u);
    quickest = std::min(quickest, std::max(ended_at[0], ended_at[1]) - aborted_at);
  }
  EXPECT_LT(quickest, std::chrono::milliseconds(50));
}

// Goal    options out of range are refused with a text; so are plans and unknown names.
// Method  each limit; a good one works.
TEST(SdmaQueue, RefusesWrongOptions) {
  EmulatedTransports transports(EmulatedTransports::Options{});
  const auto code = [&](const HostSdmaOptions& options) {
    return open_host_sdma(transports.team(0), {}, options).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({.ring_bytes = kSmallestSdmaRing / 2}), kInvalid);
  EXPECT_EQ(code({.ring_bytes = kSmallestSdmaRing + 32}), kInvalid);
  EXPECT_EQ(code({.largest_copy = 0}), kInvalid);
  EXPECT_EQ(code({.largest_copy = 48}), kInvalid);
  EXPECT_EQ(code({.largest_copy = uint64_t{1} << 30}), kInvalid);
  EXPECT_EQ(code({.packets = 0}), kInvalid);
  const auto opened = [&](const char* name, uint32_t queue_count) {
    SdmaPlan plan;
    plan.queue_count = queue_count;
    std::string passed_over;
    return open_sdma(name, transports.team(0), plan, &passed_over).status();
  };
  EXPECT_EQ(opened("host", 0).code(), kInvalid);
  EXPECT_EQ(opened("host", CCO_SDMA_MAX_QUEUES + 1).code(), kInvalid);
  EXPECT_EQ(opened("carrier-pigeon", 1).message(),
            "no SDMA provider 'carrier-pigeon': user-queue, copy-engine, host");
}

}  // namespace
}  // namespace cco::device
