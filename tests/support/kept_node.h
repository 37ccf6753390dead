// Fixture: a daemon whose state outlives it, in a folder of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/node_test.h"

namespace cco::test {

/// The process that keeps the descriptors of a state folder; -1: there is none.
inline pid_t keeper_of(const std::string& state_dir) {
  std::ifstream lock(state_dir + "/keeper.lock");
  int pid = 0;
  if (!(lock >> pid)) return -1;
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"));  // Empty once it has ended.
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  return line.find("cco-keeper") == std::string::npos ? -1 : pid;
}

class KeptNodeTest : public NodeTest {
 protected:
  virtual DaemonProcess::Options kept_options() const {
    DaemonProcess::Options options;
    options.socket_path = socket_path();
    options.config = absl::StrCat("host { device_count: 4 bytes_per_device: 268435456 }\n",
                                  "state_dir: \"", state_dir(), "\"\n");
    return options;
  }
  /// Starts the first daemon, or the next on the same state and socket.
  void start_kept() {
    auto started = DaemonProcess::start(kept_options());
    ASSERT_TRUE(started.ok()) << started.status();
    daemon = *std::move(started);
  }
  void SetUp() override {
    start_kept();
    watch = std::make_unique<NodeWatch>(socket_path());
    before = watch->now();
  }
  /// As after a crash.
  void kill_and_start() {
    daemon->kill();
    start_kept();
  }
  void TearDown() override {
    EXPECT_TRUE(watch->settles_at(before)) << daemon->log();
    watch.reset();
    EXPECT_EQ(daemon->stop(), 0) << daemon->log();
    expect_no_keeper();
  }
  /// A keeper ends once it holds nothing and nobody is connected.
  void expect_no_keeper() const {
    const Stopwatch time;
    while (keeper() != -1 && time.elapsed() < patience()) std::this_thread::yield();
    EXPECT_EQ(keeper(), -1) << "it still holds something";
  }

  pid_t keeper() const { return keeper_of(state_dir()); }
  const std::string& folder() const { return folder_.path(); }
  std::string socket_path() const { return folder_.file("memd.sock"); }
  std::string state_dir() const { return folder_.file("state"); }

 private:
  TempDir folder_;
};

}  // namespace cco::test
