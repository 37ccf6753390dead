#include "tests/contract/contract_test.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>

#include "client/base/status_macros.h"
#include "device/runtime/host_driver.h"
#include "device/transport/memory_port.h"

namespace cco {
namespace {

constexpr uint64_t kAddressSpaceSlackBytes =
    512u << 20;  // Thread stacks and arenas; a leaked slot is 4 GiB.

void* fake_symbol(const char* name) {
  void* library = ::dlopen(CCO_FAKE_HIP_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

/// One of everything, so that what a library opens on first use is open before anything is counted.
absl::Status warm_up(GpuDriver& gpu, int device) {
  CCO_ASSIGN_OR_RETURN(GpuMemory memory, gpu.allocate(device, gpu.devices()[0].granularity_bytes,
                                                      MemoryKind::kControl));
  CCO_ASSIGN_OR_RETURN(UniqueFd fd, gpu.export_fd(memory));
  CCO_ASSIGN_OR_RETURN(GpuMemory imported, gpu.import_fd(device, fd, memory.size_bytes()));
  return map_area(gpu, device, imported).status();
}

size_t reference_count(const GpuDriver& gpu) {
  const auto* host = dynamic_cast<const HostDriver*>(&gpu);
  return host != nullptr ? host->allocation_count() : 0;
}

}  // namespace

testing::AssertionResult says(const absl::Status& actual, absl::StatusCode code,
                              std::initializer_list<std::string> words) {
  if (actual.code() != code) {
    return testing::AssertionFailure() << actual << ", expected " << absl::StatusCodeToString(code);
  }
  for (const std::string& word : words) {
    if (actual.message().find(word) == absl::string_view::npos) {
      return testing::AssertionFailure() << actual << " does not mention \"" << word << "\"";
    }
  }
  return testing::AssertionSuccess();
}

absl::StatusOr<Area> map_area(GpuDriver& gpu, int device, const GpuMemory& memory, Access access) {
  const uint64_t granularity = gpu.devices()[static_cast<size_t>(device)].granularity_bytes;
  Area area;
  CCO_ASSIGN_OR_RETURN(area.range, gpu.reserve(device, memory.size_bytes(), granularity));
  CCO_ASSIGN_OR_RETURN(area.mapping, gpu.map(area.range.address(), memory));
  CCO_RETURN_IF_ERROR(gpu.set_access(area.mapping, device, access));
  return area;
}

absl::Status add_ones(GpuContext* context, bool is_host, uint64_t word, uint64_t times) {
  CCO_ASSIGN_OR_RETURN(const auto port, open_memory_port(context, is_host, word + sizeof word * 2));
  for (uint64_t i = 0; i < times; ++i) CCO_RETURN_IF_ERROR(port->fetch_add(word, 1).status());
  return absl::OkStatus();
}

ScopedVariable::ScopedVariable(const char* name, std::optional<std::string> value) : name_(name) {
  if (const char* before = std::getenv(name); before != nullptr) before_ = before;
  if (value.has_value()) {
    ::setenv(name, value->c_str(), 1);
  } else {
    ::unsetenv(name);
  }
}

ScopedVariable::~ScopedVariable() {
  if (before_.has_value()) {
    ::setenv(name_, before_->c_str(), 1);
  } else {
    ::unsetenv(name_);
  }
}

int count_open_fds() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<int>(std::distance(begin(fds), end(fds)));
}

uint64_t address_space_bytes() {
  std::ifstream facts("/proc/self/statm");
  uint64_t pages = 0;
  facts >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

FakeHipLedger fake_hip_ledger() {
  FakeHipLedger ledger{};
  auto* function = reinterpret_cast<FakeHipLedgerFunction>(fake_symbol(kFakeHipLedgerSymbol));
  if (function != nullptr) function(&ledger);
  return ledger;
}

uint32_t fake_hip_calls(const std::string& function) {
  return reinterpret_cast<FakeHipCallsFunction>(fake_symbol(kFakeHipCallsSymbol))(function.c_str());
}

std::string kind_text(DriverKind kind) {
  switch (kind) {
    case DriverKind::kHost:
      return "host";
    case DriverKind::kCuda:
      return "cuda";
    case DriverKind::kHip:
      return "hip";
    case DriverKind::kAuto:
      return "auto";
  }
  return "";
}

CaseEnvironment::CaseEnvironment(const DriverCase& driver) {
  if (driver.hip_version == nullptr) return;
  library_.emplace("CCO_HIP_LIBRARY", CCO_FAKE_HIP_LIBRARY);
  version_.emplace("FAKE_HIP_VERSION", driver.hip_version);
}

std::string missing_for(const DriverCase& driver) {
  if (driver.kind == DriverKind::kHip && ::access(CCO_FAKE_HIP_LIBRARY, R_OK) != 0) {
    return "the fake HIP runtime is not at " CCO_FAKE_HIP_LIBRARY;
  }
  if (driver.kind != DriverKind::kCuda) return "";
  const auto opened = open_driver({.kind = DriverKind::kCuda});
  return opened.ok() ? "" : "no NVIDIA GPU: " + std::string(opened.status().message());
}

void ContractTest::SetUp() {
  environment_.emplace(GetParam());
  if (const std::string missing = missing_for(GetParam()); !missing.empty()) {
    const char* wanted = std::getenv("CCO_TEST_DRIVER");
    if (wanted != nullptr && std::string(wanted) == GetParam().name) FAIL() << missing;
    GTEST_SKIP() << missing;
  }
  ledger_without_driver_ = fake_hip_ledger();
  auto opened = open_driver({.kind = GetParam().kind, .host_bytes_per_device = kHostBytes});
  ASSERT_OK(opened);
  driver_ = *std::move(opened);
  for (const int device : {0, peer_device()}) {
    auto context = driver_->open(device);
    ASSERT_OK(context);
    contexts_[device] = *std::move(context);
    ASSERT_OK(warm_up(*driver_, device));
  }
  fds_before_ = count_open_fds();
  address_space_before_ = address_space_bytes();
  ledger_before_ = fake_hip_ledger();
}

void ContractTest::TearDown() {
  if (driver_ == nullptr) return;
  expect_nothing_left("the test");
  contexts_.clear();
  driver_.reset();
  EXPECT_EQ(fake_hip_ledger(), ledger_without_driver_) << "left in the runtime by the driver";
}

void ContractTest::expect_nothing_left(const std::string& after) {
  EXPECT_EQ(reference_count(*driver_), 0u) << "references left after " << after;
  EXPECT_EQ(count_open_fds(), fds_before_) << "file descriptors left after " << after;
  FakeHipLedger ledger = fake_hip_ledger();
  ledger.modules = ledger_before_.modules;
  EXPECT_EQ(ledger, ledger_before_) << "left in the runtime after " << after;
  EXPECT_LT(address_space_bytes(), address_space_before_ + kAddressSpaceSlackBytes)
      << "address space left after " << after;
}

absl::Status ContractTest::write(int device, uint64_t address, const std::string& text) {
  return context(device).copy_to_device(address, text.data(), text.size());
}

absl::StatusOr<std::string> ContractTest::read(int device, uint64_t address, size_t size) {
  std::string text(size, '\0');
  CCO_RETURN_IF_ERROR(context(device).copy_to_host(text.data(), address, size));
  return text;
}

}  // namespace cco

std::ostream& operator<<(std::ostream& out, const FakeHipLedger& ledger) {
  return out << ledger.handles << " handles, " << ledger.ranges << " ranges, " << ledger.mappings
             << " mappings, " << ledger.streams << " streams, " << ledger.events << " events, "
             << ledger.modules << " modules, " << ledger.registrations << " registrations, "
             << ledger.overlapping_calls << " overlapping calls";
}
