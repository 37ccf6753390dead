// A GPU driver that fails or hangs beneath the daemon.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "device/runtime/host_driver.h"
#include "tests/support/calls.h"
#include "tests/support/embedded_daemon.h"
#include "tests/support/faulty_gpu_driver.h"
#include "tests/support/node_watch.h"
#include "tests/support/patience.h"
#include "tests/support/stuck_gpu_driver.h"

namespace cco::test {
namespace {

constexpr uint64_t kGpuBytes = 64u << 20;

std::unique_ptr<HostDriver> open_host() {
  auto driver = HostDriver::create(3, kGpuBytes);
  EXPECT_TRUE(driver.ok()) << driver.status();
  return *std::move(driver);
}

memd::Config config() {
  memd::Config config;
  config.driver = {DriverKind::kHost, 3, kGpuBytes};
  return config;
}

cco_status join(const Client& client, uint32_t rank, uint32_t size, int device, const char* name,
                uint32_t timeout_ms, Group* group) {
  return Group::create(
      client,
      {.rank = rank, .size = size, .device = device, .name = name, .timeout_ms = timeout_ms},
      group);
}

// Goal    a GPU that does not answer delays nobody who does not need it; those who do are told.
// Method  GPU 1 hangs in its driver while a group with it forms; groups elsewhere form, work and
//         end; the ranks that wait get their time-out; then the GPU answers, and nothing is left.
TEST(StuckGpu, DelaysNobodyElse) {
  const std::unique_ptr<HostDriver> host = open_host();
  StuckGpuDriver driver(*host, 1);
  {
    EmbeddedDaemon daemon(driver, config());
    NodeWatch watch(daemon.socket_path());
    const NodeLedger before = watch.now();
    {
      Client client;
      ASSERT_TRUE(succeeded(Client::create({daemon.socket_path().c_str(), 20000}, &client)));
      std::vector<Group> stuck(2);
      const Stopwatch time;
      std::vector<std::thread> threads;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
          const cco_status status =
              join(client, rank, 2, static_cast<int>(rank), "stuck", 2000, &stuck[rank]);
          EXPECT_TRUE(refused(
              status, CCO_DEADLINE_EXCEEDED,
              {"all ranks came", "allocation of the control regions", "2000 ms", "ccoctl gpus"}));
        });
      }
      while (watch.busy_ms(1) == 0 && time.elapsed() < patience()) std::this_thread::yield();
      EXPECT_GT(watch.busy_ms(1), 0u);
      for (const int device : {0, 2}) {
        Group group;
        EXPECT_TRUE(succeeded(join(client, 0, 1, device, "free", 20000, &group)));
        Window window;
        EXPECT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 4096}, &window)));
      }
      for (std::thread& thread : threads) thread.join();
      Group again;
      EXPECT_TRUE(refused(join(client, 0, 2, 0, "stuck", 2000, &again), CCO_UNAVAILABLE,
                          {"still ending", "try again"}));
      driver.let_through();
      EXPECT_TRUE(watch.becomes([](const NodeLedger& ledger) { return ledger.groups == 0; }));
      EXPECT_TRUE(all_succeeded(on_threads(2, [&](uint32_t rank) {
        return join(client, rank, 2, static_cast<int>(rank), "stuck", 20000, &stuck[rank]);
      })));
    }
    EXPECT_TRUE(watch.settles_at(before));
  }
  EXPECT_EQ(host->allocation_count(), 0u);
}

// Goal    a rank that dies while its group's memory is being allocated leaves nothing behind.
// Method  as above, but the client goes away before the GPU answers.
TEST(StuckGpu, ClientGoesMeanwhile) {
  const std::unique_ptr<HostDriver> host = open_host();
  StuckGpuDriver driver(*host, 1);
  {
    EmbeddedDaemon daemon(driver, config());
    NodeWatch watch(daemon.socket_path());
    const NodeLedger before = watch.now();
    {
      Client client;
      ASSERT_TRUE(succeeded(Client::create({daemon.socket_path().c_str(), 20000}, &client)));
      Group group;
      EXPECT_EQ(join(client, 0, 1, 1, "stuck", 100, &group), CCO_DEADLINE_EXCEEDED);
    }
    EXPECT_TRUE(watch.becomes([](const NodeLedger& ledger) { return ledger.sessions == 1; }));
    driver.let_through();
    EXPECT_TRUE(watch.settles_at(before));
  }
  EXPECT_EQ(host->allocation_count(), 0u);
}

// What two ranks do: a group, a window that needs a new slab, and one larger than a slab.
std::vector<Outcome> work(const Client& client) {
  std::vector<Group> groups(2);
  std::vector<Window> windows(4);
  std::vector<Outcome> outcomes;
  const auto together = [&](auto call) {
    const std::vector<Outcome> both = on_threads(2, call);
    outcomes.insert(outcomes.end(), both.begin(), both.end());
    return both[0].status == CCO_OK && both[1].status == CCO_OK;
  };
  if (together(
          [&](uint32_t rank) { return join(client, rank, 2, 0, "job", 20000, &groups[rank]); })) {
    (void)together([&](uint32_t rank) {
      return Window::create(groups[rank], "small", {.size_bytes = 100}, &windows[rank]);
    });
    (void)together([&](uint32_t rank) {
      return Window::create(groups[rank], "large", {.size_bytes = 6u << 20}, &windows[2 + rank]);
    });
  }
  return outcomes;
}

// Goal    whatever driver call fails, every rank gets that failure, and neither memory nor
//         descriptors nor books are the worse for it.
// Method  fail the daemon's driver call 0, then 1, … until everything gets through.
TEST(FailingGpu, EveryCallInTurn) {
  const std::unique_ptr<HostDriver> host = open_host();
  bool completed = false;
  for (uint32_t call = 0; !completed; ++call) {
    ASSERT_LT(call, 40u) << "it never gets through";
    FaultyGpuDriver driver(*host, call);
    {
      EmbeddedDaemon daemon(driver, config());
      NodeWatch watch(daemon.socket_path());
      const NodeLedger before = watch.now();
      {
        Client client;
        ASSERT_TRUE(succeeded(Client::create({daemon.socket_path().c_str(), 20000}, &client)));
        completed = true;
        for (const Outcome& result : work(client)) {
          if (result.status == CCO_OK) continue;
          completed = false;
          EXPECT_TRUE(refused(result, CCO_UNAVAILABLE, {"injected"})) << "call " << call;
        }
        EXPECT_TRUE(completed || all_succeeded(work(client))) << "call " << call;  // It was one.
      }
      EXPECT_TRUE(watch.settles_at(before)) << "call " << call;
    }
    EXPECT_EQ(host->allocation_count(), 0u) << "call " << call;
  }
}

}  // namespace
}  // namespace cco::test
