// Provider "user-queue" without an AMD GPU: a strict stand-in makes its queues, and the software
// engine consumes them.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cco/device/sdma.h"
#include "device/transport/engine_thread.h"
#include "device/transport/kfd_queues.h"
#include "device/transport/user_queue.h"
#include "tests/device/emulated_transports.h"

namespace cco {
namespace {

using testing::EmulatedNode;
using testing::EmulatedTransports;

constexpr uint32_t kQueues = 2;

/// A machine with a CPU and two GPUs, as the kernel's driver tells it.
class KfdTest : public ::testing::Test {
 protected:
  KfdTest() : transports_(node_options()) {
    ::setenv("CCO_HSAKMT_LIBRARY", CCO_FAKE_HSAKMT, 1);
    ::unsetenv("FAKE_HSAKMT_FAIL");
    ::unsetenv("FAKE_HSAKMT_QUEUES");
    char name[] = "/tmp/cco-kfd-XXXXXX";
    folder_ = ::mkdtemp(name);
    write("0", "simd_count 0\nlocation_id 0\n");
    write("1",
          "simd_count 304\ndomain 0\nlocation_id 6144\nnum_sdma_engines 2\n"
          "num_sdma_xgmi_engines 14\n");
    write("2",
          "simd_count 304\ndomain 1\nlocation_id 6408\nnum_sdma_engines 2\n"
          "num_sdma_xgmi_engines 14\n");
    write("1/io_links/0", "node_to 0\nrecommended_sdma_engine_id_mask 0\n");
    write("1/io_links/1", "node_to 2\nrecommended_sdma_engine_id_mask 20\n");
    options_.nodes_path = folder_;
    TransportTeam& team = transports_.team(0);
    team.arch = "gfx942:sramecc+:xnack-";
    team.pci_bus_ids = {"0000:18:00.0", "0001:19:01.0"};
    const uint64_t state = transports_.sdma(0).device();
    plan_.queue_count = kQueues;
    plan_.signal_offset = reinterpret_cast<const cco_sdma_device*>(state)->signal_offset;
    plan_.state_offset = state - team.own_words();
    transports_.stop(0);
  }
  ~KfdTest() override { std::filesystem::remove_all(folder_); }

  static EmulatedTransports::Options node_options() {
    EmulatedTransports::Options options;
    options.sdma = "host";
    options.sdma_plan.queue_count = kQueues;
    return options;
  }
  void write(const std::string& folder, const std::string& properties) {
    std::filesystem::create_directories(folder_ + "/" + folder);
    std::ofstream(folder_ + "/" + folder + "/properties") << properties;
  }
  absl::StatusOr<std::unique_ptr<SdmaProvider>> open() {
    return open_kfd_queues(transports_.team(0), plan_, options_);
  }
  template <typename F>
  static F fake(const char* symbol) {
    void* const library = ::dlopen(CCO_FAKE_HSAKMT, RTLD_NOW);
    return reinterpret_cast<F>(::dlsym(library, symbol));
  }
  static uint32_t alive() { return fake<uint32_t (*)()>("fakeHsakmtAlive")(); }
  static std::string engines() { return fake<const char* (*)()>("fakeHsakmtEngines")(); }

