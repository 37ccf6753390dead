// What calls of MORI's interface came to.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "mori/cco/cco.hpp"

namespace cco::test {

/// The call succeeded; else its reason.
#define CCO_EXPECT_OK(call) EXPECT_EQ(call, 0) << mori::cco::ccoGetLastErrorText()
#define CCO_ASSERT_OK(call) ASSERT_EQ(call, 0) << mori::cco::ccoGetLastErrorText()

/// The call failed, and the reason holds `word`.
inline ::testing::AssertionResult refused(int result, const std::string& word) {
  const std::string text = mori::cco::ccoGetLastErrorText();
  if (result != -1) return ::testing::AssertionFailure() << result << " instead of -1";
  if (text.find(word) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no \"" << word << "\" in: " << text;
}

}  // namespace cco::test
