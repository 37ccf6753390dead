#include "client/src/handle_table.h"

#include <gtest/gtest.h>

#include <set>

namespace cco::client {
namespace {

std::string refusal(const HandleTable& table, HandleKind kind, uint64_t token) {
  const auto found = table.find(kind, token);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(found.status().message());
}

// Goal    a live handle of the right kind is found, and everything else is named for what it is.
// Method  ask one table for null, freed, wrong-kind, foreign and made-up tokens, real pointers
//         among them.
TEST(HandleTable, NamesWhatAWrongHandleIs) {
  HandleTable table(5);
  HandleTable other_library(6);
  const auto object = std::make_shared<int>(1);
  const uint64_t client = *table.add(HandleKind::kClient, object, 0);
  const uint64_t group = *table.add(HandleKind::kGroup, object, client);
  EXPECT_EQ(table.find(HandleKind::kGroup, group).value(), object);
  EXPECT_NE(refusal(table, HandleKind::kGroup, 0).find("is null"), std::string::npos);
  EXPECT_NE(refusal(table, HandleKind::kGroup, client).find("should be a group but is a client"),
            std::string::npos);
  const uint64_t foreign = *other_library.add(HandleKind::kGroup, object, 0);
  for (const uint64_t token :
       {foreign, reinterpret_cast<uint64_t>(object.get()), uint64_t{1}, ~uint64_t{0}, group + 8}) {
    EXPECT_NE(refusal(table, HandleKind::kGroup, token).find("not made by this library"),
              std::string::npos)
        << token;
  }
  EXPECT_EQ(table.remove(HandleKind::kGroup, group).size(), 1u);
  EXPECT_NE(refusal(table, HandleKind::kGroup, group).find("has been destroyed"),
            std::string::npos);
}

// Goal    a handle that is replaced says why it is void and takes what lies below it along; its
//         successor has its parent.
TEST(HandleTable, ReplacedHandlesSayWhy) {
  HandleTable table(0);
  const auto make = [] { return std::make_shared<int>(0); };
  const uint64_t client = *table.add(HandleKind::kClient, make(), 0);
  const uint64_t old = *table.add(HandleKind::kGroup, make(), client);
  const uint64_t window = *table.add(HandleKind::kWindow, make(), old);
  const auto next = make();
  const auto replaced = table.replace(HandleKind::kGroup, old, next, "it goes on elsewhere");
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(replaced->objects.size(), 2u);
  EXPECT_EQ(table.find(HandleKind::kGroup, replaced->token).value(), next);
  const absl::Status is_void = table.find(HandleKind::kGroup, old).status();
  EXPECT_EQ(is_void.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(is_void.message(), "it goes on elsewhere");
  EXPECT_FALSE(table.find(HandleKind::kWindow, window).ok());
  EXPECT_FALSE(table.add(HandleKind::kWindow, make(), old).ok());
  EXPECT_TRUE(table.remove(HandleKind::kGroup, old).empty());
  EXPECT_NE(refusal(table, HandleKind::kGroup, old).find("has been destroyed"), std::string::npos);
  EXPECT_EQ(table.remove(HandleKind::kClient, client).size(), 2u);
  EXPECT_FALSE(table.replace(HandleKind::kGroup, replaced->token, make(), "").ok());
}

// Goal    the end of a handle is the end of everything below it, once, children first.
// Method  a client with two groups and three windows: end one group, then the client, then both
//         again.
TEST(HandleTable, RemoveTakesTheSubtree) {
  HandleTable table(0);
  const auto make = [] { return std::make_shared<int>(0); };
  const uint64_t client = *table.add(HandleKind::kClient, make(), 0);
  const uint64_t first = *table.add(HandleKind::kGroup, make(), client);
  const uint64_t second = *table.add(HandleKind::kGroup, make(), client);
  const auto window_object = make();
  const uint64_t window = *table.add(HandleKind::kWindow, window_object, first);
  ASSERT_TRUE(table.add(HandleKind::kWindow, make(), first).ok());
  const uint64_t other = *table.add(HandleKind::kWindow, make(), second);

  EXPECT_TRUE(table.remove(HandleKind::kWindow, first).empty()) << "a group is no window";
  auto removed = table.remove(HandleKind::kGroup, first);
  EXPECT_EQ(removed.size(), 3u);
  removed.clear();
  EXPECT_EQ(window_object.use_count(), 1) << "the table lets go of what it removes";
  EXPECT_FALSE(table.find(HandleKind::kWindow, window).ok());
  EXPECT_TRUE(table.find(HandleKind::kWindow, other).ok());
  EXPECT_FALSE(table.add(HandleKind::kWindow, make(), first).ok()) << "a child of a dead group";
  EXPECT_EQ(table.remove(HandleKind::kClient, client).size(), 3u);
  EXPECT_TRUE(table.remove(HandleKind::kClient, client).empty());
  EXPECT_TRUE(table.remove(HandleKind::kGroup, second).empty());
}

// Goal    a token is never handed out twice.
// Method  make and end ten thousand handles, and look for a repetition.
TEST(HandleTable, TokensAreNotReused) {
  HandleTable table(123456789);
  std::set<uint64_t> seen;
  for (int i = 0; i < 10000; ++i) {
    const uint64_t token = *table.add(HandleKind::kWindow, std::make_shared<int>(i), 0);
    EXPECT_TRUE(seen.insert(token).second);
    table.remove(HandleKind::kWindow, token);
  }
}

}  // namespace
}  // namespace cco::client
