#include "client/ctl/statistics.h"

#include <gtest/gtest.h>

namespace cco {
namespace {

// Goal    percentiles are right, whatever the order of the samples.
// Method  0..100 backwards: the p-th percentile is p.
TEST(Statistics, PercentilesOfARamp) {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  const Spread spread = spread_of(samples);
  EXPECT_EQ(spread.samples, 101u);
  EXPECT_DOUBLE_EQ(spread.median, 50);
  EXPECT_DOUBLE_EQ(spread.p10, 10);
  EXPECT_DOUBLE_EQ(spread.p90, 90);
  EXPECT_DOUBLE_EQ(spread.p99, 99);
}

// Goal    few samples still have a median and a spread between them.
// Method  none, one and two samples.
TEST(Statistics, FewSamples) {
  EXPECT_EQ(spread_of({}).samples, 0u);
  EXPECT_DOUBLE_EQ(spread_of({4}).p99, 4);
  EXPECT_DOUBLE_EQ(spread_of({4, 2}).median, 3);
  EXPECT_DOUBLE_EQ(spread_of({4, 2}).p10, 2.2);
}

}  // namespace
}  // namespace cco
