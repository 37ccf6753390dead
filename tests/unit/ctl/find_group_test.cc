#include <gtest/gtest.h>

#include "client/ctl/command.h"

namespace cco::ctl {
namespace {

v1::ListGroupsResponse some_groups() {
  v1::ListGroupsResponse groups;
  const struct {
    uint64_t id;
    const char* name;
    uint32_t uid;
  } kGroups[] = {
      {1, "train", 1000}, {2, "", 1000}, {3, "same", 1000}, {4, "same", 1001}, {5, "2", 0}};
  for (const auto& entry : kGroups) {
    v1::GroupInfo* group = groups.add_groups();
    group->set_group_id(entry.id);
    group->set_name(entry.name);
    group->set_uid(entry.uid);
  }
  return groups;
}

// Goal    ids and names both find a group; an id wins over a name that looks like one.
// Method  look each up.
TEST(FindGroup, TakesIdsAndNames) {
  EXPECT_EQ(find_group(some_groups(), "train")->group_id(), 1u);
  EXPECT_EQ(find_group(some_groups(), "3")->group_id(), 3u);
  EXPECT_EQ(find_group(some_groups(), "2")->group_id(), 2u);
}

// Goal    a name that several tenants use is not guessed at.
// Method  look it up; the message names the ids.
TEST(FindGroup, RefusesAmbiguousNames) {
  const absl::Status status = find_group(some_groups(), "same").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("3 (uid 1000) or 4 (uid 1001)"), std::string::npos) << status;
}

// Goal    a miss lists what there is.
// Method  look up an unknown and an empty name.
TEST(FindGroup, ListsGroupsOnAMiss) {
  for (const char* name : {"missing", ""}) {
    const absl::Status status = find_group(some_groups(), name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_NE(status.message().find("there are: 1 train, 2, 3 same"), std::string::npos) << status;
  }
  EXPECT_NE(find_group({}, "x").status().message().find("there are none"), std::string::npos);
}

}  // namespace
}  // namespace cco::ctl
