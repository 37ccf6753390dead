#include <gtest/gtest.h>

#include <string_view>

#include "tests/contract/peer_process.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == cco::kPeerArgument) return cco::run_peer();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
