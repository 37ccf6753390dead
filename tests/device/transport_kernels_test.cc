// The kernels that cco-bench times of SDMA and GDA, and the one that uses all transports at once.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "device/kernels/mix.h"
#include "emulated_transports.h"
#include "module_launch.h"

namespace cco::kernels {
namespace {

using cco::device::HostLaunch;
using cco::device::WaitResult;
using cco::device::WaitStatus;
using cco::testing::EmulatedTransports;
using cco::testing::kLongNs;
using cco::testing::launch;

constexpr uint64_t kNotWritten = ~uint64_t{0};
constexpr uint64_t kFrom = 0, kTo = 32 << 10;

EmulatedTransports::Options with(const std::string& sdma, const std::string& gda,
                                 uint32_t ranks = 2) {
  EmulatedTransports::Options options;
  options.node.ranks = ranks;
  options.node.window_bytes = 2 * kTo;
  options.sdma = sdma;
  options.gda = gda;
  options.gda_plan.context_count = 1;
  return options;
}

void fill(char* data, uint64_t bytes, uint64_t seed) {
  for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(seed + i * 31 + i / 256);
}

// On both ranks at once; their results.
template <typename Body>
std::array<uint64_t, 2> on_both(Body body) {
  std::array<uint64_t, 2> results{kNotWritten, kNotWritten};
  std::vector<std::thread> streams;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    streams.emplace_back([&, rank] { body(rank, &results[rank]); });
  }
  for (std::thread& stream : streams) stream.join();
  return results;
}

std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& letter : name) letter = letter == '-' ? '_' : letter;
  return name;
}

class SdmaKernels : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Providers, SdmaKernels, ::testing::Values("host", "copy-engine"), name_of);

// Goal    what is timed has moved all bytes when the kernel ends, and says so.
// Method  one copy and several, of a length that does not divide; compare.
TEST_P(SdmaKernels, CopiesHaveLanded) {
  EmulatedTransports transports(with(GetParam(), ""));
  for (const uint64_t count : {1, 20}) {
    constexpr uint64_t kBytes = 10001;
    for (const uint32_t gets : {0u, 1u}) {
      const uint32_t from = gets, to = 1 - gets;
      fill(transports.node().data(from) + kFrom, kBytes, 100 * gets + count);
      uint64_t result = kNotWritten;
      launch(sdma_bench(), "sdma_copy", HostLaunch{1, 3, 0}, transports.comm(0),
             transports.node().window(0), 1u, 1u, gets, kTo, kFrom, kBytes, count, kLongNs,
             &result);
      EXPECT_EQ(result, 0u);
      EXPECT_EQ(std::memcmp(transports.node().data(to) + kTo, transports.node().data(from) + kFrom,
                            kBytes),
                0);
    }
  }
}

// Goal    round trips end on both sides, from any base, and not without the other side.
// Method  two launches after each other by SDMA and by LSA; then one rank alone.
TEST_P(SdmaKernels, PingPong) {
  EmulatedTransports transports(with(GetParam(), ""));
  const auto play = [&](const char* kernel, uint32_t rank, uint64_t base, uint64_t deadline_ns,
                        uint64_t* result) {
    launch(sdma_bench(), kernel, HostLaunch{1, 2, 0}, transports.comm(rank),
           transports.node().window(rank), 1 - rank, 1u, kTo, kFrom, uint64_t{512}, base,
           uint64_t{20}, deadline_ns, result);
  };
  for (const char* const kernel : {"sdma_ping_pong", "lsa_ping_pong"}) {
    for (const uint64_t base : {0, 20}) {
      const auto results = on_both(
          [&](uint32_t rank, uint64_t* result) { play(kernel, rank, base, kLongNs, result); });
      EXPECT_EQ(results, (std::array<uint64_t, 2>{0, 0})) << kernel;
    }
    uint64_t alone = 0;
    play(kernel, 1, 40, 1'000'000, &alone);
    EXPECT_EQ(WaitResult::decode(alone).status, WaitStatus::kTimedOut) << kernel;
  }
}

class GdaKernels : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Providers, GdaKernels, ::testing::Values("mlx5", "bnxt", "ionic", "proxy"),
                         name_of);

