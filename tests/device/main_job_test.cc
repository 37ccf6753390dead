#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/kernels/exchange_pattern.h"
#include "device/kernels/routing.h"
#include "device/kernels/routing_reference.h"
#include "emulated_node.h"
#include "module_launch.h"

namespace cco::kernels {
namespace {

using cco::device::DeviceComm;
using cco::device::HostLaunch;
using cco::device::WaitResult;
using cco::device::WaitStatus;
using cco::device::Window;
using cco::testing::EmulatedNode;
using cco::testing::kLongNs;
using cco::testing::launch;

/// Runs `body(rank)` for all ranks at once, as one stream each would.
void on_all_ranks(uint32_t ranks, const std::function<void(uint32_t)>& body) {
  std::vector<std::thread> streams;
  for (uint32_t rank = 0; rank < ranks; ++rank) streams.emplace_back(body, rank);
  for (std::thread& stream : streams) stream.join();
}

struct Shape {
  uint32_t ranks, threads;
};
std::string text_of(const Shape& shape) {
  return "Ranks" + std::to_string(shape.ranks) + "Threads" + std::to_string(shape.threads);
}
void PrintTo(const Shape& shape, std::ostream* out) { *out << text_of(shape); }

class MainJob : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, MainJob,
                         ::testing::Values(Shape{1, 1}, Shape{1, 64}, Shape{2, 7}, Shape{3, 33},
                                           Shape{4, 16}, Shape{5, 1}),
                         [](const auto& info) { return text_of(info.param); });

// Goal    after exchange() every rank holds every rank's chunk, byte for byte, and not a byte more.
// Method  several chunk sizes, odd ones too, and two rounds each; the bytes are computed again
//         here.
TEST_P(MainJob, ExchangeDeliversEveryByte) {
  const auto [ranks, threads] = GetParam();
  for (const uint64_t chunk : {0, 1, 4096, 5003}) {
    EmulatedNode node({.ranks = ranks, .window_bytes = ranks * chunk + 64});
    for (uint64_t round = 0; round < 2; ++round) {
      std::vector<std::vector<uint64_t>> results(ranks, std::vector<uint64_t>(ranks, ~0ull));
      on_all_ranks(ranks, [&](uint32_t rank) {
        launch(main_job(), "exchange", HostLaunch{ranks, threads, 0}, node.comm(rank),
               node.window(rank), chunk, round, kLongNs, results[rank].data());
      });
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(results[rank], std::vector<uint64_t>(ranks, 0));
        const auto* const bytes = reinterpret_cast<const uint8_t*>(node.data(rank));
        for (uint64_t i = 0; i < ranks * chunk; ++i) {
          ASSERT_EQ(bytes[i], exchange_byte(static_cast<uint32_t>(i / chunk), round, i % chunk))
              << "byte " << i << " of rank " << rank << ", chunk of " << chunk;
        }
        EXPECT_EQ(std::count(bytes + ranks * chunk, bytes + ranks * chunk + 64, 0), 64);
      }
    }
  }
}

// Goal    route() and combine() give the single-process result, bit for bit.
// Method  token counts that differ between ranks, 0 and 1 among them; two rounds in one window.
TEST_P(MainJob, RoutingEqualsTheReference) {
  const auto [ranks, threads] = GetParam();
  constexpr uint64_t kTokensMax = 41;
  const RoutingLayout layout = routing_layout(kTokensMax, ranks);
  EmulatedNode node(
      {.ranks = ranks, .window_bytes = layout.bytes, .signal_count = kSignalsPerRank * ranks});
  const uint64_t counts[] = {kTokensMax, 0, 1, 17, 40};
  for (uint64_t round = 0; round < 2; ++round) {
    std::vector<std::vector<uint64_t>> results(ranks, std::vector<uint64_t>(ranks, ~0ull));
    const auto count_of = [&](uint32_t rank) { return counts[(rank + round) % 5]; };
    on_all_ranks(ranks, [&](uint32_t rank) {
      auto* const ids = reinterpret_cast<uint64_t*>(node.data(rank) + layout.ids);
      for (uint64_t t = 0; t < count_of(rank); ++t) ids[t] = mix(round * 1000 + rank * 100 + t);
      launch(main_job(), "route", HostLaunch{ranks, threads, 0}, node.comm(rank), node.window(rank),
             kTokensMax, count_of(rank), round, kLongNs, results[rank].data());
      launch(main_job(), "combine", HostLaunch{2, threads, 0}, node.comm(rank), node.window(rank),
             kTokensMax, count_of(rank));
    });
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(results[rank], std::vector<uint64_t>(ranks, 0));
      const auto* const ids = reinterpret_cast<const uint64_t*>(node.data(rank) + layout.ids);
      for (uint64_t token = 0; token < count_of(rank); ++token) {
        const TokenVector expected = route_reference(ids[token]);
        ASSERT_EQ(std::memcmp(node.data(rank) + layout.output + token * sizeof expected,
                              expected.data(), sizeof expected),
                  0)
            << "token " << token << " of rank " << rank << " in round " << round;
      }
    }
  }
}

