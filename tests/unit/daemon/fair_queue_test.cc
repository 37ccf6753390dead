// Whose turn it is.
#include "daemon/service/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::ElementsAre;

class FairQueueTest : public ::testing::Test {
 protected:
  void add(FairQueue::Source source, int count = 1) {
    for (int i = 0; i < count; ++i) {
      queue.add(source, [this, source] { done.push_back(source); });
    }
  }
  ManualExecutor executor;
  FairQueue queue{executor};
  std::vector<FairQueue::Source> done;
};

// Goal    each source has its turn, whoever came first and with how much, and what one source asks
//         for is done in its order.
TEST_F(FairQueueTest, SourcesTakeTurns) {
  add(7, 4);
  add(3, 2);
  add(5);
  EXPECT_EQ(queue.waiting(7), 4u);
  executor.run_posted();
  EXPECT_THAT(done, ElementsAre(3, 5, 7, 3, 7, 7, 7));
  EXPECT_EQ(queue.waiting(7), 0u);
  std::string order;
  for (const char* text : {"a", "b", "c"}) queue.add(1, [&, text] { order += text; });
  executor.run_posted();
  EXPECT_EQ(order, "abc");
}

// Goal    a flood leaves the executor to others after a while, and who comes meanwhile is next.
TEST_F(FairQueueTest, AFloodIsCutUp) {
  add(1, 1000);
  size_t before_timer = 0, before_other = 0;
  executor.post([&] {  // Behind the first part.
    before_timer = done.size();
    add(2);
    queue.add(2, [&] { before_other = done.size(); });
  });
  executor.run_posted();
  EXPECT_EQ(before_timer, FairQueue::kAtOnce);
  EXPECT_LE(before_other, FairQueue::kAtOnce + 4);
  EXPECT_EQ(done.size(), 1001u);
}

// Goal    what is added while something runs is done, too.
TEST_F(FairQueueTest, GrowsAsItRuns) {
  queue.add(1, [&] {
    add(1);
    add(2);
  });
  executor.run_posted();
  EXPECT_THAT(done, ElementsAre(2, 1));
}

}  // namespace
}  // namespace cco::memd
