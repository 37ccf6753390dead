#include "client/src/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace cco {
namespace {

// Goal    one thread is inside at a time, and every waiter gets in.
TEST(Gate, OneAtATime) {
  Gate gate;
  std::atomic<int> inside{0};
  int count = 0;  // Unguarded on purpose: a race detector checks the gate.
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) {
        const Gate::Pass pass = gate.enter(Deadline(std::chrono::seconds(60)));
        ASSERT_TRUE(pass);
        ASSERT_EQ(inside.fetch_add(1), 0);
        ++count;
        inside.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

// Goal    waiting ends with the deadline, and trying does not wait.
TEST(Gate, WaitingEnds) {
  Gate gate;
  {
    const Gate::Pass pass = gate.try_enter();
    EXPECT_TRUE(pass);
    EXPECT_FALSE(gate.try_enter());
    EXPECT_FALSE(gate.enter(Deadline(std::chrono::milliseconds(10))));
  }
  EXPECT_TRUE(gate.try_enter());
}

}  // namespace
}  // namespace cco
