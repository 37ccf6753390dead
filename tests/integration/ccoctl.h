// Runs ccoctl as a person would. Tests that include this define CCOCTL, the program.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "client/base/unique.h"
#include "tests/support/patience.h"
#include "tests/support/process.h"

namespace cco::test {

/// What it prints; it must succeed.
inline std::string ccoctl(const std::string& socket_path, std::vector<std::string> arguments) {
  const UniqueFd out(::memfd_create("out", MFD_CLOEXEC));
  Process::Options options;
  options.arguments = {CCOCTL, "--socket", socket_path};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.fds = {{out.get(), 1}};
  Process process(options);
  const std::optional<int> status = process.wait(patience());
  EXPECT_TRUE(status.has_value() && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
  std::string text(static_cast<size_t>(::lseek(out.get(), 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(out.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

}  // namespace cco::test
