#include "client/ctl/doctor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "device/runtime/open_driver.h"

namespace cco::ctl {
namespace {

class Doctor : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cco-doctor-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    socket_ = directory_ + "/memd.sock";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void make_socket(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  std::string directory_;
  std::string socket_;
  report::Doctor doctor_;
};

v1::GetNodeResponse host_node(int gpu_count) {
  v1::GetNodeResponse node;
  node.set_driver("host");
  for (int i = 0; i < gpu_count; ++i) node.add_gpus()->set_uuid("HOST-" + std::to_string(i));
  return node;
}

std::unique_ptr<GpuDriver> host_driver(uint32_t devices) {
  DriverOptions options;
  options.kind = DriverKind::kHost;
  options.host_devices = devices;
  return *open_driver(options);
}

// Goal    a missing socket, a file in its place and a good one are told apart.
// Method  the same check before and after each is made.
TEST_F(Doctor, TellsSocketsApart) {
  check_sockets(socket_, &doctor_);
  ASSERT_EQ(doctor_.checks_size(), 2);
  EXPECT_EQ(doctor_.checks(0).verdict(), report::VERDICT_BAD);
  EXPECT_NE(doctor_.checks(0).detail().find("No such file"), std::string::npos);

  std::ofstream(socket_) << "a file";
  make_socket(directory_ + "/memd-fd.sock");
  doctor_.clear_checks();
  check_sockets(socket_, &doctor_);
  EXPECT_NE(doctor_.checks(0).detail().find("is not a socket"), std::string::npos);
  EXPECT_EQ(doctor_.checks(1).verdict(), report::VERDICT_OK) << doctor_.DebugString();
}

// Goal    a path that fits no socket address is bad, and says how long it may be.
// Method  check one of 200 bytes.
TEST_F(Doctor, RefusesLongPaths) {
  check_sockets("/tmp/" + std::string(200, 'x'), &doctor_);
  ASSERT_EQ(doctor_.checks_size(), 1);
  EXPECT_EQ(doctor_.checks(0).verdict(), report::VERDICT_BAD);
  EXPECT_NE(doctor_.checks(0).detail().find("107"), std::string::npos) << doctor_.DebugString();
}

// Goal    GPUs are compared by UUID: fewer here is fine, unknown to the daemon is bad.
// Method  two devices here against daemons with four and with one.
TEST_F(Doctor, ComparesGpusByUuid) {
  const std::unique_ptr<GpuDriver> driver = host_driver(2);
  check_gpus(host_node(4), *driver, &doctor_);
  EXPECT_EQ(doctor_.checks(0).verdict(), report::VERDICT_OK);
  EXPECT_NE(doctor_.checks(0).detail().find("hidden: HOST-2, HOST-3"), std::string::npos);
  check_gpus(host_node(1), *driver, &doctor_);
  EXPECT_EQ(doctor_.checks(1).verdict(), report::VERDICT_BAD);
  EXPECT_NE(doctor_.checks(1).detail().find("does not have HOST-1"), std::string::npos);
}

// Goal    a driver of another version is bad, naming both.
// Method  a daemon that claims a version nobody has.
TEST_F(Doctor, ComparesDriverVersions) {
  v1::GetNodeResponse node = host_node(1);
  node.set_driver_version("0.0-other");
  ASSERT_TRUE(check_driver(node, &doctor_).ok());
  EXPECT_EQ(doctor_.checks(0).verdict(), report::VERDICT_BAD);
  EXPECT_NE(doctor_.checks(0).detail().find("0.0-other"), std::string::npos);
  node.set_driver("abacus");
  EXPECT_FALSE(check_driver(node, &doctor_).ok());
  EXPECT_NE(doctor_.checks(1).detail().find("abacus"), std::string::npos);
}

// Goal    peer access is tried for every ordered pair.
// Method  three host devices make six pairs.
TEST_F(Doctor, TriesEveryPair) {
  const std::unique_ptr<GpuDriver> driver = host_driver(3);
  check_peer_access(*driver, &doctor_);
  ASSERT_EQ(doctor_.checks_size(), 1) << doctor_.DebugString();
  EXPECT_EQ(doctor_.checks(0).verdict(), report::VERDICT_OK);
  EXPECT_NE(doctor_.checks(0).detail().find("6 of 6 pairs"), std::string::npos);
}

// Goal    without a daemon there is still something to see: sockets, and whom the lock file names.
// Method  a lock file of this process, then of nobody.
TEST_F(Doctor, DescribesAnAbsentDaemon) {
  std::ofstream(socket_ + ".lock") << ::getpid() << "\n";
  std::string text = describe_absent_daemon(socket_);
  EXPECT_NE(text.find("No such file"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(::getpid()) + " is there"), std::string::npos) << text;
  std::ofstream(socket_ + ".lock") << "nonsense";
  EXPECT_NE(describe_absent_daemon(socket_).find("names no process"), std::string::npos);
}

}  // namespace
}  // namespace cco::ctl
