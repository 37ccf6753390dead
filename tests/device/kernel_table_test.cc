#include <gtest/gtest.h>

#include <string>

#include "cco/device.hpp"

namespace {

struct Pair {
  uint64_t first;
  uint32_t second;
};
uint64_t seen = 0;

}  // namespace

CCO_KERNEL void takes_all(Pair pair, uint8_t small, const uint64_t* pointer) {
  seen = pair.first + pair.second + small + *pointer;
}
CCO_KERNEL void takes_nothing() { seen = 77; }

CCO_KERNEL_TABLE(test_module, takes_all, takes_nothing);

namespace {

// Goal    the table names the kernels as written, knows the size of each parameter, and its
//         functions hand every argument to the kernel.
// Method  parameters of several sizes, and none.
TEST(KernelTable, DescribesAndCalls) {
  ASSERT_EQ(cco_kernel_table_test_module.count, 2u);
  const cco::device::HostKernelEntry& all = cco_kernel_table_test_module.entries[0];
  const cco::device::HostKernelEntry& nothing = cco_kernel_table_test_module.entries[1];
  EXPECT_EQ(all.name, "takes_all");
  EXPECT_EQ(nothing.name, "takes_nothing");
  ASSERT_EQ(all.argument_count, 3u);
  EXPECT_EQ(all.argument_bytes[0], 16u);
  EXPECT_EQ(all.argument_bytes[1], 1u);
  EXPECT_EQ(all.argument_bytes[2], 8u);
  EXPECT_EQ(nothing.argument_count, 0u);

  Pair pair{1000, 200};
  uint8_t small = 30;
  const uint64_t pointee = 4;
  const uint64_t* pointer = &pointee;
  void* arguments[] = {&pair, &small, &pointer};
  all.function(arguments);
  EXPECT_EQ(seen, 1234u);
  nothing.function(nullptr);
  EXPECT_EQ(seen, 77u);
}

}  // namespace