// Goal    posts that are timed have arrived when the kernel ends, and the time of posting is told.
// Method  posts flushed at the end, each, and each between looks at the clock; then by four lanes
//         with bytes of their own.
TEST_P(GdaKernels, PutsHaveArrived) {
  EmulatedTransports transports(with("", GetParam()));
  for (const uint32_t flush_each : {0u, 1u, 2u}) {
    constexpr uint64_t kBytes = 24, kCount = 10;
    fill(transports.node().data(0) + kFrom, kBytes, flush_each);
    uint64_t result = kNotWritten, elapsed = kNotWritten;
    launch(gda_bench(), "gda_put", HostLaunch{1, 2, 0}, transports.comm(0),
           transports.node().window(0), 1u, 0u, kTo, kFrom, kBytes, kCount, flush_each, kLongNs,
           &elapsed, &result);
    EXPECT_EQ(result, 0u);
    EXPECT_LT(elapsed, kLongNs);
    EXPECT_EQ(
        std::memcmp(transports.node().data(1) + kTo, transports.node().data(0) + kFrom, kBytes), 0);
  }
  constexpr uint64_t kLanes = 4, kLaneBytes = 8;
  fill(transports.node().data(0) + kFrom, kLanes * kLaneBytes, 77);
  uint64_t result = kNotWritten, elapsed = kNotWritten;
  launch(gda_bench(), "gda_put_lanes", HostLaunch{1, kLanes, 0}, transports.comm(0),
         transports.node().window(0), 1u, 0u, kTo, kFrom, kLaneBytes, uint64_t{10}, kLongNs,
         &elapsed, &result);
  EXPECT_EQ(result, 0u);
  EXPECT_LT(elapsed, kLongNs);
  EXPECT_EQ(std::memcmp(transports.node().data(1) + kTo, transports.node().data(0) + kFrom,
                        kLanes * kLaneBytes),
            0);
}

// Goal    a peer that does not exist is told, not waited for.
// Method  post to rank 7 of 2.
TEST_P(GdaKernels, TellsWhatIsRefused) {
  EmulatedTransports transports(with("", GetParam()));
  uint64_t result = kNotWritten, elapsed = kNotWritten;
  launch(gda_bench(), "gda_put", HostLaunch{1, 1, 0}, transports.comm(0),
         transports.node().window(0), 7u, 0u, kTo, kFrom, uint64_t{8}, uint64_t{1}, 0u, kLongNs,
         &elapsed, &result);
  EXPECT_EQ(WaitResult::decode(result).status, WaitStatus::kRefused);
}

// Goal    the bare loop writes as many bytes as a post, each entry in its place, and nothing else.
// Method  three entries into marked memory, for each format, with and without order.
TEST(BareStores, FillTheQueueAlone) {
  struct Format {
    uint32_t provider;
    uint64_t entry_bytes, unit_bytes;
  };
  constexpr uint64_t kCount = 3, kDepth = 16;
  for (const Format& format : {Format{CCO_GDA_MLX5, 64, 64}, Format{CCO_GDA_BNXT, 48, 16},
                               Format{CCO_GDA_IONIC, 64, 64}}) {
    for (const uint32_t ordered : {0u, 1u}) {
      alignas(64) unsigned char sq[kDepth * 64], record[64], doorbell[64], table[kDepth * 8];
      for (auto* const memory : {record, doorbell}) std::memset(memory, 0xee, 64);
      std::memset(sq, 0xee, sizeof sq);
      std::memset(table, 0xee, sizeof table);
      cco_gda_queue queue{};
      queue.qpn = 0x123;
      queue.sq_depth = kDepth;
      queue.msn_depth = kDepth;
      queue.sq = reinterpret_cast<uint64_t>(sq);
      queue.doorbell_record = reinterpret_cast<uint64_t>(record);
      queue.doorbell = reinterpret_cast<uint64_t>(doorbell);
      queue.msn_table = reinterpret_cast<uint64_t>(table);
      uint64_t elapsed = kNotWritten;
      launch(gda_bench(), "gda_write_bare", HostLaunch{1, 2, 0}, queue, format.provider, ordered,
             uint64_t{8}, kCount, &elapsed);
      EXPECT_LT(elapsed, kLongNs);
      const auto written = [](const unsigned char* memory, uint64_t bytes) {
        uint64_t last = 0;
        for (uint64_t i = 0; i < bytes; ++i) last = memory[i] != 0xee ? i + 1 : last;
        return last;
      };
      EXPECT_EQ(written(sq, sizeof sq), kCount * format.entry_bytes) << format.provider;
      EXPECT_EQ(written(doorbell, 64), 8u) << format.provider;
      EXPECT_EQ(written(record, 64), format.provider == CCO_GDA_MLX5 ? 8u : 0u);
      EXPECT_EQ(written(table, sizeof table), format.provider == CCO_GDA_BNXT ? 8 * kCount : 0u);
    }
  }
}