  EmulatedTransports transports_;
  std::string folder_;
  KfdOptions options_;
  SdmaPlan plan_;
};

// Goal    queues are made on the engines that the driver recommends for the peer, one after the
//         other, on a general one within the GPU; everything is given back.
// Method  the fake's books while the provider is there and after.
TEST_F(KfdTest, MakesQueuesOnRecommendedEngines) {
  auto provider = open();
  ASSERT_TRUE(provider.ok()) << provider.status();
  EXPECT_EQ((*provider)->name(), "user-queue");
  EXPECT_EQ(engines(), "0,1,2,4");
  EXPECT_NE((*provider)->describe().find("copy engines 0,1,2,4"), std::string::npos);
  EXPECT_EQ(alive(), 1u + 4 * 2);
  provider->reset();
  EXPECT_EQ(alive(), 0u);
}

// Goal    the tables that kernels see lead to those queues: a put arrives once something consumes
//         the ring.
// Method  the software engine on the places that the tables name.
TEST_F(KfdTest, KernelsReachTheQueues) {
  auto provider = open();
  ASSERT_TRUE(provider.ok()) << provider.status();
  const auto* const device = reinterpret_cast<const cco_sdma_device*>((*provider)->device());
  EXPECT_EQ(device->packets, CCO_SDMA_PACKETS_GFX9);
  const auto* const queues = reinterpret_cast<const cco_sdma_queue*>(device->queues);
  std::vector<SdmaRing> rings;
  for (uint32_t i = 0; i < 2 * kQueues; ++i) {
    rings.push_back({reinterpret_cast<const uint32_t*>(queues[i].ring), queues[i].ring_bytes,
                     reinterpret_cast<uint64_t*>(queues[i].read_index),
                     reinterpret_cast<const uint64_t*>(queues[i].write_index),
                     reinterpret_cast<const uint64_t*>(queues[i].doorbell), "queue"});
  }
  const auto port = open_host_port();
  SdmaEngine engine(device->packets, port.get(), rings, [&](uint64_t address, uint64_t bytes) {
    return transports_.windows(0).contains(address, bytes);
  });
  const EngineThread thread([&engine] { return engine.step(); }, kHostPace);
  device::DeviceComm comm = transports_.comm(0);
  comm.sdma = (*provider)->device();
  const device::Window window = transports_.node().window(0);
  const device::Deadline deadline = device::Deadline::after(comm, testing::kLongNs);
  const device::Sdma sdma(comm);
  std::memset(transports_.node().data(0), 'x', 100);
  for (const uint32_t peer : {1u, 0u}) {
    for (uint32_t queue = 0; queue < kQueues; ++queue) {
      EXPECT_EQ(
          sdma.put<device::kSdmaSignalRemote>(device::ThreadCoop{}, peer, device::at(window, 200),
                                              device::at(window, 0), 100, queue, deadline)
              .status,
          device::WaitStatus::kArrived);
    }
    EXPECT_EQ(sdma.quiet(device::ThreadCoop{}, peer, deadline).status,
              device::WaitStatus::kArrived);
    EXPECT_EQ(std::string(transports_.node().data(peer) + 200, 100), std::string(100, 'x'));
  }
  EXPECT_EQ(device::Sdma(transports_.comm(1)).read_signal(0, 0), 1u);
  EXPECT_TRUE(engine.status().ok()) << engine.status();
}

// Goal    no failing call leaks a queue, a ring or the connection, or is silent.
// Method  fail call 1, then 2, … until all succeed.
TEST_F(KfdTest, EveryFailedCallLeavesNothing) {
  bool completed = false;
  for (int call = 1; !completed; ++call) {
    ASSERT_LT(call, 30) << "it never completes";
    ::setenv("FAKE_HSAKMT_FAIL", std::to_string(call).c_str(), 1);
    const auto provider = open();
    completed = provider.ok();
    if (completed) continue;
    EXPECT_NE(provider.status().message().find("hsaKmt"), std::string::npos) << provider.status();
    EXPECT_EQ(alive(), 0u) << "call " << call;
  }
}

// Goal    an engine without a free queue is passed over; when none has one it is an error that
//         names the peer; engines that are not allowed are not used.
// Method  one queue per engine; then masks.
TEST_F(KfdTest, EnginesRunOut) {
  ::setenv("FAKE_HSAKMT_QUEUES", "1", 1);
  options_.allowed_engines = 1u << 0 | 1u << 1 | 1u << 4;
  const auto scarce = open();
  EXPECT_EQ(scarce.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(scarce.status().message().find("queue 1 to LSA rank 1"), std::string::npos)
      << scarce.status();
  ::unsetenv("FAKE_HSAKMT_QUEUES");
  {
    const auto enough = open();
    ASSERT_TRUE(enough.ok()) << enough.status();
    EXPECT_EQ(engines(), "0,1,4,4");
  }
  options_.allowed_engines = 1;
  EXPECT_EQ(open().status().message(), "no copy engine for LSA rank 1 among those allowed");
  EXPECT_EQ(alive(), 0u);
}

// Goal    what is missing is said: library, function, driver, GPU, architecture, addresses.
// Method  one at a time.
TEST_F(KfdTest, SaysWhatIsMissing) {
  const auto expect = [&](const char* text) {
    const absl::Status status = open().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  };
  ::setenv("CCO_HSAKMT_LIBRARY", "/nowhere/libhsakmt.so", 1);
  expect("CCO_HSAKMT_LIBRARY=\"/nowhere/libhsakmt.so\" cannot be opened");
  ::setenv("CCO_HSAKMT_LIBRARY", "libm.so.6", 1);
  expect("libm.so.6 has no function hsaKmtOpenKFD");
  TransportTeam& team = transports_.team(0);
  team.pci_bus_ids[1] = "0000:99:00.0";
  ::setenv("CCO_HSAKMT_LIBRARY", CCO_FAKE_HSAKMT, 1);
  expect("knows no GPU at PCI address '0000:99:00.0'");
  team.pci_bus_ids.pop_back();
  expect("PCI addresses");
  team.arch = "gfx1100";
  expect("not 'gfx1100'");
  team.arch = "gfx950";
  team.pci_bus_ids = {"0000:18:00.0", "0001:19:01.0"};
  options_.nodes_path = "/nowhere/nodes";
  expect("no folder /nowhere/nodes");
  EXPECT_EQ(alive(), 0u);
}

}  // namespace
}  // namespace cco
