#include <gtest/gtest.h>

#include <vector>

#include "cco/device.hpp"

extern "C" void cco_test_launch(uint32_t threads, void (*kernel)(void**), void** arguments);

namespace cco::device {
namespace {

// Goal    a kernel in the program knows its place and its block when a shared library launches it.
// Method  the library exports cco_* alone, as libcco_client.so does; threads mark cells and meet.
TEST(LaunchLibrary, KernelsOfTheProgramFindTheirBlock) {
  std::vector<uint32_t> cells(40);
  void* arguments[] = {&cells};
  cco_test_launch(
      40,
      [](void** a) {
        auto& marks = *static_cast<std::vector<uint32_t>*>(a[0]);
        const bool any = block_any(thread_index() == 39);
        marks[thread_index()] = any && dynamic_shared_memory() != nullptr ? thread_count() : 0;
      },
      arguments);
  EXPECT_EQ(cells, std::vector<uint32_t>(40, 40));
}

}  // namespace
}  // namespace cco::device
