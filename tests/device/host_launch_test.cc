#include "cco/device/host_launch.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <system_error>

#include "cco/device.hpp"

namespace cco::device {
namespace {

std::atomic<uint32_t> entered;

// Goal    each thread of a launch sees its own indices, and blocks have shared memory of their own.
// Method  every thread marks its cell; the block's leader writes into shared memory, others read
//         it.
TEST(HostLaunch, GivesEveryThreadItsPlace) {
  static uint32_t cells[3][70];
  std::memset(cells, 0, sizeof cells);
  launch_on_host(
      {3, 70, 100},
      [](void**) {
        auto* const shared = static_cast<uint32_t*>(dynamic_shared_memory());
        if (thread_index() == 0) shared[24] = block_index() + 1;
        block_sync();
        cells[block_index()][thread_index()] = shared[24] * 1000 + thread_count() + block_count();
      },
      nullptr);
  for (uint32_t block = 0; block < 3; ++block) {
    for (uint32_t thread = 0; thread < 70; ++thread) {
      ASSERT_EQ(cells[block][thread], (block + 1) * 1000 + 73) << block << ' ' << thread;
    }
  }
}

// Goal    outside a launch, device functions take the caller for the only thread of the only block.
// Method  call them.
TEST(HostLaunch, PlainThreadIsABlockOfOne) {
  EXPECT_EQ(thread_index(), 0u);
  EXPECT_EQ(BlockCoop{}.size(), 1u);
  EXPECT_EQ(WarpCoop{}.size(), 1u);
  EXPECT_TRUE(BlockCoop{}.any(true));
  EXPECT_FALSE(WarpCoop{}.any(false));
}

// Goal    threads that have left the kernel do not hold up the others' barriers.
// Method  all but one thread return at once; the last goes through many barriers.
TEST(HostLaunch, ThreadsThatReturnAreNotWaitedFor) {
  entered = 0;
  launch_on_host(
      {1, 33, 0},
      [](void**) {
        if (thread_index() != 7) return;
        for (int i = 0; i < 10; ++i) block_sync();
        for (int i = 0; i < 10; ++i) warp_sync();
        ++entered;
      },
      nullptr);
  EXPECT_EQ(entered, 1u);
}

// Goal    a launch that cannot start all its threads runs none of the kernel and says what to do.
// Method  in a child process, allow less address space than the threads' stacks need.
TEST(HostLaunchDeathTest, TooManyThreadsIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space that this test takes away";
#endif
  const auto launch = [] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = rlim_t{1} << 30;
    setrlimit(RLIMIT_AS, &limit);
    entered = 0;
    try {
      launch_on_host(
          {4, 1024, 0}, [](void**) { ++entered; }, nullptr);
    } catch (const std::system_error& error) {
      std::fprintf(stderr, "entered=%u %s", entered.load(), error.what());
    }
    std::exit(3);
  };
  EXPECT_EXIT(launch(), ::testing::ExitedWithCode(3),
              "entered=0 starting host thread [0-9]+ of 4096 \\(4 blocks of 1024\\): launch fewer");
}

}  // namespace
}  // namespace cco::device
