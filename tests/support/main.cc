// main() of tests that start ranks.
#include <gtest/gtest.h>

#include "tests/support/ranks.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int exit_code = 0;
  if (cco::test::run_as_rank(argc, argv, &exit_code)) return exit_code;
  return RUN_ALL_TESTS();
}
