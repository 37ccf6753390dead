#include "device/transport/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace cco {
namespace {

using std::chrono::steady_clock;

// Goal    an engine notices work whether it looks eagerly or naps, and ends in either state; its
//         step does not run afterwards.
// Method  every pace, and one that naps at once; pieces of work one after the other, with the looks
//         of several naps between them.
TEST(EngineThread, ServesAndEndsAtEveryPace) {
  for (const EnginePace& pace :
       {kHostPace, kGpuPace, EnginePace{std::chrono::microseconds(0), 1}}) {
    std::atomic<uint32_t> posted{0}, done{0}, looks{0};
    {
      const EngineThread engine(
          [&] {
            ++looks;
            if (done == posted) return false;
            ++done;
            return true;
          },
          pace);
      const auto give_up = steady_clock::now() + std::chrono::seconds(30);
      for (uint32_t piece = 1; piece <= 3; ++piece) {
        posted = piece;
        const uint32_t before = looks;
        while (done != piece || looks < before + 10) {
          ASSERT_LT(steady_clock::now(), give_up) << piece;
          std::this_thread::yield();
        }
      }
    }
    const uint32_t at_end = looks;
    posted = 9;
    std::this_thread::yield();
    EXPECT_EQ(looks, at_end);
    EXPECT_EQ(done, 3u);
  }
}

}  // namespace
}  // namespace cco
