// Memory that is short: holders are told, and who waits gets it in turn.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/integration/ccoctl.h"
#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

constexpr uint32_t kLongMs = 60000;

class MemoryTest : public NodeTest {
 protected:
  void start_small(const std::string& more = "") {
    start_with(
        "socket_mode: '0666' host { device_count: 1 bytes_per_device: 16777216 } "
        "slab_bytes: 1048576 control_bytes: 65536 " +
        more);
  }
  // Looks until as many calls wait for memory.
  void expect_waiting(uint32_t count) {
    RawSession session(daemon->socket_path());
    const Stopwatch time;
    v1::GetNodeResponse node;
    do {
      ASSERT_TRUE(session.call(&Stub::GetNode, v1::GetNodeRequest(), &node).ok());
    } while (node.gpus(0).waiting_count() != count && time.elapsed() < patience());
    EXPECT_EQ(node.gpus(0).waiting_count(), count);
  }
};

uint32_t conditions_of(const Group& group) {
  uint32_t conditions = ~uint32_t{0};
  EXPECT_TRUE(succeeded(group.get_conditions(&conditions)));
  return conditions;
}

// Holds as many MiB as the argument says until it sees that somebody needs them.
void hold_until_needed(Rank& rank) {
  const Client client = test::attach(rank);
  Group group = join(client, rank, absl::StrCat("holder of pid ", ::getpid()).c_str());
  Window window;
  ASSERT_TRUE(succeeded(
      Window::create(group, "w", {.size_bytes = std::stoull(rank.argument) << 20}, &window)));
  EXPECT_EQ(conditions_of(group), 0u);
  rank.say("holds");
  const Stopwatch time;
  while (conditions_of(group) == 0 && time.elapsed() < patience()) std::this_thread::yield();
  EXPECT_EQ(conditions_of(group), CCO_CONDITION_MEMORY_PRESSURE);
  window = Window();
  group = Group();
  rank.say("left");
  rank.hear();
}

// Goal    a process that holds memory learns that another waits for it, and gives it up; then the
//         other gets it, and the pressure is over.
TEST_F(MemoryTest, HoldersAreTold) {
  start_small();
  Ranks holder(1, hold_until_needed, ranks("12"));
  ASSERT_EQ(holder.hear(0), "holds");
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "waiter", 1);
  Window window;
  EXPECT_TRUE(refused(Window::create(groups[0], "w", {.size_bytes = 8 << 20}, &window),
                      CCO_RESOURCE_EXHAUSTED, {"slab of 8388608 bytes on HOST-0: free"}));
  EXPECT_TRUE(succeeded(Window::create(
      groups[0], "w", {.size_bytes = 8 << 20, .timeout_ms = kLongMs, .wait_for_memory_ms = kLongMs},
      &window)));
  EXPECT_EQ(conditions_of(groups[0]), 0u);
  EXPECT_EQ(holder.hear(0), "left");
  EXPECT_TRUE(daemon->logs("event=memory_pressure gpu=HOST-0"));
  EXPECT_TRUE(daemon->logs("event=memory_pressure_over gpu=HOST-0"));
  holder.tell(0, "end");
  holder.expect_success();
}

// Goal    a wait ends when its time is over, with who has how much; `ccoctl gpus` shows it while it
//         lasts.
TEST_F(MemoryTest, Deadline) {
  start_small();
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 1);
  Window held, window;
  ASSERT_TRUE(succeeded(Window::create(groups[0], "held", {.size_bytes = 12 << 20}, &held)));
  EXPECT_TRUE(refused(
      Window::create(groups[0], "w", {.size_bytes = 8 << 20, .wait_for_memory_ms = 50}, &window),
      CCO_RESOURCE_EXHAUSTED,
      {"slab of 8388608 bytes on HOST-0: free", "it was number 1 in turn",
       absl::StrCat("pid ", ::getpid(), " 12648448")}));
  std::thread waits([&] {
    EXPECT_TRUE(refused(
        Window::create(
            groups[0], "w",
            {.size_bytes = 8 << 20, .timeout_ms = kLongMs, .wait_for_memory_ms = kLongMs}, &window),
        CCO_ABORTED, {"rank 0 aborted it"}));
  });
  expect_waiting(1);
  EXPECT_NE(ccoctl(daemon->socket_path(), {"gpus"}).find("1: 8 MiB"), std::string::npos);
  EXPECT_TRUE(succeeded(groups[0].abort()));
  waits.join();
  expect_waiting(0);
}

// A window of eight MiB that is waited for.
void wait_for_window(Rank& rank) {
  const Client client = test::attach(rank);
  const Group group = join(client, rank, "waiter");
  Window window;
  EXPECT_TRUE(succeeded(Window::create(
      group, "w", {.size_bytes = 8 << 20, .timeout_ms = kLongMs, .wait_for_memory_ms = kLongMs},
      &window)));
  rank.say(rank.argument);
  rank.hear();
}

// Goal    a tenant of higher priority gets memory before one that has waited longer.
TEST_F(MemoryTest, PriorityFirst) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot play other users";
  start_small("tenants { name: 'urgent' uid: 1001 priority: 1 }");
  const Client client = attach();
  std::vector<Group> groups = form_group(client, "holder", 1);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(groups[0], "w", {.size_bytes = 14 << 20}, &window)));
  Ranks::Options low = ranks("low"), high = ranks("high");
  low.wrapper = {"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"};
  high.wrapper = {"setpriv", "--reuid=1001", "--regid=1001", "--clear-groups"};
  Ranks first(1, wait_for_window, low);
  expect_waiting(1);
  Ranks second(1, wait_for_window, high);
  expect_waiting(2);
  window = Window();
  groups.clear();
  EXPECT_EQ(second.hear(0), "high");
  expect_waiting(1);
  second.tell(0, "end");
  second.expect_success();
  EXPECT_EQ(first.hear(0), "low");
  first.tell(0, "end");
  first.expect_success();
}

// Goal    a process that is killed while it waits is waited for no longer, nor holds others up.
TEST_F(MemoryTest, TheDeadDoNotWait) {
  start_small();
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "holder", 1);
  Window window, more;
  ASSERT_TRUE(succeeded(Window::create(groups[0], "w", {.size_bytes = 10 << 20}, &window)));
  Ranks waiter(1, wait_for_window, ranks());
  expect_waiting(1);
  EXPECT_TRUE(refused(Window::create(groups[0], "more", {.size_bytes = 2 << 20}, &more),
                      CCO_RESOURCE_EXHAUSTED, {"others wait before it for 8388608"}));
  waiter.signal(0, SIGKILL);
  waiter.expect_success();
  expect_waiting(0);
  EXPECT_TRUE(succeeded(Window::create(groups[0], "more", {.size_bytes = 2 << 20}, &more)));
  EXPECT_EQ(conditions_of(groups[0]), 0u);
}

}  // namespace
}  // namespace cco::test
