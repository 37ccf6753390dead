#include "client/ctl/doctor.h"

#include <fcntl.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
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

// A machine of files, with an AMD and an NVIDIA GPU, as the checks look at it.
class DoctorHost : public Doctor {
 protected:
  void SetUp() override {
    Doctor::SetUp();
    host_ = {directory_, "6.8.0-test"};
    add_gpu("0000:11:00.0", "0x1002", "0x120000");
    add_gpu("0000:18:00.0", "0x10de", "0x030200");
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(directory_ + path).parent_path());
    std::ofstream(directory_ + path) << text;
  }
  void add_gpu(const std::string& pci, const std::string& vendor, const std::string& type) {
    write("/sys/bus/pci/devices/" + pci + "/vendor", vendor + "\n");
    write("/sys/bus/pci/devices/" + pci + "/class", type + "\n");
  }
  static void write_gzip(const std::string& path, const std::string& text) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    google::protobuf::io::FileOutputStream file(fd.get());
    google::protobuf::io::GzipOutputStream packed(&file);
    void* data = nullptr;
    int size = 0;
    ASSERT_TRUE(packed.Next(&data, &size) && size >= static_cast<int>(text.size()));
    text.copy(static_cast<char*>(data), text.size());
    packed.BackUp(size - static_cast<int>(text.size()));
    ASSERT_TRUE(packed.Close());
  }
  report::Check found(const std::string& name) {
    for (const report::Check& check : doctor_.checks()) {
      if (check.name() == name) return check;
    }
    ADD_FAILURE() << "no check " << name << " in " << doctor_.DebugString();
    return {};
  }
  void check(uint64_t memlock_bytes = RLIM_INFINITY) {
    doctor_.clear_checks();
    check_host(host_, memlock_bytes, &doctor_);
  }

  HostPaths host_;
};

// Goal    kernel options are found in the kernel's own copy of its configuration, or in /boot, and
//         a missing one is bad where an AMD GPU needs it; unreadable is unknown, not ok.
TEST_F(DoctorHost, KernelOptions) {
  check();
  EXPECT_EQ(found("CONFIG_PCI_P2PDMA").verdict(), report::VERDICT_UNKNOWN);
  write("/boot/config-6.8.0-test",
        "CONFIG_PCI_P2PDMA=y\n# CONFIG_HSA_AMD_P2P is not set\nCONFIG_DMABUF_MOVE_NOTIFY=m\n");
  check();
  EXPECT_EQ(found("CONFIG_PCI_P2PDMA").verdict(), report::VERDICT_OK);
  EXPECT_EQ(found("CONFIG_DMABUF_MOVE_NOTIFY").detail().rfind("m in ", 0), 0u);
  EXPECT_EQ(found("CONFIG_HSA_AMD_P2P").verdict(), report::VERDICT_BAD);
  EXPECT_NE(found("CONFIG_HSA_AMD_P2P").next_step().find("xGMI"), std::string::npos);

  std::filesystem::create_directories(directory_ + "/proc");
  const std::string packed = directory_ + "/proc/config.gz";
  write_gzip(packed, "CONFIG_HSA_AMD_P2P=y\n");
  check();
  EXPECT_EQ(found("CONFIG_HSA_AMD_P2P").detail(), "y in " + packed);

  std::filesystem::remove_all(directory_ + "/sys/bus/pci/devices/0000:11:00.0");
  check();
  EXPECT_EQ(found("CONFIG_PCI_P2PDMA").verdict(), report::VERDICT_UNKNOWN) << "not set, and NVIDIA";
  std::filesystem::remove_all(directory_ + "/sys/bus/pci/devices");
  check();
  EXPECT_EQ(found("kernel options").verdict(), report::VERDICT_OK) << "no GPU";
}

// Goal    a bound on locked memory is bad where there is an RDMA adapter, and only there.
TEST_F(DoctorHost, LockedMemory) {
  check(8 << 20);
  EXPECT_EQ(found("locked memory").verdict(), report::VERDICT_OK);
  write("/sys/class/infiniband/mlx5_0/node_guid", "0");
  check(8 << 20);
  EXPECT_EQ(found("locked memory").verdict(), report::VERDICT_UNKNOWN);
  EXPECT_NE(found("locked memory").detail().find("8 MiB"), std::string::npos);
  check();
  EXPECT_EQ(found("locked memory").verdict(), report::VERDICT_OK);
}

// Goal    persistence is known where its daemon runs, and asked for only of NVIDIA's GPUs.
TEST_F(DoctorHost, Persistence) {
  check();
  EXPECT_EQ(found("persistence").verdict(), report::VERDICT_UNKNOWN);
  write("/run/nvidia-persistenced/socket", "");
  check();
  EXPECT_EQ(found("persistence").verdict(), report::VERDICT_OK);
  std::filesystem::remove_all(directory_ + "/sys/bus/pci/devices/0000:18:00.0");
  check();
  for (const report::Check& check : doctor_.checks()) EXPECT_NE(check.name(), "persistence");
}

// Goal    a GPU whose largest region is smaller than its memory is bad; unreadable is unknown.
TEST_F(DoctorHost, Bars) {
  v1::GetNodeResponse node;
  for (const char* pci : {"0000:11:00.0", "0000:18:00.0", "0000:AB:00.0"}) {
    v1::Gpu* gpu = node.add_gpus();
    gpu->set_uuid(pci);
    gpu->set_pci_bus_id(pci);
    gpu->set_total_bytes(uint64_t{192} << 30);
  }
  node.add_gpus()->set_uuid("HOST-0");
  write("/sys/bus/pci/devices/0000:11:00.0/resource",
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000010000000000 0x0000013fffffffff 0x000000000014220c\n");
  write("/sys/bus/pci/devices/0000:ab:00.0/resource",
        "0x00000000d0000000 0x00000000dfffffff 0x0000000000040200\n");
  check_bars(host_, node, &doctor_);
  ASSERT_EQ(doctor_.checks_size(), 3) << "none of a GPU without a place on the bus";
  EXPECT_EQ(found("BAR of 0000:11:00.0").verdict(), report::VERDICT_OK);
  EXPECT_EQ(found("BAR of 0000:11:00.0").detail(), "256 GiB, of 192 GiB of memory");
  EXPECT_EQ(found("BAR of 0000:18:00.0").verdict(), report::VERDICT_UNKNOWN);
  EXPECT_EQ(found("BAR of 0000:AB:00.0").verdict(), report::VERDICT_BAD);
  EXPECT_EQ(found("BAR of 0000:AB:00.0").detail(), "256 MiB, of 192 GiB of memory");
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