// Goal    the bare flag makes its rounds with whoever answers, and does not hang without.
// Method  a thread that answers, twice; then nobody.
TEST(FlagRing, RunsAndTimesOut) {
  EmulatedTransports transports(with("", ""));
  uint64_t request = 0, answer = 0;
  std::atomic<bool> stop{false};
  std::thread answerer([&] {
    while (!stop) {
      __atomic_store_n(&answer, __atomic_load_n(&request, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
      std::this_thread::yield();
    }
  });
  const auto run = [&](uint64_t base, uint64_t deadline_ns) {
    uint64_t result = kNotWritten;
    launch(gda_bench(), "flag_ring", HostLaunch{1, 1, 0}, transports.comm(0), &request,
           const_cast<const uint64_t*>(&answer), base, uint64_t{20}, deadline_ns, &result);
    return WaitResult::decode(result).status;
  };
  EXPECT_EQ(run(0, kLongNs), WaitStatus::kArrived);
  EXPECT_EQ(run(20, kLongNs), WaitStatus::kArrived);
  stop = true;
  answerer.join();
  EXPECT_EQ(run(40, 1'000'000), WaitStatus::kTimedOut);
}

class Mix : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Providers, Mix,
                         ::testing::Values(std::pair{"host", "mlx5"}, std::pair{"host", "ionic"},
                                           std::pair{"copy-engine", "bnxt"},
                                           std::pair{"copy-engine", "proxy"}),
                         [](const auto& info) { return "Pair" + std::to_string(info.index); });

struct MixRun {
  std::array<uint64_t, kMixRoles> results, wrong;
};

// One round on all ranks at once. Rank `liar` makes its bytes as if it were another.
std::vector<MixRun> run_mix(EmulatedTransports& transports, uint64_t round, uint32_t roles,
                            uint32_t liar = ~0u) {
  const uint32_t ranks = transports.node().options().ranks;
  std::vector<MixRun> runs(ranks);
  std::vector<std::thread> streams;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    runs[rank].results.fill(kNotWritten);
    runs[rank].wrong.fill(0);
    streams.emplace_back([&, rank] {
      device::DeviceComm comm = transports.comm(rank);
      if (rank == liar) comm.rank = 100;
      launch(mix(), "mix_transports", HostLaunch{kMixRoles, 2, mix_shared_bytes()}, comm,
             transports.node().window(rank), uint64_t{kMixPartUnit}, round, roles, kLongNs,
             runs[rank].wrong.data(), runs[rank].results.data());
    });
  }
  for (std::thread& stream : streams) stream.join();
  return runs;
}

EmulatedTransports::Options mix_options(const char* sdma, const char* gda) {
  EmulatedTransports::Options options = with(sdma, gda, 3);
  options.node.window_bytes = 2 * kMixRoles * kMixPartUnit;
  return options;
}

// Goal    one kernel uses all transports at once, again and again, and every byte is right.
// Method  rounds of all roles and of single ones, on three ranks; the kernel's own check, and every
//         word of the last round.
TEST_P(Mix, DeliversEveryByte) {
  EmulatedTransports transports(mix_options(GetParam().first, GetParam().second));
  for (const uint64_t round : {1, 2, 3}) {
    for (uint32_t part = 0; part < kMixRoles; ++part) {
      if (round != 2 && part != 0) break;
      const uint32_t roles = round == 2 ? 1u << part : kMixAllRoles;
      for (const MixRun& run : run_mix(transports, round, roles)) {
        EXPECT_EQ(run.results, (std::array<uint64_t, kMixRoles>{}));
        EXPECT_EQ(run.wrong, (std::array<uint64_t, kMixRoles>{}));
      }
    }
  }
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (uint32_t role = 0; role < kMixRoles; ++role) {
      const auto* const words = reinterpret_cast<const uint64_t*>(
          transports.node().data(rank) + mix_destination(role, kMixPartUnit));
      uint64_t bad = 0;
      for (uint64_t i = 0; i < kMixPartUnit / 8; ++i) {
        if (words[i] != mix_word((rank + 2) % 3, role, 3, i)) ++bad;
      }
      EXPECT_EQ(bad, 0u) << "rank " << rank << ", role " << role;
    }
  }
}

// Goal    the kernel's check finds bytes that are not those the sender should have sent.
// Method  rank 0 sends another rank's bytes; rank 1 must find all roles wrong, rank 2 none.
TEST_P(Mix, FindsWrongBytes) {
  EmulatedTransports transports(mix_options(GetParam().first, GetParam().second));
  // GDA names this rank's own slot by its world rank, hence not that role.
  const uint32_t roles = kMixAllRoles & ~(1u << kMixGda);
  const std::vector<MixRun> runs = run_mix(transports, 1, roles, 0);
  for (uint32_t role = 0; role < kMixGda; ++role) {
    EXPECT_EQ(runs[1].wrong[role], 1u) << role;
    EXPECT_EQ(runs[2].wrong[role], 0u) << role;
  }
}

}  // namespace
}  // namespace cco::kernels
