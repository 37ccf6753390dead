#include "device/runtime/hip_driver.h"

#include <thread>
#include <vector>

#include "client/base/status_macros.h"
#include "device/runtime/foreign_memory.h"
#include "tests/contract/contract_test.h"

namespace cco {
namespace {

using Code = absl::StatusCode;

class HipDriver : public testing::Test {
 protected:
  HipDriver() : environment_(kHip72Case) {}
  void SetUp() override { CCO_SKIP_WITHOUT(kHip72Case); }

  static absl::Status use(GpuDriver& driver, MemoryKind kind, int user = 0) {
    CCO_ASSIGN_OR_RETURN(GpuMemory memory,
                         driver.allocate(0, driver.devices()[0].granularity_bytes, kind));
    CCO_ASSIGN_OR_RETURN(UniqueFd fd, driver.export_fd(memory));
    CCO_ASSIGN_OR_RETURN(GpuMemory imported, driver.import_fd(user, fd, memory.size_bytes()));
    return map_area(driver, user, imported).status();
  }

 private:
  CaseEnvironment environment_;
};

// Goal    devices carry the names that ROCm's own tools use.
// Method  the fake's third GPU, seen alone.
TEST_F(HipDriver, NamesDevicesAsRocmDoes) {
  const ScopedVariable visible("HIP_VISIBLE_DEVICES", "2");
  const auto driver = open_hip_driver();
  ASSERT_OK(driver);
  ASSERT_EQ((*driver)->devices().size(), 1u);
  const GpuDevice& device = (*driver)->devices()[0];
  EXPECT_EQ(device.uuid, "GPU-fa4e000000000002");
  EXPECT_EQ(device.pci_bus_id, "0000:13:00.0");
  EXPECT_EQ(device.arch, "gfx942");
  EXPECT_EQ(device.granularity_bytes, 2u << 20);
}

// Goal    runtimes that cannot share memory are shown and refuse the heap; those of another layout
//         are refused whole.
// Method  let the fake claim to be 6.2, 6.1, 5.7 and 5.2.
TEST_F(HipDriver, SupportsRocmFrom62On) {
  {
    const ScopedVariable version("FAKE_HIP_VERSION", "60240091");
    const auto driver = open_hip_driver();
    ASSERT_OK(driver);
    ASSERT_OK(use(**driver, MemoryKind::kControl));
  }
  for (const char* old : {"60140093", "50731921"}) {
    const ScopedVariable version("FAKE_HIP_VERSION", old);
    const auto driver = open_hip_driver();
    ASSERT_OK(driver);
    EXPECT_FALSE((*driver)->devices()[0].has_vmm);
    EXPECT_TRUE(says((*driver)->allocate(0, 2u << 20, MemoryKind::kData).status(),
                     Code::kFailedPrecondition, {"GPU-fa4e000000000000", "ROCm 6.2 to 7.x"}));
  }
  const ScopedVariable version("FAKE_HIP_VERSION", "50223154");
  EXPECT_TRUE(says(open_hip_driver().status(), Code::kFailedPrecondition,
                   {"50223154", "ROCm 6.2", "hipMemAllocationProp"}));
}

// Goal    GPUs without a serial number still have a name of their own.
// Method  the fake has none.
TEST_F(HipDriver, NamesGpusWithoutSerialNumberByTheirAddress) {
  const ScopedVariable none("FAKE_HIP_NO_SERIAL", "1");
  const auto driver = open_hip_driver();
  ASSERT_OK(driver);
  EXPECT_EQ((*driver)->devices()[0].uuid, "PCI-0000:11:00.0");
  EXPECT_EQ((*driver)->devices()[1].uuid, "PCI-0000:12:00.0");
}

// Goal    memory works whatever the runtime refuses, and version() says what was found.
// Method  the fake refuses uncached memory, or network access, or both.
TEST_F(HipDriver, FallsBackFromWhatTheRuntimeRefuses) {
  const auto found = [](const char* refused) {
    const ScopedVariable refusal(refused, "1");
    auto driver = open_hip_driver();
    EXPECT_TRUE(driver.ok()) << driver.status();
    const absl::Status status = use(**driver, MemoryKind::kControl);
    EXPECT_TRUE(status.ok()) << status;
    return (*driver)->version();
  };
  EXPECT_NE(found("FAKE_HIP_NOTHING").find("control memory uncached, network access yes"),
            std::string::npos);
  EXPECT_NE(found("FAKE_HIP_NO_UNCACHED").find("control memory cached, network access yes"),
            std::string::npos);
  EXPECT_NE(found("FAKE_HIP_NO_RDMA").find("control memory uncached, network access no"),
            std::string::npos);
  const ScopedVariable old_version("FAKE_HIP_VERSION", "70051831");
  EXPECT_NE(found("FAKE_HIP_NOTHING").find("control memory cached"), std::string::npos);
}

// Goal    the operator can turn network access off, and a misspelt setting is an error.
// Method  0, 1, and something else.
TEST_F(HipDriver, ObeysTheNetworkAccessSetting) {
  {
    const ScopedVariable off("CCO_GDR_CAPABLE", "0");
    const auto driver = open_hip_driver();
    ASSERT_OK(driver);
    ASSERT_OK(use(**driver, MemoryKind::kData));
    EXPECT_NE((*driver)->version().find("network access no"), std::string::npos)
        << (*driver)->version();
  }
  const ScopedVariable wrong("CCO_GDR_CAPABLE", "yes");
  EXPECT_TRUE(says(open_hip_driver().status(), Code::kInvalidArgument,
                   {"CCO_GDR_CAPABLE", "yes", "0 or 1"}));
}

// Goal    spurious failures of set_access are ridden out, endless ones reported.
// Method  let it fail five times, then six, before it would succeed.
TEST_F(HipDriver, RetriesSetAccessFiveTimes) {
  const auto driver = open_hip_driver();
  ASSERT_OK(driver);
  ASSERT_OK(use(**driver, MemoryKind::kData));  // Probed before the trouble begins.
  {
    const ScopedVariable flaky("FAKE_HIP_FLAKY_ACCESS", "5");
    ASSERT_OK(use(**driver, MemoryKind::kData));
  }
  const ScopedVariable flaky("FAKE_HIP_FLAKY_ACCESS", "6");
  EXPECT_TRUE(says(use(**driver, MemoryKind::kData), Code::kInvalidArgument,
                   {"hipMemSetAccess", "hipErrorInvalidValue", "GPU-fa4e000000000000"}));
}

// Goal    a GPU that cannot reach another is named together with it.
// Method  the fake's GPUs 0 and 1 are apart; let 1 use memory of 0.
TEST_F(HipDriver, NamesBothGpusThatCannotReachEachOther) {
  const ScopedVariable apart("FAKE_HIP_NO_PEER", "0-1");
  const auto driver = open_hip_driver();
  ASSERT_OK(driver);
  const auto memory = (*driver)->allocate(0, 2u << 20, MemoryKind::kData);
  ASSERT_OK(memory);
  EXPECT_TRUE(says(
      map_area(**driver, 1, *memory).status(), Code::kFailedPrecondition,
      {"GPU-fa4e000000000000", "GPU-fa4e000000000001", "cannot reach", "hipDeviceCanAccessPeer"}));
  ASSERT_OK(map_area(**driver, 2, *memory));
}

// Goal    the runtime never sees memory calls of two threads at once, whichever driver they use.
// Method  four threads, two drivers, and one that looks for memory by its address; the fake counts
//         overlaps.
TEST_F(HipDriver, SerialisesMemoryCalls) {
  const auto one = open_hip_driver();
  const auto two = open_hip_driver();
  ASSERT_OK(one);
  ASSERT_OK(two);
  const auto memory = (*one)->allocate(0, 2u << 20, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto area = map_area(**one, 0, *memory);
  ASSERT_OK(area);
  const uint32_t before = fake_hip_ledger().overlapping_calls;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    const auto* address = reinterpret_cast<const void*>(area->mapping.address());
    for (int round = 0; round < 200; ++round) {
      EXPECT_TRUE(find_foreign_memory("hip", address, 16).ok());
    }
  });
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const absl::Status status = use(i % 2 == 0 ? **one : **two, MemoryKind::kData);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_hip_ledger().overlapping_calls, before);
}

