#include <gtest/gtest.h>
#include <unistd.h>

#include "device/runtime/hip_api.h"
#include "device/runtime/vmm_dialect.h"
#include "tests/contract/contract_test.h"

namespace cco {
namespace {

constexpr size_t kBytes = 2u << 20;

class FakeHip : public testing::Test {
 protected:
  FakeHip() : environment_(kHip72Case) {}
  void SetUp() override {
    CCO_SKIP_WITHOUT(kHip72Case);
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    const auto library = DynamicLibrary::open("CCO_HIP_LIBRARY", {});
    ASSERT_OK(library);
    ASSERT_OK(resolve(*library, VmmVendor::kHip, &hip_));
    ASSERT_EQ(hip_.create(&handle_, kBytes, &prop_, 0), vmm::kSuccess);
    ASSERT_EQ(hip_.reserve(&range_, 2 * kBytes, 0, 0, 0), vmm::kSuccess);
  }
  void TearDown() override {
    if (handle_ == 0) return;
    hip_.free_range(range_, 2 * kBytes);
    hip_.release(handle_);
  }

  vmm::Api hip_;
  vmm::AllocationProp prop_ = {.type = vmm::kAllocationPinned,
                               .requested_handle_types = vmm::kHandlePosixFd,
                               .location = {vmm::kLocationDevice, 0},
                               .win32_metadata = nullptr,
                               .compression_type = 0,
                               .gpu_direct_rdma_capable = 0,
                               .usage = 0,
                               .reserved = {}};
  const vmm::AccessDesc access_ = {{vmm::kLocationDevice, 0}, vmm::kAccessReadWrite};
  vmm::Handle handle_ = 0;
  vmm::Address range_ = 0;

