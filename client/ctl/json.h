// Protobuf's JSON mapping, with the names of the .proto files. 64-bit integers are strings in it.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"

namespace cco {

/// Indented, fields with default values included, ends with a newline.
absl::StatusOr<std::string> to_json(const google::protobuf::Message& message);

}  // namespace cco
