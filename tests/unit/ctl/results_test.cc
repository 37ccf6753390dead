#include "client/bench/results.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace cco::bench {
namespace {

const Subject kPut{"put", "cco", 1 << 20, 2, 1, 1};

// Goal    bandwidth and ratio come from medians, the ratio from pairs of samples.
// Method  known samples: 1 MiB in 100 us, a baseline twice as slow in each pair.
TEST(Results, ComputesBandwidthAndRatio) {
  Results results;
  const double ratio = results.add(kPut, {90, 100, 110}, "memcpy", {180, 200, 220});
  EXPECT_DOUBLE_EQ(ratio, 2);
  const auto& measurement = results.report().measurements(0);
  EXPECT_DOUBLE_EQ(measurement.time().median(), 100);
  EXPECT_DOUBLE_EQ(measurement.gb_per_s(), 1048576.0 / 100 / 1000);
  EXPECT_DOUBLE_EQ(measurement.speed_ratio().p10(), 2);
  EXPECT_DOUBLE_EQ(measurement.baseline_time().p90(), 216);
}

// Goal    the table shows size, time, bandwidth, baseline and ratio; other benchmarks stay out of
//         it.
// Method  look for the rendered cells.
TEST(Results, PrintsATable) {
  Results results;
  results.add(kPut, {100}, "memcpy", {50});
  results.add({"barrier", "cco", 0, 2, 1, 1}, {1.5}, "", {});
  const std::string table = results.table("put");
  for (const char* cell : {"VARIANT", "1 MiB", "100", "10.49", "memcpy", "50.0", "0.500"}) {
    EXPECT_NE(table.find(cell), std::string::npos) << cell << " is missing in\n" << table;
  }
  EXPECT_EQ(table.find("1.500"), std::string::npos) << table;
  EXPECT_EQ(results.table("get"), "");
}

// Goal    promises are met on their side of the target, borders included; notes promise nothing,
//         nor does what cannot be had here.
// Method  both bounds on both sides.
TEST(Results, JudgesPromises) {
  Results results;
  results.promise("fast", 0.98, Bound::kAtLeast, 0.98, "");
  results.promise("small", 256, Bound::kAtMost, 256, "MiB");
  results.note("known", 7, "us");
  results.not_applicable("elsewhere", "no mover");
  EXPECT_TRUE(results.all_met());
  EXPECT_NE(results.figures().find("not applicable: no mover"), std::string::npos);
  EXPECT_NE(results.figures().find("at most 256"), std::string::npos) << results.figures();
  results.promise("slow", 0.97, Bound::kAtLeast, 0.98, "");
  EXPECT_FALSE(results.all_met());
  EXPECT_NE(results.figures().find("not met"), std::string::npos) << results.figures();
}

// Goal    the JSON file reads back as the report.
// Method  write it to a temporary file and parse that.
TEST(Results, WritesJson) {
  Results results;
  results.report().mutable_origin()->set_commit("abc");
  results.add(kPut, {100, 101}, "memcpy", {50, 51});
  char path[] = "/tmp/cco-results-XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  ::close(fd);
  ASSERT_TRUE(results.write_json(path).ok());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  ::unlink(path);
  report::Bench read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text.str(), &read).ok()) << text.str();
  EXPECT_EQ(read.SerializeAsString(), results.report().SerializeAsString());
}

// Goal    a file that cannot be written is an error that names it.
// Method  a folder that is not there.
TEST(Results, NamesTheFileItCannotWrite) {
  const absl::Status status = Results().write_json("/nonexistent/file.json");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/nonexistent/file.json"), std::string::npos) << status;
}

}  // namespace
}  // namespace cco::bench