 private:
  CaseEnvironment environment_;
};

// Goal    what a real runtime answers with an error, the fake does too.
// Method  one wrong argument at a time.
TEST_F(FakeHip, RefusesWrongArguments) {
  vmm::Handle other = 0;
  EXPECT_EQ(hip_.create(&other, kBytes + 1, &prop_, 0), vmm::kInvalidValue) << "granularity";
  EXPECT_EQ(hip_.create(&other, kBytes, &prop_, 1), vmm::kInvalidValue) << "flags";
  prop_.requested_handle_types = 2;
  EXPECT_EQ(hip_.create(&other, kBytes, &prop_, 0), vmm::kInvalidValue) << "handle type";
  prop_.requested_handle_types = vmm::kHandlePosixFd;
  prop_.location.id = 8;
  EXPECT_EQ(hip_.create(&other, kBytes, &prop_, 0), vmm::kInvalidValue) << "device";

  EXPECT_EQ(hip_.set_access(range_, kBytes, &access_, 1), vmm::kInvalidValue) << "before map";
  EXPECT_EQ(hip_.map(range_, kBytes, 4096, handle_, 0), vmm::kInvalidValue) << "offset";
  EXPECT_EQ(hip_.map(range_, kBytes / 2, 0, handle_, 0), vmm::kInvalidValue) << "part of a handle";
  EXPECT_EQ(hip_.map(range_ + 64, kBytes, 0, handle_, 0), vmm::kInvalidValue) << "alignment";
  ASSERT_EQ(hip_.map(range_, kBytes, 0, handle_, 0), vmm::kSuccess);
  const vmm::AccessDesc unknown = {{vmm::kLocationDevice, 8}, vmm::kAccessReadWrite};
  EXPECT_EQ(hip_.set_access(range_, kBytes, &unknown, 1), vmm::kInvalidValue) << "unknown device";
  EXPECT_NE(hip_.copy_to_device(range_, "x", 1, nullptr), vmm::kSuccess) << "before access";
  EXPECT_EQ(hip_.set_access(range_, kBytes, &access_, 1), vmm::kSuccess);
  EXPECT_EQ(hip_.copy_to_device(range_, "x", 1, nullptr), vmm::kSuccess);
  EXPECT_NE(hip_.copy_to_device(range_ + kBytes - 1, "xy", 2, nullptr), vmm::kSuccess)
      << "past the end";
  EXPECT_EQ(hip_.unmap(range_, kBytes), vmm::kSuccess);
}

// Goal    each version takes its own kind of import argument and no other, without crashing.
// Method  both kinds for a version on either side of 7.1.
TEST_F(FakeHip, VersionsDisagreeOnTheImportArgument) {
  int fd = -1;
  ASSERT_EQ(hip_.export_handle(&fd, handle_, vmm::kHandlePosixFd, 0), vmm::kSuccess);
  const UniqueFd owner(fd);
  void* const value = reinterpret_cast<void*>(static_cast<uintptr_t>(fd));
  vmm::Handle imported = 0;
  for (const bool is_new : {false, true}) {
    const ScopedVariable version("FAKE_HIP_VERSION", is_new ? "70100000" : "70099999");
    EXPECT_EQ(hip_.import_handle(&imported, is_new ? &fd : value, vmm::kHandlePosixFd),
              vmm::kInvalidValue);
    ASSERT_EQ(hip_.import_handle(&imported, is_new ? value : &fd, vmm::kHandlePosixFd),
              vmm::kSuccess);
    EXPECT_EQ(hip_.release(imported), vmm::kSuccess);
  }
}

// Goal    what would corrupt a real runtime ends the process, with a line that names it.
// Method  each such misuse, in a process of its own.
TEST_F(FakeHip, MisuseEndsTheProcess) {
  ASSERT_EQ(hip_.map(range_, kBytes, 0, handle_, 0), vmm::kSuccess);
  EXPECT_DEATH(hip_.map(range_, kBytes, 0, handle_, 0), "hipMemMap: mapped twice");
  EXPECT_DEATH(hip_.map(range_ + 2 * kBytes, kBytes, 0, handle_, 0),
               "hipMemMap: not inside a reserved range");
  EXPECT_DEATH(hip_.unmap(range_, kBytes / 2), "hipMemUnmap: not exactly a mapping");
  EXPECT_DEATH(hip_.unmap(range_ + kBytes, kBytes), "hipMemUnmap: not exactly a mapping");
  EXPECT_DEATH(hip_.free_range(range_, 2 * kBytes), "hipMemAddressFree: memory is still mapped");
  EXPECT_DEATH(hip_.free_range(range_, kBytes), "hipMemAddressFree: not exactly a reserved range");
  EXPECT_DEATH(hip_.map(range_ + kBytes, kBytes, 0, handle_ + 1, 0), "hipMemMap: no such handle");
  EXPECT_DEATH((hip_.release(handle_), hip_.release(handle_)),
               "hipMemRelease: no such handle, or released");
  EXPECT_EQ(hip_.unmap(range_, kBytes), vmm::kSuccess);
}

// Goal    old runtimes' rules about fds are kept: one import needs its fd until set_access, one
//         export its first fd.
// Method  close too early, as 6.4 and as 7.2.
TEST_F(FakeHip, OldVersionsNeedTheFdsToStayOpen) {
  for (const bool is_new : {false, true}) {
    const ScopedVariable version("FAKE_HIP_VERSION", is_new ? "70253211" : "60443484");
    vmm::Handle handle = 0;
    ASSERT_EQ(hip_.create(&handle, kBytes, &prop_, 0), vmm::kSuccess);
    int fd = -1;
    ASSERT_EQ(hip_.export_handle(&fd, handle, vmm::kHandlePosixFd, 0), vmm::kSuccess);
    ::close(fd);
    const vmm::Result again = hip_.export_handle(&fd, handle, vmm::kHandlePosixFd, 0);
    EXPECT_EQ(again == vmm::kSuccess, is_new);
    if (again == vmm::kSuccess) ::close(fd);
    EXPECT_EQ(hip_.release(handle), vmm::kSuccess);
  }
}

// Goal    a fault asked for comes at its call, once, with its error.
// Method  the second of three.
TEST_F(FakeHip, InjectsFaults) {
  const ScopedVariable fail("FAKE_HIP_FAIL", "hipInit:2:2");
  EXPECT_EQ(hip_.initialise(0), vmm::kSuccess);
  EXPECT_EQ(hip_.initialise(0), vmm::kOutOfMemory);
  EXPECT_EQ(hip_.initialise(0), vmm::kSuccess);
}

}  // namespace
}  // namespace cco
