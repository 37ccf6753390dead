#include "device/kernels/kernels.h"
#include "tests/device/gda_node.h"
#include "tests/device/module_launch.h"

namespace cco::kernels {
const KernelModule& gda_kernels();
}

namespace cco::testing {
namespace {

class Kernels : public GdaTest {};

// Goal    the kernels that other compilers build for GPUs do what they say.
// Method  each on threads: one rank moves to its partner, then all meet. Every result is checked.
TEST_P(Kernels, MoveAndMeet) {
  EmulatedTransports::Options plan = options();
  plan.gda_plan.rail_barrier_count = 2;
  plan.gda_plan.world_barrier_count = 1;
  constexpr uint32_t kResults = 15;
  for (const char* const kernel : {"gda_by_threads", "gda_by_warps", "gda_by_blocks"}) {
    EmulatedTransports all(plan);
    // It waits for signals that it sends: to itself.
    std::vector<uint64_t> results(kResults + 2, 1);
    const uint32_t threads = std::string(kernel).find("threads") != std::string::npos ? 1 : 3;
    launch(kernels::gda_kernels(), kernel, {1, threads, 0}, all.comm(0), all.node().window(0),
           uint32_t{0}, uint64_t{512}, results.data());
    for (uint32_t i = 0; i < kResults; ++i) EXPECT_EQ(results[i], 0u) << kernel << " " << i;
    EXPECT_EQ(results[kResults], 4u);
    EXPECT_EQ(results[kResults + 1], 2u);
  }
  EmulatedTransports all(plan);
  std::vector<std::thread> launches;
  std::vector<uint64_t> results(3 * ranks(), 1);
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    launches.emplace_back([&, rank] {
      launch(kernels::gda_kernels(), "gda_meet_by_blocks", {1, 3, 0}, all.comm(rank),
             results.data() + 3 * rank);
    });
  }
  for (std::thread& each : launches) each.join();
  EXPECT_EQ(std::count(results.begin(), results.end(), 0u), 3 * ranks());
}

INSTANTIATE_TEST_SUITE_P(, Kernels,
                         ::testing::Combine(::testing::Values("proxy", "mlx5", "bnxt", "ionic"),
                                            ::testing::Values(2u)),
                         name_of);

}  // namespace
}  // namespace cco::testing
