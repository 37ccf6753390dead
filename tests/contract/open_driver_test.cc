#include "device/runtime/open_driver.h"

#include "tests/contract/contract_test.h"

namespace cco {
namespace {

using Code = absl::StatusCode;

/// "host", or "cuda" where this machine has an NVIDIA GPU: what kAuto finds when no HIP library is
/// named.
std::string natural_choice() { return missing_for(kCudaCase).empty() ? "cuda" : "host"; }

absl::StatusOr<std::unique_ptr<GpuDriver>> open_kind(DriverKind kind) {
  return open_driver({.kind = kind, .host_devices = 2, .host_bytes_per_device = kHostBytes});
}

// Goal    every name that --driver takes is understood, and another is answered with the names.
// Method  all four, and a wrong one.
TEST(OpenDriver, ParsesKinds) {
  EXPECT_EQ(parse_driver_kind("auto").value(), DriverKind::kAuto);
  EXPECT_EQ(parse_driver_kind("host").value(), DriverKind::kHost);
  EXPECT_EQ(parse_driver_kind("cuda").value(), DriverKind::kCuda);
  EXPECT_EQ(parse_driver_kind("hip").value(), DriverKind::kHip);
  EXPECT_TRUE(says(parse_driver_kind("rocm").status(), Code::kInvalidArgument,
                   {"rocm", "auto, host, cuda or hip"}));
}

// Goal    auto takes what the machine has.
// Method  as it is, and with a HIP runtime that has GPUs.
TEST(OpenDriver, AutoTakesWhatThereIs) {
  CCO_SKIP_WITHOUT(kHip72Case);
  EXPECT_EQ(open_kind(DriverKind::kAuto).value()->name(), natural_choice());
  const ScopedVariable library("CCO_HIP_LIBRARY", CCO_FAKE_HIP_LIBRARY);
  if (natural_choice() == "host") {
    EXPECT_EQ(open_kind(DriverKind::kAuto).value()->name(), "hip");
  }
}

// Goal    the kind that was asked for is the one that comes, whatever else there is.
// Method  ask for host beside a working HIP runtime, and for hip.
TEST(OpenDriver, ExplicitKindsAreObeyed) {
  CCO_SKIP_WITHOUT(kHip72Case);
  const ScopedVariable library("CCO_HIP_LIBRARY", CCO_FAKE_HIP_LIBRARY);
  const auto host = open_kind(DriverKind::kHost);
  ASSERT_OK(host);
  EXPECT_EQ((*host)->name(), "host");
  EXPECT_EQ((*host)->devices().size(), 2u);
  const auto hip = open_kind(DriverKind::kHip);
  ASSERT_OK(hip);
  EXPECT_EQ((*hip)->name(), "hip");
  EXPECT_NE((*hip)->version().find("ROCm 6.2 to 7.x"), std::string::npos);
}

// Goal    a library that the environment names and that does not work is an error, even for auto.
// Method  a file that is not there; a library that is none of CUDA or HIP; one whose GPUs cannot
//         carry a heap, or that sees none.
TEST(OpenDriver, NamedLibrariesMustWork) {
  CCO_SKIP_WITHOUT(kHip72Case);
  for (const DriverKind kind : {DriverKind::kHip, DriverKind::kAuto}) {
    if (kind == DriverKind::kAuto && natural_choice() == "cuda")
      continue;  // Auto never gets as far as HIP.
    {
      const ScopedVariable library("CCO_HIP_LIBRARY", "/nowhere/libamdhip64.so");
      EXPECT_TRUE(says(open_kind(kind).status(), Code::kFailedPrecondition,
                       {"CCO_HIP_LIBRARY", "/nowhere/libamdhip64.so", "unset"}));
    }
    {
      const ScopedVariable library("CCO_HIP_LIBRARY", "libm.so.6");
      EXPECT_TRUE(
          says(open_kind(kind).status(), Code::kFailedPrecondition, {"libm.so.6", "hipInit"}));
    }
    const ScopedVariable library("CCO_HIP_LIBRARY", CCO_FAKE_HIP_LIBRARY);
    if (kind == DriverKind::kAuto) {
      const ScopedVariable no_vmm("FAKE_HIP_NO_VMM", "1");
      EXPECT_TRUE(says(open_kind(kind).status(), Code::kFailedPrecondition,
                       {"CCO_HIP_LIBRARY", "8 devices", "virtual memory management"}));
    }
    const ScopedVariable none("FAKE_HIP_DEVICES", "0");
    EXPECT_TRUE(says(open_kind(kind).status(), Code::kFailedPrecondition,
                     {"no AMD GPU", "hipErrorNoDevice", "HIP_VISIBLE_DEVICES"}));
  }
  const ScopedVariable library("CCO_CUDA_LIBRARY", "libm.so.6");
  for (const DriverKind kind : {DriverKind::kCuda, DriverKind::kAuto}) {
    EXPECT_TRUE(says(open_kind(kind).status(), Code::kFailedPrecondition, {"libm.so.6", "cuInit"}));
  }
}

// Goal    asking for a driver whose library is not installed says which library that would be.
// Method  open cuda on a machine without it.
TEST(OpenDriver, MissingLibrariesAreNamed) {
  const absl::Status status = open_kind(DriverKind::kCuda).status();
  if (status.ok()) GTEST_SKIP() << "this machine has an NVIDIA GPU";
  EXPECT_NE(status.message().find("libcuda.so.1"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace cco
