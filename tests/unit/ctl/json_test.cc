#include "client/ctl/json.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "cco/memd/v1/memd.pb.h"

namespace cco {
namespace {

// Goal    JSON has the names of the .proto file, default values included, and reads back the same.
// Method  write a node, look for names, parse it again.
TEST(Json, KeepsNamesAndValues) {
  memd::v1::GetNodeResponse node;
  node.set_version("0.1.0 \"quoted\"\n");
  node.set_incarnation(UINT64_MAX);
  node.add_gpus()->set_uuid("HOST-0");
  const absl::StatusOr<std::string> text = to_json(node);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("\"slab_bytes\": \"0\""), std::string::npos) << *text;
  EXPECT_NE(text->find("\"incarnation\": \"18446744073709551615\""), std::string::npos) << *text;
  EXPECT_EQ(text->back(), '\n');
  memd::v1::GetNodeResponse again;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(*text, &again).ok());
  EXPECT_EQ(again.SerializeAsString(), node.SerializeAsString());
}

}  // namespace
}  // namespace cco
