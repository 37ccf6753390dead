#include "client/src/group_options.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace cco::client {
namespace {

const std::vector<GpuDevice> kDevices = [] {
  std::vector<GpuDevice> devices(3);
  devices[0].uuid = "A";
  devices[1].uuid = "B";
  devices[2].uuid = "C";
  return devices;
}();

cco_group_options options() {
  cco_group_options result{};
  result.rank = 1;
  result.size = 4;
  result.name = "g";
  return result;
}

absl::StatusOr<Environment> launched() { return Environment{6, 8, 5, 8, "cco", "job"}; }

void expect_refused(const cco_group_options& options,
                    const absl::StatusOr<Environment>& environment, absl::StatusCode code,
                    const std::string& text) {
  const auto resolved = resolve_group_options(options, kDevices, environment);
  EXPECT_EQ(resolved.status().code(), code) << resolved.status();
  EXPECT_NE(std::string(resolved.status().message()).find(text), std::string::npos)
      << resolved.status();
}

// Goal    the caller's word counts before the launcher's, and the launcher's is used exactly where
//         it is asked for.
TEST(GroupOptions, CallerThenLauncher) {
  cco_group_options given = options();
  auto resolved = resolve_group_options(given, kDevices, launched());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->rank, 1u);
  EXPECT_EQ(resolved->size, 4u);
  EXPECT_EQ(resolved->device, 0);
  EXPECT_EQ(resolved->name, "g");
  EXPECT_EQ(resolved->timeout.count(), 60000);

  given.rank = CCO_RANK_FROM_ENVIRONMENT;
  given.device = CCO_DEVICE_BY_LOCAL_RANK;
  given.name = nullptr;
  resolved = resolve_group_options(given, kDevices, launched());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->rank, 6u);
  EXPECT_EQ(resolved->size, 8u);
  EXPECT_EQ(resolved->device, 2) << "local rank 5 of 3 devices";
  EXPECT_EQ(resolved->name, "job");

  cco_unique_id id{{1}};
  given.unique_id = &id;
  given.gpu_uuid = "B";
  resolved = resolve_group_options(given, kDevices, launched());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->device, 1);
  EXPECT_EQ(resolved->name, "");
  EXPECT_EQ(resolved->unique_id.size(), 128u);
}

// Goal    a lease is the caller's, else the environment's; what cannot be a token is refused and
//         not shown.
TEST(GroupOptions, Lease) {
  const std::string digits = "000102030405060708090a0b0c0d0eFf";
  cco_group_options given = options();
  EXPECT_EQ(resolve_group_options(given, kDevices, launched())->lease, "");
  ::setenv("CCO_LEASE", digits.c_str(), 1);
  std::string token = resolve_group_options(given, kDevices, launched())->lease;
  EXPECT_EQ(token.size(), 16u);
  EXPECT_EQ(token.substr(13), "\x0d\x0e\xff");
  const std::string other(32, '1');
  given.lease = other.c_str();
  token = resolve_group_options(given, kDevices, launched())->lease;
  EXPECT_EQ(token, std::string(16, 0x11));
  for (const std::string& bad : {std::string(), digits.substr(1), digits + "0",
                                 digits.substr(1) + "g", std::string(100000, 'a')}) {
    given.lease = bad.c_str();
    expect_refused(given, launched(), absl::StatusCode::kInvalidArgument,
                   absl::StrCat("lease has ", bad.size(), " characters; it takes the 32 hex"));
    given.lease = nullptr;
    ::setenv("CCO_LEASE", bad.c_str(), 1);
    expect_refused(given, launched(), absl::StatusCode::kInvalidArgument, "CCO_LEASE has");
  }
  ::unsetenv("CCO_LEASE");
}

// Goal    without a launcher the rank chooses the device; with a broken one nothing is guessed.
TEST(GroupOptions, DeviceWithoutLauncher) {
  cco_group_options given = options();
  given.device = CCO_DEVICE_BY_LOCAL_RANK;
  EXPECT_EQ(resolve_group_options(given, kDevices, absl::NotFoundError("none"))->device, 1);
  expect_refused(given, absl::InvalidArgumentError("RANK is 'x'"),
                 absl::StatusCode::kInvalidArgument, "RANK is 'x'");
}

// Goal    each wrong option is refused here, before any rank waits, with its value.
TEST(GroupOptions, Refusals) {
  using enum absl::StatusCode;
  const absl::StatusOr<Environment> none = absl::NotFoundError("no launcher");
  cco_group_options given = options();
  given.rank = 4;
  expect_refused(given, none, kInvalidArgument, "rank 4 of 4");
  given = options();
  given.size = 1025;
  expect_refused(given, none, kInvalidArgument, "rank 1 of 1025");
  given = options();
  given.name = nullptr;
  expect_refused(given, none, kInvalidArgument, "neither name nor unique_id");
  given.rank = CCO_RANK_FROM_ENVIRONMENT;
  expect_refused(given, none, kNotFound, "no launcher");
  expect_refused(given, Environment{0, 1, 0, 1, "pmi", ""}, kInvalidArgument,
                 "pmi gives this job no name");
  given = options();
  const std::string long_name(128, 'n');
  given.name = long_name.c_str();
  expect_refused(given, none, kInvalidArgument, "128 bytes");
  given.name = "";
  expect_refused(given, none, kInvalidArgument, "0 bytes");
  given = options();
  cco_unique_id id{};
  given.unique_id = &id;
  expect_refused(given, none, kInvalidArgument, "both name and unique_id");
  given = options();
  given.device = 3;
  expect_refused(given, none, kNotFound, "no device 3 in this process; it sees 0: A, 1: B, 2: C");
  given.gpu_uuid = "D";
  expect_refused(given, none, kNotFound, "no GPU 'D'");
  given = options();
  given.slot_bytes = 5;
  expect_refused(given, none, kInvalidArgument, "slot_bytes is 5");
  given = options();
  given.timeout_ms = 3600001;
  expect_refused(given, none, kInvalidArgument, "timeout_ms is 3600001");
}

}  // namespace
}  // namespace cco::client