// Goal    a rank that never comes ends the others' kernels at the deadline, each block naming its
//         part.
// Method  rank 1 of 2 does not launch.
TEST(MainJobFailure, MissingRankTimesOut) {
  const RoutingLayout layout = routing_layout(4, 2);
  EmulatedNode node({.ranks = 2, .window_bytes = layout.bytes});
  uint64_t result[2] = {};
  launch(main_job(), "exchange", HostLaunch{2, 4, 0}, node.comm(0), node.window(0), uint64_t{64},
         uint64_t{0}, uint64_t{2'000'000}, &result[0]);
  EXPECT_EQ(result[0], 0u);
  EXPECT_EQ(WaitResult::decode(result[1]).status, WaitStatus::kTimedOut);
  std::memset(node.data(0), 0, layout.bytes);
  launch(main_job(), "route", HostLaunch{2, 4, 0}, node.comm(0), node.window(0), uint64_t{4},
         uint64_t{3}, uint64_t{0}, uint64_t{2'000'000}, &result[0]);
  EXPECT_EQ(result[0], 0u);
  EXPECT_EQ(WaitResult::decode(result[1]).status, WaitStatus::kTimedOut);
}

// Goal    the problem is what its header says: 8 distinct experts per token in falling order of
//         score, every expert owned by exactly one rank in contiguous shares that differ by at most
//         one.
// Method  many tokens; every team size up to beyond the number of experts.
TEST(Routing, DefinitionHolds) {
  for (uint64_t id = 0; id < 200; ++id) {
    const std::vector<uint32_t> chosen = choose_experts(mix(id));
    ASSERT_EQ(chosen.size(), kChoices);
    for (uint32_t k = 1; k < kChoices; ++k) {
      EXPECT_NE(chosen[k - 1], chosen[k]);
      EXPECT_GE(expert_score(mix(id), chosen[k - 1]), expert_score(mix(id), chosen[k]));
    }
  }
  for (uint32_t ranks = 1; ranks <= 72; ++ranks) {
    std::vector<uint32_t> owned(ranks);
    for (uint32_t expert = 0; expert < kExperts; ++expert) {
      ASSERT_LT(expert_owner(expert, ranks), ranks);
      ++owned[expert_owner(expert, ranks)];
    }
    const auto [least, most] = std::minmax_element(owned.begin(), owned.end());
    EXPECT_LE(*most - *least, 1u) << ranks << " ranks";
  }
}

// Goal    the regions of the layout follow one another without overlap and end at `bytes`.
// Method  several sizes.
TEST(Routing, LayoutHasRoomForEverything) {
  for (const uint64_t tokens : {0, 1, 41, 100000}) {
    for (const uint32_t ranks : {1u, 3u, 8u}) {
      const RoutingLayout at = routing_layout(tokens, ranks);
      EXPECT_GE(at.counts, at.ids + 8 * tokens);
      EXPECT_GE(at.scratch, at.counts + 8 * ranks);
      EXPECT_GE(at.inbox, at.scratch + 8 * ranks * kThreadsMax);
      EXPECT_GE(at.results, at.inbox + ranks * tokens * 8 * sizeof(RoutedToken));
      EXPECT_GE(at.output, at.results + tokens * 8 * 64);
      EXPECT_GE(at.bytes, at.output + tokens * 64);
    }
  }
}

// Goal    the module carries its three kernels, and for each image that was built, bytes.
// Method  look.
TEST(Module, HoldsKernelsAndImages) {
  EXPECT_EQ(main_job().name, "main_job");
  EXPECT_EQ(main_job().host_functions.size(), 3u);
  for (const KernelImage& image : main_job().images) {
    EXPECT_GT(image.bytes.size(), 1000u) << image.arch;
    const std::string head(reinterpret_cast<const char*>(image.bytes.data()), 4);
    if (image.arch != "ptx") {
      EXPECT_EQ(head, "\177ELF") << image.arch;
    }
  }
}

}  // namespace
}  // namespace cco::kernels
