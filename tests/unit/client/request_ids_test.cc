#include "client/src/request_ids.h"

#include <gtest/gtest.h>

#include <set>

namespace cco::client {
namespace {

// Goal    an attempt repeats an id exactly if the last one at the same call was left without an
//         answer.
TEST(RequestIds, RepeatedOnlyAfterNoAnswer) {
  RequestIds ids;
  const absl::Status unknown = absl::DeadlineExceededError("not answered");
  const std::string first = ids.begin("barrier 0");
  EXPECT_EQ(first.size(), 16u);
  ids.end("barrier 0", first, unknown);
  EXPECT_NE(ids.begin("barrier 1"), first);
  EXPECT_EQ(ids.begin("barrier 0"), first);
  EXPECT_NE(ids.begin("barrier 0"), first) << "two attempts at once are two calls";
  ids.end("barrier 0", first, with_error_rank(unknown, 3));
  EXPECT_NE(ids.begin("barrier 0"), first) << "the daemon would only repeat its refusal";
  ids.end("barrier 2", first, absl::OkStatus());
  EXPECT_NE(ids.begin("barrier 2"), first);
}

// Goal    what is remembered has a limit: the oldest is forgotten.
TEST(RequestIds, Bounded) {
  RequestIds ids;
  for (int i = 0; i < 65; ++i)
    ids.end(std::to_string(i), "id" + std::to_string(i), absl::UnavailableError("gone"));
  EXPECT_NE(ids.begin("0"), "id0");
  EXPECT_EQ(ids.begin("1"), "id1");
  EXPECT_EQ(ids.begin("64"), "id64");
}

}  // namespace
}  // namespace cco::client
