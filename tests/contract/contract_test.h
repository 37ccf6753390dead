// The fixture of the driver suite: one driver under test, opened before a test and weighed after
// it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"
#include "device/runtime/open_driver.h"
#include "tests/support/fake_hip/fake_hip.h"

std::ostream& operator<<(std::ostream& out, const FakeHipLedger& ledger);

namespace cco {

inline constexpr uint64_t kHostBytes = 64u << 20;  ///< Per device of the host driver in this suite.
inline constexpr uint64_t kSlotBytes = uint64_t{4} << 30;

#define ASSERT_OK(expression)                                 \
  do {                                                        \
    const absl::Status status = ::cco::status_of(expression); \
    ASSERT_TRUE(status.ok()) << status;                       \
  } while (0)
inline absl::Status status_of(const absl::Status& status) { return status; }
template <typename T>
absl::Status status_of(const absl::StatusOr<T>& result) {
  return result.status();
}

/// Passes if `actual` has `code` and its message contains all of `words`.
testing::AssertionResult says(const absl::Status& actual, absl::StatusCode code,
                              std::initializer_list<std::string> words);

/// A mapping with the range around it.
struct Area {
  VaRange range;
  GpuMapping mapping;
};
/// Maps `memory` for reading and writing by `device`.
absl::StatusOr<Area> map_area(GpuDriver& gpu, int device, const GpuMemory& memory,
                              Access access = Access::kReadWrite);

/// Adds 1 as often to the word at this address, as a software engine does; the 128 bytes from there
/// are zero before, and other processes may do the same.
absl::Status add_ones(GpuContext* context, bool is_host, uint64_t word, uint64_t times);

/// Sets or (empty) removes an environment variable until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, std::optional<std::string> value);
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable();

 private:
  const char* name_;
  std::optional<std::string> before_;
};

int count_open_fds();
uint64_t address_space_bytes();
/// Of the fake runtime in this process; all zero where it is not loaded.
FakeHipLedger fake_hip_ledger();
uint32_t fake_hip_calls(const std::string& function);

struct DriverCase {
  const char* name;
  DriverKind kind;
  const char* hip_version;  ///< What the fake claims to be; null for other drivers.
};
inline void PrintTo(const DriverCase& driver, std::ostream* out) { *out << driver.name; }
inline constexpr DriverCase kHostCase = {"host", DriverKind::kHost, nullptr};
inline constexpr DriverCase kHip64Case = {"hip64", DriverKind::kHip, "60443484"};
inline constexpr DriverCase kHip72Case = {"hip72", DriverKind::kHip, "70253211"};
inline constexpr DriverCase kHip715Case = {"hip715", DriverKind::kHip, "71500000"};
inline constexpr DriverCase kCudaCase = {"cuda", DriverKind::kCuda, nullptr};

/// "host", "cuda", "hip": as parse_driver_kind() takes it.
std::string kind_text(DriverKind kind);

/// Sets the environment of one case, as long as it lives.
class CaseEnvironment {
 public:
  explicit CaseEnvironment(const DriverCase& driver);

 private:
  std::optional<ScopedVariable> library_;
  std::optional<ScopedVariable> version_;
};

/// Why the case cannot run on this machine; empty if it can. CCO_TEST_DRIVER=<name> makes that a
/// failure of the test.
std::string missing_for(const DriverCase& driver);

#define CCO_SKIP_WITHOUT(driver) \
  if (const std::string missing = missing_for(driver); !missing.empty()) GTEST_SKIP() << missing

class ContractTest : public testing::TestWithParam<DriverCase> {
 protected:
  void SetUp() override;
  void TearDown() override;

  GpuDriver& gpu() { return *driver_; }
  bool is_host() const { return GetParam().kind == DriverKind::kHost; }
  bool is_hip() const { return GetParam().kind == DriverKind::kHip; }
  bool is_cuda() const { return GetParam().kind == DriverKind::kCuda; }
  /// Another device than 0 where there is one.
  int peer_device() { return gpu().devices().size() > 1 ? 1 : 0; }
  uint64_t granularity() { return gpu().devices()[0].granularity_bytes; }

  absl::Status write(int device, uint64_t address, const std::string& text);
  absl::StatusOr<std::string> read(int device, uint64_t address, size_t size);
  GpuContext& context(int device) { return *contexts_.at(device); }

  /// Everything that must be as before: references, fds, address space. Loaded modules stay with
  /// their context.
  void expect_nothing_left(const std::string& after);

 private:
  std::optional<CaseEnvironment> environment_;
  std::unique_ptr<GpuDriver> driver_;
  std::map<int, std::unique_ptr<GpuContext>> contexts_;
  int fds_before_ = 0;
  uint64_t address_space_before_ = 0;
  FakeHipLedger ledger_before_{};  ///< With driver and contexts.
  FakeHipLedger ledger_without_driver_{};
};

#define CCO_INSTANTIATE_CONTRACT(Fixture)                                                    \
  INSTANTIATE_TEST_SUITE_P(                                                                  \
      , Fixture, testing::Values(kHostCase, kHip64Case, kHip72Case, kHip715Case, kCudaCase), \
      [](const auto& info) { return std::string(info.param.name); })

}  // namespace cco