// Goal    closing the fd before set_access() is the caller's mistake, and shows as an error and not
//         as a crash.
// Method  ROCm 6.4 imports late: close the fd after import, then map.
TEST_F(HipDriver, TheFdMustStayOpenUntilSetAccess) {
  const ScopedVariable version("FAKE_HIP_VERSION", "60443484");
  const auto driver = open_hip_driver();
  ASSERT_OK(driver);
  const auto memory = (*driver)->allocate(0, 2u << 20, MemoryKind::kData);
  ASSERT_OK(memory);
  auto fd = (*driver)->export_fd(*memory);
  ASSERT_OK(fd);
  const auto imported = (*driver)->import_fd(0, *fd, 2u << 20);
  ASSERT_OK(imported);
  fd->reset();
  EXPECT_TRUE(
      says(map_area(**driver, 0, *imported).status(), Code::kInvalidArgument, {"hipMemSetAccess"}));
}

// Goal    GPUs without virtual memory management are shown, and refuse the heap with their name.
// Method  take it away from the fake.
TEST_F(HipDriver, NeedsVirtualMemoryManagement) {
  const ScopedVariable none("FAKE_HIP_NO_VMM", "1");
  const auto driver = open_hip_driver();
  ASSERT_OK(driver);
  EXPECT_FALSE((*driver)->devices()[0].has_vmm);
  EXPECT_TRUE(says((*driver)->allocate(0, 2u << 20, MemoryKind::kData).status(),
                   Code::kFailedPrecondition,
                   {"GPU-fa4e000000000000", "virtual memory management"}));
}

}  // namespace
}  // namespace cco
