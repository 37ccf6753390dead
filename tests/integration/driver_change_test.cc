// The driver's library is replaced under a running daemon.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/integration/ccoctl.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

namespace fs = std::filesystem;

// Goal    an upgrade of the library is in the log without anybody asking, and ccoctl says what
//         runs, what is on disk, and what to do; a daemon that starts afterwards has nothing to
//         say.
// Method  a copy of the stand-in for AMD's runtime, replaced as packages do it: by a new file and a
//         rename.
TEST(DriverChangeTest, IsNoticed) {
  const TempDir folder;
  const std::string library = folder.file("libamdhip64.so.6");
  fs::copy_file(CCO_FAKE_HIP_LIBRARY, library);
  DaemonProcess::Options options;
  options.driver = "hip";
  options.config = "";
  options.environment = {{"CCO_HIP_LIBRARY", library}};
  auto daemon = DaemonProcess::start(options);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const auto status = [&] { return ccoctl((*daemon)->socket_path(), {"status"}); };
  EXPECT_EQ(status().find("CHANGED"), std::string::npos);

  fs::copy_file(CCO_FAKE_HIP_LIBRARY, folder.file("new"));
  fs::rename(folder.file("new"), library);
  EXPECT_TRUE((*daemon)->logs("event=driver_changed"));
  const std::string told = status();
  EXPECT_NE(told.find("CHANGED: running " + library + ", on disk another file of that name"),
            std::string::npos)
      << told;
  EXPECT_EQ((*daemon)->stop(), 0) << (*daemon)->log();

  daemon = DaemonProcess::start(options);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_EQ(status().find("CHANGED"), std::string::npos);
  EXPECT_EQ((*daemon)->stop(), 0) << (*daemon)->log();
}

}  // namespace
}  // namespace cco::test
