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
  /// Of one owner.
  void add(uint64_t connection, int count = 1) { add({1, connection}, count); }
  void add(const FairQueue::Source& source, int count) {
    for (int i = 0; i < count; ++i) {
      queue.add(source, [this, source] { done.push_back(10 * source.owner + source.connection); });
    }
  }
  ManualExecutor executor;
  FairQueue queue{executor};
  std::vector<uint64_t> done;  // 10 * owner + connection.
};

// Goal    each source has its turn, whoever came first and with how much, and what one source asks
//         for is done in its order.
TEST_F(FairQueueTest, SourcesTakeTurns) {
  add(7, 4);
  add(3, 2);
  add(5);
  EXPECT_EQ(queue.waiting({1, 7}), 4u);
  executor.run_posted();
  EXPECT_THAT(done, ElementsAre(13, 15, 17, 13, 17, 17, 17));
  EXPECT_EQ(queue.waiting({1, 7}), 0u);
  std::string order;
  for (const char* text : {"a", "b", "c"}) queue.add({1, 1}, [&, text] { order += text; });
  executor.run_posted();
  EXPECT_EQ(order, "abc");
}

// Goal    a user with many connections holds up another no more than one with one.
TEST_F(FairQueueTest, OwnersTakeTurns) {
  for (uint64_t connection = 1; connection <= 4; ++connection) add({1, connection}, 2);
  add({2, 9}, 2);
  executor.run_posted();
  EXPECT_THAT(done, ElementsAre(11, 29, 12, 29, 13, 14, 11, 12, 13, 14));
}

// Goal    a flood leaves the executor to others after a while, and who comes meanwhile is next.
TEST_F(FairQueueTest, AFloodIsCutUp) {
  add(1, 1000);
  size_t before_timer = 0, before_other = 0;
  executor.post([&] {  // Behind the first part.
    before_timer = done.size();
    add(2);
    queue.add({1, 2}, [&] { before_other = done.size(); });
  });
  executor.run_posted();
  EXPECT_EQ(before_timer, FairQueue::kAtOnce);
  EXPECT_LE(before_other, FairQueue::kAtOnce + 4);
  EXPECT_EQ(done.size(), 1001u);
}

// Goal    what is added while something runs is done, too.
TEST_F(FairQueueTest, GrowsAsItRuns) {
  queue.add({1, 1}, [&] {
    add(1);
    add(2);
  });
  executor.run_posted();
  EXPECT_THAT(done, ElementsAre(12, 11));
}

}  // namespace
}  // namespace cco::memd
