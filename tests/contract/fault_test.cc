#include "client/base/status_macros.h"
#include "tests/contract/contract_test.h"
#include "tests/support/faulty_gpu_driver.h"

namespace cco {
namespace {

/// What a rank does in its life, in one process: three slots of a flat map, one of them imported,
/// bytes through it.
absl::Status live(GpuDriver& gpu) {
  const uint64_t size = gpu.devices()[0].granularity_bytes;
  CCO_ASSIGN_OR_RETURN(auto context, gpu.open(0));
  CCO_ASSIGN_OR_RETURN(VaRange range, gpu.reserve(0, 3 * kSlotBytes, kSlotBytes));
  std::vector<GpuMapping> mappings;
  for (uint64_t slot = 0; slot < 3; ++slot) {
    CCO_ASSIGN_OR_RETURN(
        GpuMemory memory,
        gpu.allocate(0, size, slot == 0 ? MemoryKind::kControl : MemoryKind::kData));
    CCO_ASSIGN_OR_RETURN(UniqueFd fd, gpu.export_fd(memory));
    CCO_ASSIGN_OR_RETURN(GpuMemory imported, gpu.import_fd(0, fd, size));
    CCO_ASSIGN_OR_RETURN(GpuMapping mapping,
                         gpu.map(range.address() + slot * kSlotBytes, imported));
    mappings.push_back(std::move(mapping));
    CCO_RETURN_IF_ERROR(gpu.set_access(mappings.back(), 0, Access::kReadWrite));
  }
  CCO_RETURN_IF_ERROR(context->fill_zero(mappings[1].address(), size));
  uint64_t word = 0;
  CCO_RETURN_IF_ERROR(context->copy_to_device(mappings[1].address(), "8 bytes", 8));
  return context->copy_to_host(&word, mappings[1].address(), sizeof word);
}

class Fault : public ContractTest {};

// Goal    no failure on the way leaves memory, fds or address space behind.
// Method  fail driver call 0, then 1, … until a life gets through; weigh after each.
TEST_P(Fault, NoFailedStepLeavesAnythingBehind) {
  absl::Status status = absl::UnknownError("not run");
  for (uint32_t step = 0; !status.ok(); ++step) {
    ASSERT_LT(step, 64u) << "the sequence never completes";
    FaultyGpuDriver faulty(gpu(), step);
    status = live(faulty);
    if (!status.ok()) {
      EXPECT_TRUE(says(status, absl::StatusCode::kUnavailable, {"injected"}));
    }
    expect_nothing_left("failing driver call " + std::to_string(step));
    if (HasFailure()) return;
  }
}

CCO_INSTANTIATE_CONTRACT(Fault);

/// Functions of the runtime whose failure must leave nothing behind.
constexpr const char* kFallible[] = {"hipInit",
                                     "hipRuntimeGetVersion",
                                     "hipGetDeviceCount",
                                     "hipDeviceGetAttribute",
                                     "hipDeviceGetUuid",
                                     "hipDeviceGetPCIBusId",
                                     "hipDeviceGetName",
                                     "hipDeviceTotalMem",
                                     "hipGetDevicePropertiesR0600",
                                     "hipMemGetAllocationGranularity",
                                     "hipMemCreate",
                                     "hipMemExportToShareableHandle",
                                     "hipMemImportFromShareableHandle",
                                     "hipMemAddressReserve",
                                     "hipMemMap",
                                     "hipMemSetAccess",
                                     "hipStreamCreateWithPriority",
                                     "hipEventCreateWithFlags",
                                     "hipStreamSynchronize",
                                     "hipMemcpyHtoDAsync",
                                     "hipMemcpyDtoHAsync",
                                     "hipMemsetD8Async"};
/// Functions that give something back: what they refuse stays, but nothing else does, and nothing
/// breaks.
constexpr const char* kReturning[] = {"hipMemRelease",    "hipMemUnmap",     "hipMemAddressFree",
                                      "hipStreamDestroy", "hipEventDestroy", "hipGetDevice",
                                      "hipSetDevice"};

class HipFault : public testing::TestWithParam<DriverCase> {
 protected:
  absl::Status run() {
    CCO_ASSIGN_OR_RETURN(auto driver, open_driver({.kind = DriverKind::kHip}));
    return live(*driver);
  }
  /// How often a life calls `function`; also the warm-up.
  uint32_t calls_in_a_life(const std::string& function) {
    EXPECT_TRUE(run().ok());
    const uint32_t before = fake_hip_calls(function);
    EXPECT_TRUE(run().ok());
    return fake_hip_calls(function) - before;
  }
  void SetUp() override {
    CCO_SKIP_WITHOUT(GetParam());
    environment_.emplace(GetParam());
  }

  std::optional<CaseEnvironment> environment_;
};

// Goal    whichever call of the runtime fails, at whichever time, everything is as before, and the
//         error says what failed.
// Method  for every function and every n: fail call n of a whole life, driver and all; weigh.
TEST_P(HipFault, NoFailedRuntimeCallLeavesAnythingBehind) {
  for (const std::string function : kFallible) {
    const uint32_t calls = calls_in_a_life(function);
    ASSERT_GT(calls, 0u) << function << " is never called";
    const int fds_before = count_open_fds();
    const FakeHipLedger before = fake_hip_ledger();
    for (uint32_t n = 1; n <= calls; ++n) {
      const std::string fault = function + ":" + std::to_string(n);
      const ScopedVariable fail("FAKE_HIP_FAIL", fault);
      const absl::Status status = run();
      EXPECT_EQ(fake_hip_ledger(), before) << fault << ": " << status;
      EXPECT_EQ(count_open_fds(), fds_before) << fault << ": " << status;
      if (HasFailure()) return;
    }
  }
}

// Goal    a runtime that refuses to take something back costs that thing, and no more.
// Method  as above, with the functions that return things; at most one of each kind may stay.
TEST_P(HipFault, WhatTheRuntimeWillNotTakeBackIsAllThatStays) {
  for (const std::string function : kReturning) {
    const uint32_t calls = calls_in_a_life(function);
    for (uint32_t n = 1; n <= calls; ++n) {
      const FakeHipLedger before = fake_hip_ledger();
      const int fds_before = count_open_fds();
      const std::string fault = function + ":" + std::to_string(n);
      {
        const ScopedVariable fail("FAKE_HIP_FAIL", fault);
        run().IgnoreError();
      }
      const FakeHipLedger after = fake_hip_ledger();
      EXPECT_LE(after.handles, before.handles + 1) << fault;
      EXPECT_LE(after.ranges, before.ranges + 1) << fault;
      EXPECT_LE(after.mappings, before.mappings + 1) << fault;
      EXPECT_LE(count_open_fds(), fds_before + 1) << fault;
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, HipFault, testing::Values(kHip64Case, kHip72Case),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cco
