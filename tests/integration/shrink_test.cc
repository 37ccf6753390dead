// Ranks die, and the others go on in a new group with the memory that they have.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cco/device.hpp"
#include "cco/device/host_launch.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

constexpr uint32_t kTimeoutMs = 20000;
constexpr uint64_t kLarge = (5 << 20) + 3, kSmall = 777;

CCO_KERNEL void pass_right(device::DeviceComm comm, device::Window mail, uint64_t* received) {
  const device::ThreadCoop self;
  const auto deadline = device::Deadline::after(comm, 20'000'000'000);
  const uint32_t right = (comm.lsa_rank + 1) % comm.lsa_size;
  device::put_value<uint64_t>(right, device::at(mail, 0), comm.rank + 1);
  device::signal_add(self, comm, right, 0, 1);
  const auto signalled = device::wait_at_least(self, comm, 0, 1, deadline);
  if (signalled.status != device::WaitStatus::kArrived) return;
  *received = *device::local_ptr<uint64_t>(mail);
  const auto all = device::LsaBarrier<device::ThreadCoop>(self, comm, 0).sync(deadline);
  if (all.status != device::WaitStatus::kArrived) *received = 0;
}
CCO_KERNEL_TABLE(shrink, pass_right);

unsigned char pattern(uint32_t rank, uint64_t at) {
  return static_cast<unsigned char>(at * 13 + at / 509 + 5 * (rank + 1));
}

// What a rank has: two windows with bytes that say whose they are.
struct Holdings {
  Group group;
  Window large, small;
  std::vector<uint32_t> numbers;  // By rank: what it was at first.

  void fill(uint32_t rank) {
    for (const auto& [window, size] : {std::pair(&large, kLarge), std::pair(&small, kSmall)}) {
      unsigned char* bytes = nullptr;
      ASSERT_TRUE(succeeded(window->get_address(rank, 0, &bytes)));
      for (uint64_t at = 0; at < size; ++at) bytes[at] = pattern(numbers[rank], at);
    }
  }
  void check() const {
    for (const auto& [window, size] : {std::pair(&large, kLarge), std::pair(&small, kSmall)}) {
      for (uint32_t rank = 0; rank < numbers.size(); ++rank) {
        const unsigned char* bytes = nullptr;
        ASSERT_TRUE(succeeded(window->get_address(rank, 0, &bytes)));
        for (uint64_t at = 0; at < size; ++at) {
          ASSERT_EQ(bytes[at], pattern(numbers[rank], at)) << "rank " << rank << ", byte " << at;
        }
      }
    }
  }
  // A window and a communicator that were not there before, and a kernel on them.
  void run_kernel() const {
    Window mail;
    Comm comm;
    ASSERT_TRUE(succeeded(
        Window::create(group, "mail", {.size_bytes = 64, .timeout_ms = kTimeoutMs}, &mail)));
    ASSERT_TRUE(succeeded(Comm::create(
        group, {.signal_count = 1, .barrier_count = 1, .timeout_ms = kTimeoutMs}, &comm)));
    device::DeviceComm comm_view;
    device::Window mail_view;
    ASSERT_TRUE(succeeded(comm.get_device(&comm_view)));
    ASSERT_TRUE(succeeded(mail.get_device(&mail_view)));
    uint64_t received = 0, *result = &received;
    void* arguments[] = {&comm_view, &mail_view, &result};
    device::launch_on_host({}, cco_kernel_table_shrink.entries[0].function, arguments);
    EXPECT_EQ(received, (comm_view.rank + numbers.size() - 1) % numbers.size() + 1);
    EXPECT_TRUE(succeeded(group.barrier(kTimeoutMs)));
  }
  // The next group is of those who were `expected` at first.
  cco_status shrink(const std::vector<uint32_t>& expected, uint32_t timeout_ms) {
    const uint32_t number = own_number();
    Group next;
    const cco_status status = Group::shrink(group, timeout_ms, &next);
    if (status != CCO_OK) return status;
    EXPECT_TRUE(refused(group.barrier(kTimeoutMs), CCO_FAILED_PRECONDITION, {"has been shrunk"}));
    group = std::move(next);
    numbers = expected;
    EXPECT_EQ(own_number(), number);
    EXPECT_TRUE(succeeded(Window::open(group, "large", &large)));
    EXPECT_TRUE(succeeded(Window::open(group, "small", &small)));
    return CCO_OK;
  }
  uint32_t own_number() const {
    cco_group_info info{};
    EXPECT_TRUE(succeeded(group.get_info(&info)));
    EXPECT_EQ(info.size, numbers.size());
    return info.rank < numbers.size() ? numbers[info.rank] : ~0u;
  }
};

Holdings hold(const Client& client, const Rank& rank) {
  Holdings held;
  held.group = join(client, rank);
  for (uint32_t i = 0; i < rank.size; ++i) held.numbers.push_back(i);
  Window unnamed;
  const Group& group = held.group;
  EXPECT_TRUE(succeeded(Window::create(group, nullptr, {.size_bytes = 4096}, &unnamed)));
  EXPECT_TRUE(succeeded(Window::create(group, "large", {.size_bytes = kLarge}, &held.large)));
  EXPECT_TRUE(
      succeeded(Window::create(group, "small", {.size_bytes = kSmall, .keep_ms = 1}, &held.small)));
  held.fill(rank.rank);
  EXPECT_TRUE(succeeded(group.barrier(kTimeoutMs)));
  return held;
}

// Shrinks as it is told: "0,2" are who should be left, by their first numbers.
void go_on(Rank& rank) {
  const Client client = attach(rank, kTimeoutMs);
  Holdings held = hold(client, rank);
  held.check();
  rank.say("ready");
  for (std::string told = rank.hear(); told != "end" && !told.empty(); told = rank.hear()) {
    std::vector<uint32_t> expected;
    for (const absl::string_view number : absl::StrSplit(told, ',')) {
      expected.push_back(0);
      ASSERT_TRUE(absl::SimpleAtoi(number, &expected.back()));
    }
    const cco_status status = held.shrink(expected, kTimeoutMs);
    if (status == CCO_OK) {
      held.check();
      held.run_kernel();
    }
    rank.say(cco_status_name(status));
  }
}

// Its memory for descriptors ends after the daemon has made the next group.
void fail_to_map(Rank& rank) {
  const Client client = attach(rank, kTimeoutMs);
  Holdings held = hold(client, rank);
  rank.say("ready");
  if (rank.rank != 2) {
    for (const char* expected : {"CCO_ABORTED", "CCO_OK"}) {
      rank.hear();
      const cco_status status = held.shrink({0, 1}, kTimeoutMs);
      EXPECT_STREQ(cco_status_name(status), expected) << cco_error_message();
      if (status == CCO_OK) held.check();
      rank.say(cco_status_name(status));
    }
    rank.hear();
    return;
  }
  rank.hear();
  const rlimit none{4, 4};  // What is open stays so.
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  Group next;
  EXPECT_NE(Group::shrink(held.group, kTimeoutMs, &next), CCO_OK);
  rank.say(cco_error_message());
  rank.hear();
}

class ShrinkTest : public KeptNodeTest {
 protected:
  static std::vector<std::string> all(uint32_t count, const std::string& text) {
    return std::vector<std::string>(count, text);
  }
  void wait_until_pending(const std::string& text) {
    const Stopwatch time;
    const auto is_pending = [&] {
      for (const std::string& call : watch->pending()) {
        if (call.find(text) != std::string::npos) return true;
      }
      return false;
    };
    while (!is_pending()) {
      ASSERT_LT(time.elapsed(), patience()) << "nobody waits in: " << text;
      std::this_thread::yield();
    }
  }
  static void kill(Ranks& team, uint32_t rank) {
    team.signal(rank, SIGKILL);
    team.wait(rank);
  }
};

// Goal    when ranks die one after the other, the rest go on each time: every byte of every
//         survivor's windows is as it was, on every rank; kernels and new windows work; the memory
//         of the lost is freed.
TEST_F(ShrinkTest, SurvivorsGoOn) {
  Ranks team(4, go_on, ranks());
  EXPECT_EQ(team.hear_all(), all(4, "ready"));
  const uint64_t bytes_of_four = watch->now().slab_bytes();
  std::vector<uint32_t> left{0, 1, 2, 3};
  for (const uint32_t victim : {1u, 3u}) {
    kill(team, victim);
    left.erase(std::find(left.begin(), left.end(), victim));
    for (const uint32_t rank : left) team.tell(rank, absl::StrJoin(left, ","));
    for (const uint32_t rank : left) EXPECT_EQ(team.hear(rank), "CCO_OK");
    EXPECT_TRUE(watch->becomes([&](const NodeLedger& ledger) {
      return ledger.groups == 1 && ledger.held_bytes() == 0 &&
             ledger.slab_bytes() == bytes_of_four / 4 * left.size();
    }));
  }
  for (const uint32_t rank : left) team.tell(rank, "end");
  team.expect_success();
}

// Goal    who dies while others wait for it is no longer waited for, also over a restart of the
//         daemon.
TEST_F(ShrinkTest, DiesBeforeItComes) {
  for (const bool kills_daemon : {false, true}) {
    Ranks team(4, go_on, ranks());
    EXPECT_EQ(team.hear_all(), all(4, "ready"));
    kill(team, 3);
    for (const uint32_t rank : {0u, 2u}) team.tell(rank, "0,2");
    wait_until_pending("shrinking group");
    if (kills_daemon) {
      kill_and_start();
      wait_until_pending("ranks 0,2 wait");
    }
    kill(team, 1);
    for (const uint32_t rank : {0u, 2u}) EXPECT_EQ(team.hear(rank), "CCO_OK");
    for (const uint32_t rank : {0u, 2u}) team.tell(rank, "end");
    team.expect_success();
  }
}

// Goal    a rank that dies after the next group was made, and before it is in use, ends the call on
//         the others; the same call again works.
// Method  its descriptors run out, so that it cannot map the new group; then it is killed.
TEST_F(ShrinkTest, DiesOnTheWay) {
  Ranks team(3, fail_to_map, ranks());
  EXPECT_EQ(team.hear_all(), all(3, "ready"));
  team.tell_all("go");
  EXPECT_NE(team.hear(2), "");
  kill(team, 2);
  for (const uint32_t rank : {0u, 1u}) EXPECT_EQ(team.hear(rank), "CCO_ABORTED");
  for (const uint32_t rank : {0u, 1u}) team.tell(rank, "again");
  for (const uint32_t rank : {0u, 1u}) EXPECT_EQ(team.hear(rank), "CCO_OK");
  for (const uint32_t rank : {0u, 1u}) team.tell(rank, "end");
  team.expect_success();
}

// Goal    with nobody lost it is the same group again; what does not come along is void, and said.
TEST_F(ShrinkTest, HandlesOfTheOldGroup) {
  const Client client = attach(kTimeoutMs);
  std::vector<Group> groups = form_group(client, "job", 2, kTimeoutMs);
  const auto named = form_window(groups, "named", {.size_bytes = 4096});
  const auto unnamed = form_window(groups, nullptr, {.size_bytes = 4096});
  std::vector<Comm> comms(2);
  EXPECT_TRUE(all_succeeded(on_threads(2, [&](uint32_t rank) {
    return Comm::create(groups[rank], {.signal_count = 1}, &comms[rank]);
  })));
  std::vector<Group> next(2);
  Group late;
  EXPECT_TRUE(refused(Group::shrink(groups[0], 1, &late), CCO_DEADLINE_EXCEEDED, {"rank 1"}));
  EXPECT_TRUE(succeeded(groups[0].check()));
  EXPECT_TRUE(all_succeeded(on_threads(
      2, [&](uint32_t rank) { return Group::shrink(groups[rank], kTimeoutMs, &next[rank]); })));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    void* address = nullptr;
    Window window;
    EXPECT_TRUE(refused(groups[rank].check(), CCO_FAILED_PRECONDITION,
                        {"has been shrunk", "Destroy this handle"}));
    EXPECT_TRUE(refused(Group::shrink(groups[rank], kTimeoutMs, &late), CCO_FAILED_PRECONDITION,
                        {"has been shrunk"}));
    EXPECT_TRUE(refused(named[rank].get_address(0, 0, &address), CCO_INVALID_ARGUMENT,
                        {"has been destroyed"}));
    EXPECT_TRUE(refused(comms[rank].check(), CCO_INVALID_ARGUMENT, {"has been destroyed"}));
    EXPECT_TRUE(refused(Window::open(next[rank], "other", &window), CCO_NOT_FOUND, {"'other'"}));
    EXPECT_TRUE(refused(Window::open(next[rank], "", &window), CCO_INVALID_ARGUMENT, {"name"}));
    EXPECT_TRUE(succeeded(Window::open(next[rank], "named", &window)));
    EXPECT_TRUE(refused(Window::open(next[rank], "named", &window), CCO_ALREADY_EXISTS, {}));
    EXPECT_TRUE(succeeded(window.get_address(1 - rank, 0, &address)));
    groups[rank] = Group();
    EXPECT_TRUE(succeeded(next[rank].check()));
  }
  EXPECT_EQ(watch->now().windows, 0u) << "each rank has destroyed it";
}

}  // namespace
}  // namespace cco::test
