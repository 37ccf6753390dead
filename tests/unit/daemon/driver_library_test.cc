// A library that is replaced on disk under whoever has opened it.
#include "daemon/sys/driver_library.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

namespace fs = std::filesystem;

// As packages lay it out: a link by the interface's number, and a file by the version's.
class DriverLibraryTest : public ::testing::Test {
 protected:
  DriverLibraryTest() {
    CCO_ASSERT(::mkdtemp(root_) != nullptr);
    fs::create_directories(root() + "/lib");
    install("550.54.15");
  }
  ~DriverLibraryTest() override { fs::remove_all(root_); }

  void install(const std::string& version) {
    const std::string name = "libcuda.so." + version;
    std::ofstream(root() + "/lib/" + name) << version;
    fs::create_symlink(name, root() + "/lib/new");
    fs::rename(root() + "/lib/new", link());
  }
  void load_module(const std::string& version) {
    fs::create_directories(root() + "/proc/driver/nvidia");
    std::ofstream(root() + "/proc/driver/nvidia/version")
        << "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " << version
        << "  Release Build  (root@builder)  \nGCC version:  gcc 12.2.0\n";
  }
  std::string root() const { return root_; }
  std::string link() const { return root() + "/lib/libcuda.so.1"; }
  DriverLibrary open() const { return DriverLibrary(link(), root()); }

 private:
  char root_[32] = "/tmp/cco-library-XXXXXX";
};

bool is_readable(BorrowedFd fd) {
  pollfd ready{fd.get(), POLLIN, 0};
  return ::poll(&ready, 1, 0) == 1;
}

// Goal    an upgrade is told with both versions, once the link points to another file; what else
//         happens in the folder is not.
TEST_F(DriverLibraryTest, Upgrade) {
  const DriverLibrary library = open();
  const auto watch = library.watch();
  ASSERT_TRUE(watch.ok()) << watch.status();
  std::ofstream(root() + "/lib/libother.so.1") << "other";
  EXPECT_EQ(library.change(), "");
  DriverLibrary::drain(*watch);
  EXPECT_FALSE(is_readable(*watch));
  install("560.35.03");
  EXPECT_TRUE(is_readable(*watch));
  const std::string change = library.change();
  EXPECT_TRUE(absl::StrContains(change, "running " + root() +
                                            "/lib/libcuda.so.550.54.15, on disk " + root() +
                                            "/lib/libcuda.so.560.35.03"))
      << change;
  EXPECT_TRUE(absl::StrContains(change, "Restart cco-memd")) << change;
  install("550.54.15");  // Back again, but rewritten.
  EXPECT_TRUE(absl::StrContains(library.change(), "another file of that name"));
}

// Goal    a library that the loaded kernel module does not take is told as that.
TEST_F(DriverLibraryTest, ModuleOfAnotherVersion) {
  load_module("550.54.15");
  const DriverLibrary library = open();
  EXPECT_EQ(library.change(), "");
  install("560.35.03");
  EXPECT_TRUE(absl::StrContains(library.change(),
                                "does not work with the kernel's module 550.54.15: no client"))
      << library.change();
  load_module("560.35.03");
  EXPECT_TRUE(absl::StrContains(library.change(), "Restart cco-memd")) << library.change();
}

// Goal    a library that has gone is told as that; a driver without one has nothing to tell.
TEST_F(DriverLibraryTest, GoneOrNone) {
  const DriverLibrary library = open();
  fs::remove(link());
  EXPECT_TRUE(absl::StrContains(library.change(), "is not on disk any more")) << library.change();
  const DriverLibrary none("");
  EXPECT_EQ(none.change(), "");
  EXPECT_FALSE(*none.watch());
}

}  // namespace
}  // namespace cco::memd
