// What one tenant has written, the next never reads.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/hoard.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

class ScrubTest : public KeptNodeTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot play other users";
    ::chmod(folder().c_str(), 0755);
    KeptNodeTest::SetUp();
  }
  void TearDown() override {
    if (daemon != nullptr) KeptNodeTest::TearDown();
  }
  DaemonProcess::Options kept_options() const override {
    DaemonProcess::Options options = KeptNodeTest::kept_options();
    options.config = absl::StrCat(
        "host { device_count: 1 bytes_per_device: ", kGpuBytes, " }\nstate_dir: \"", state_dir(),
        "\"\nsocket_mode: '0666'\n"
        "tenants { name: 'first' uid: 1000 } tenants { name: 'second' uid: 1001 }");
    return options;
  }
  Ranks::Options ranks_as(const std::string& uid) const {
    Ranks::Options options = ranks();
    options.wrapper = {"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups"};
    return options;
  }
  bool holds_nothing() {
    return static_cast<bool>(
        watch->becomes([](const NodeLedger& ledger) { return ledger.slab_bytes() == 0; }));
  }

  static constexpr uint64_t kGpuBytes = uint64_t{32} << 20;
};

enum class End { kLeaves, kIsKilled, kIsKilledWithoutDaemon };

// Goal    all that a tenant gets is zero, control regions included, however the tenant before it
//         has ended.
// Method  user 1000 fills the whole GPU with a pattern, and ends; user 1001 gets the whole GPU, by
//         a client that clears nothing, and reads every byte.
TEST_F(ScrubTest, NothingIsLeftForOthers) {
  for (const End end : {End::kLeaves, End::kIsKilled, End::kIsKilledWithoutDaemon}) {
    SCOPED_TRACE(static_cast<int>(end));
    Ranks first(1, plant_in_hoard, ranks_as("1000"));
    EXPECT_EQ(first.hear(0), absl::StrCat(kGpuBytes));
    ASSERT_EQ(first.hear(0), "planted");
    if (end == End::kIsKilledWithoutDaemon) daemon->kill();
    if (end == End::kLeaves) first.tell(0, "leave");
    if (end != End::kLeaves) first.signal(0, SIGKILL);
    first.expect_success();
    if (end == End::kIsKilledWithoutDaemon) start_kept();
    ASSERT_TRUE(holds_nothing());
    Ranks second(1, look_into_hoard, ranks_as("1001"));
    EXPECT_EQ(second.hear(0), absl::StrCat(kGpuBytes));
    second.expect_success();
    ASSERT_TRUE(holds_nothing());
  }
}

}  // namespace
}  // namespace cco::test
