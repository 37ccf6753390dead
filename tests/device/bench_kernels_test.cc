#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "emulated_node.h"
#include "module_launch.h"

namespace cco::kernels {
namespace {

using cco::device::HostLaunch;
using cco::device::WaitResult;
using cco::device::WaitStatus;
using cco::testing::EmulatedNode;
using cco::testing::kLongNs;
using cco::testing::launch;

// Goal    the kernels that are timed copy what they claim to.
// Method  sizes that do not divide by the grid; compare.
TEST(BenchKernels, CopiesAreComplete) {
  for (const uint64_t bytes : {0, 16, 4096, 100000}) {
    EmulatedNode node({.ranks = 2, .window_bytes = 1 << 18});
    constexpr uint64_t kFrom = 1 << 17;
    for (uint64_t i = 0; i < bytes; ++i) {
      node.data(0)[kFrom + i] = static_cast<char>(i * 31 + i / 256);
    }
    const HostLaunch shape{3, 5, 0};
    launch(bench(), "lsa_put", shape, node.window(0), 1u, uint64_t{0}, kFrom, bytes);
    EXPECT_EQ(std::memcmp(node.data(1), node.data(0) + kFrom, bytes), 0) << bytes;
    launch(bench(), "lsa_get", shape, node.window(0), 1u, uint64_t{0}, uint64_t{0}, bytes);
    EXPECT_EQ(std::memcmp(node.data(0), node.data(0) + kFrom, bytes), 0) << bytes;
    std::vector<char> bare(bytes + 1);
    launch(bench(), "copy_bare", shape, static_cast<void*>(bare.data()),
           static_cast<const void*>(node.data(0)), bytes);
    EXPECT_EQ(std::memcmp(bare.data(), node.data(0), bytes), 0) << bytes;
  }
}

class Loop : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Loop,
                         ::testing::Values("barrier", "barrier_release_acquire", "flags_relaxed"),
                         [](const auto& info) { return std::string(info.param); });

// Goal    each synchronisation loop ends on all ranks, can be launched again, and times out alone.
// Method  three ranks of two blocks, twice; then one rank without the others.
TEST_P(Loop, RunsAndTimesOut) {
  EmulatedNode node({.ranks = 3});
  const HostLaunch shape{2, 4, 0};
  for (int again = 0; again < 2; ++again) {
    std::vector<std::vector<uint64_t>> results(3, std::vector<uint64_t>(2, ~0ull));
    std::vector<std::thread> streams;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      streams.emplace_back([&, rank] {
        launch(bench(), GetParam(), shape, node.comm(rank), 1u, uint64_t{20}, kLongNs,
               results[rank].data());
      });
    }
    for (std::thread& stream : streams) stream.join();
    for (const auto& result : results) EXPECT_EQ(result, std::vector<uint64_t>(2, 0));
  }
  uint64_t alone[2] = {};
  launch(bench(), GetParam(), shape, node.comm(0), 1u, uint64_t{20}, uint64_t{1'000'000},
         &alone[0]);
  EXPECT_EQ(WaitResult::decode(alone[0]).status, WaitStatus::kTimedOut);
}

// Goal    ping-pong makes its round trips, from any base.
// Method  two launches after each other.
TEST(BenchKernels, PingPong) {
  EmulatedNode node({.ranks = 2});
  for (const uint64_t base : {0, 50}) {
    uint64_t results[2] = {~0ull, ~0ull};
    std::vector<std::thread> streams;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      streams.emplace_back([&, rank] {
        launch(bench(), "ping_pong", HostLaunch{1, 3, 0}, node.comm(rank), 1 - rank, 5u, base,
               uint64_t{50}, kLongNs, &results[rank]);
      });
    }
    for (std::thread& stream : streams) stream.join();
    EXPECT_EQ(results[0], 0u);
    EXPECT_EQ(results[1], 0u);
  }
}

}  // namespace
}  // namespace cco::kernels
