// main() of tests that start actors.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/unit/daemon/vault_actor.h"

int main(int argc, char** argv) {
  if (cco::test::run_as_vault_actor(argc, argv)) return 0;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
