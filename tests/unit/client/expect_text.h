// What a status says.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "absl/status/status.h"

namespace cco {

/// It has this code, and its message holds all of `parts`.
inline void expect_text(const absl::Status& status, absl::StatusCode code,
                        std::initializer_list<std::string> parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos)
        << status << " lacks " << part;
  }
}

}  // namespace cco
