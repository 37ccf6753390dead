#include "client/ctl/json.h"

#include <google/protobuf/util/json_util.h>

namespace cco {

absl::StatusOr<std::string> to_json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) {
    return absl::InternalError("writing " + message.GetTypeName() +
                               " as JSON: " + status.ToString());
  }
  return text;
}

}  // namespace cco
