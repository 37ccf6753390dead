// The daemon is killed, or stopped, and another goes on: nobody loses anything.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/integration/raw_session.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

using std::chrono::milliseconds;

class RestartTest : public KeptNodeTest {};

// What two ranks of this process hold, with a pattern in every window.
struct Holdings {
  explicit Holdings(const Client& client) : groups(form_group(client, "job", 2)) {
    windows.push_back(form_window(groups, "small", {.size_bytes = 4096}));
    windows.push_back(form_window(groups, "large", {.size_bytes = 6 << 20}));
    uint8_t value = 1;
    for (const auto& window : windows) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        std::memset(own(window[rank], rank), value++, 4096);
      }
    }
  }
  static uint8_t* own(const Window& window, uint32_t rank) {
    unsigned char* address = nullptr;
    EXPECT_TRUE(succeeded(window.get_address(rank, 0, &address)));
    return address;
  }
  // Through the other rank's mapping.
  void expect_bytes() const {
    uint8_t value = 1;
    for (const auto& window : windows) {
      for (uint32_t rank = 0; rank < 2; ++rank, ++value) {
        const uint8_t* bytes = own(window[1 - rank], rank);
        for (int i = 0; i < 4096; ++i) ASSERT_EQ(bytes[i], value) << "byte " << i;
      }
    }
  }

  std::vector<Group> groups;
  std::vector<std::vector<Window>> windows;
};

::testing::AssertionResult barrier(const std::vector<Group>& groups) {
  return all_succeeded(on_threads(static_cast<uint32_t>(groups.size()),
                                  [&](uint32_t rank) { return groups[rank].barrier(20000); }));
}

// Goal    after kill -9, and after an orderly stop, the next daemon knows all that was there, and
//         the client goes on with the same handles: old windows, new windows, barriers.
TEST_F(RestartTest, ClientsGoOn) {
  const Client client = attach(20000);
  Holdings holdings(client);
  const NodeLedger held = watch->now();
  for (const bool orderly : {false, true, false}) {
    if (orderly) {
      EXPECT_EQ(daemon->stop(), 0) << daemon->log();
      start_kept();
    } else {
      kill_and_start();
    }
    EXPECT_TRUE(daemon->logs("state_adopted"));
    EXPECT_TRUE(watch->becomes([&](NodeLedger ledger) {
      ledger.open_fds = held.open_fds;  // What is adopted needs fewer.
      return ledger == held;
    })) << daemon->log();
    holdings.expect_bytes();
    EXPECT_TRUE(barrier(holdings.groups));
    const auto more = form_window(holdings.groups, "more", {.size_bytes = 3 << 20});
    EXPECT_TRUE(barrier(holdings.groups));
  }
}

// Goal    collective calls that are under way when the daemon is killed end well.
// Method  rank 0 waits in a barrier, and in the making of a window, when it is killed; rank 1 comes
//         to the next daemon.
TEST_F(RestartTest, CallsUnderWayEndWell) {
  const Client client = attach(20000);
  Holdings holdings(client);
  Window made[2];
  std::thread waiting([&] {
    EXPECT_TRUE(succeeded(holdings.groups[0].barrier(60000)));
    EXPECT_TRUE(succeeded(Window::create(holdings.groups[0], "late",
                                         {.size_bytes = 4096, .timeout_ms = 60000}, &made[0])));
  });
  const auto somebody_waits = [this] {
    const Stopwatch time;
    while (watch->pending().empty() && time.elapsed() < patience()) std::this_thread::yield();
    EXPECT_FALSE(watch->pending().empty());
  };
  somebody_waits();
  kill_and_start();
  EXPECT_TRUE(succeeded(holdings.groups[1].barrier(60000)));
  somebody_waits();
  kill_and_start();
  EXPECT_TRUE(succeeded(Window::create(holdings.groups[1], "late",
                                       {.size_bytes = 4096, .timeout_ms = 60000}, &made[1])));
  waiting.join();
}

void put_until_told(Rank& rank) {
  const Client client = attach(rank, 20000);
  const Group group = join(client, rank);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 4096}, &window)));
  unsigned char* address = nullptr;
  ASSERT_TRUE(succeeded(window.get_address(1 - rank.rank, 0, &address)));
  auto* theirs = reinterpret_cast<std::atomic<uint64_t>*>(address);
  ASSERT_TRUE(succeeded(window.get_address(rank.rank, 0, &address)));
  auto* ours = reinterpret_cast<std::atomic<uint64_t>*>(address);
  rank.say("ready");
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> count{0};
  std::thread listener([&] {
    while (rank.hear() != "stop") {
      const uint64_t mark = count;
      const Stopwatch time;
      while (count == mark && time.elapsed() < patience()) std::this_thread::yield();
      rank.say(count > mark ? "goes on" : "stands still");
    }
    stop = true;
  });
  // Each step is an answer to the peer's: a lost one stops both.
  for (; !stop; ++count) {
    *theirs = count + 1;
    while (!stop && *ours < count + 1) std::this_thread::yield();
  }
  listener.join();
  EXPECT_TRUE(succeeded(group.check()));
  EXPECT_TRUE(succeeded(group.barrier(20000)));
}

// Goal    what runs on mapped memory never notices: stores between two processes go on while the
//         daemon is killed and another started, again and again.
TEST_F(RestartTest, RunningWorkNeverNotices) {
  Ranks pair(2, put_until_told, ranks());
  EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"ready", "ready"}));
  for (int i = 0; i < 3; ++i) {
    daemon->kill();
    for (const bool is_back : {false, true}) {
      if (is_back) start_kept();
      pair.tell_all("and now?");
      EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"goes on", "goes on"}));
    }
  }
  pair.tell_all("stop");
  pair.expect_success();
}

void attach_and_wait(Rank& rank) {
  const Client client = attach(rank, 20000);
  const Group group = join(client, rank);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 1 << 20}, &window)));
  rank.say("ready");
  rank.hear();
  const Outcome result = outcome(group.barrier(20000));
  rank.say(absl::StrCat(cco_status_name(result.status), " ", result.rank));
  rank.hear();
}

// Goal    who dies while no daemon runs is found dead by the next: the survivor learns which rank,
//         and all memory comes back.
TEST_F(RestartTest, DeathsMeanwhileAreNoticed) {
  Ranks pair(2, attach_and_wait, ranks());
  EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"ready", "ready"}));
  daemon->kill();
  pair.signal(1, SIGKILL);
  pair.wait(1);
  start_kept();
  pair.tell(0, "go on");
  EXPECT_EQ(pair.hear(0), "CCO_ABORTED 1");
  pair.tell(0, "end");
  pair.expect_success();
}

// Goal    all die while no daemon runs: the next one holds nothing.
TEST_F(RestartTest, NothingIsLeftOfTheDead) {
  Ranks pair(2, attach_and_wait, ranks());
  EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"ready", "ready"}));
  daemon->kill();
  for (uint32_t rank = 0; rank < 2; ++rank) pair.signal(rank, SIGKILL);
  pair.expect_success();
  start_kept();
}

// Goal    a keeper that dies is replaced and filled again, so that a later kill costs nothing.
TEST_F(RestartTest, KeeperDies) {
  const Client client = attach(20000);
  Holdings holdings(client);
  const pid_t keeper_pid = keeper();
  ASSERT_GT(keeper_pid, 0);
  ::kill(keeper_pid, SIGKILL);
  EXPECT_TRUE(daemon->logs("vault_refilled"));
  kill_and_start();
  holdings.expect_bytes();
  EXPECT_TRUE(barrier(holdings.groups));
  form_window(holdings.groups, "more", {.size_bytes = 3 << 20});
}

// Goal    a lease outlives the daemon: what is unused stays the job's, which goes on under it, and
//         who has the token finds it again.
TEST_F(RestartTest, LeasesGoOn) {
  constexpr uint64_t kBytes = 32 << 20;
  auto root = std::make_unique<RawSession>(socket_path());
  v1::CreateLeaseRequest request;
  request.set_request_id(new_request_id());
  request.add_gpu_uuids("HOST-0");
  request.set_bytes_per_gpu(kBytes);
  request.set_ttl_ms(3'600'000);
  v1::CreateLeaseResponse lease;
  ASSERT_TRUE(root->call(&Stub::CreateLease, request, &lease).ok());
  const std::string token = absl::BytesToHexString(lease.token());
  const Client client = attach(20000);
  Group first, second;
  Window small, large, more;
  EXPECT_TRUE(succeeded(Group::create(
      client, {.rank = 0, .size = 1, .name = "first", .lease = token.c_str()}, &first)));
  EXPECT_TRUE(succeeded(Window::create(first, "small", {.size_bytes = 4096}, &small)));
  const NodeLedger held = watch->now();
  EXPECT_EQ(held.gpus[0].slab_bytes + held.gpus[0].reserved_bytes, kBytes);
  kill_and_start();
  EXPECT_TRUE(watch->becomes([&](const NodeLedger& ledger) { return ledger.gpus == held.gpus; }));
  EXPECT_TRUE(succeeded(Window::create(first, "large", {.size_bytes = 16 << 20}, &large)));
  EXPECT_TRUE(succeeded(Group::create(
      client, {.rank = 0, .size = 1, .name = "second", .lease = token.c_str()}, &second)));
  EXPECT_TRUE(refused(Window::create(second, "more", {.size_bytes = 16 << 20}, &more),
                      CCO_RESOURCE_EXHAUSTED, {"lease 1 has 33554432 bytes there"}));
  v1::EndLeaseRequest end;
  end.set_request_id(new_request_id());
  end.set_lease_id(lease.lease_id());
  v1::EndLeaseResponse ended;
  EXPECT_TRUE(root->call(&Stub::EndLease, end, &ended).ok());
  root->connection().end(patience());
  root.reset();
  kill_and_start();
  EXPECT_EQ(watch->now().sessions, 2u);
  EXPECT_EQ(watch->now().reserved_bytes(), 0u);
  EXPECT_TRUE(succeeded(Window::create(second, "more", {.size_bytes = 16 << 20}, &more)));
}

// Goal    who waits for memory when the daemon is killed waits on with the next, who holds it is
//         told by the next as by the last, and memory comes as ever.
TEST_F(RestartTest, WaitsForMemoryGoOn) {
  const Client client = attach(20000);
  std::vector<Group> holder = form_group(client, "holder", 1);
  const std::vector<Group> waiter = form_group(client, "waiter", 1);
  std::vector<Window> held = form_window(holder, "held", {.size_bytes = 200 << 20});
  const auto conditions = [&] {
    uint32_t bits = ~uint32_t{0};
    EXPECT_TRUE(succeeded(holder[0].get_conditions(&bits)));
    return bits;
  };
  const auto is_told = [&] {
    const Stopwatch time;
    while (conditions() == 0 && time.elapsed() < patience()) std::this_thread::yield();
    return conditions() == CCO_CONDITION_MEMORY_PRESSURE;
  };
  Window window;
  std::thread waits([&] {
    EXPECT_TRUE(succeeded(Window::create(
        waiter[0], "w", {.size_bytes = 100 << 20, .timeout_ms = 60000, .wait_for_memory_ms = 60000},
        &window)));
  });
  EXPECT_TRUE(is_told());
  kill_and_start();
  EXPECT_TRUE(daemon->logs("event=memory_pressure gpu=HOST-0"));
  EXPECT_TRUE(is_told());
  held.clear();
  holder.clear();
  waits.join();
}

// Goal    if daemon and keeper die together, that is said, mapped memory stays, and the group ends
//         with the reason.
TEST_F(RestartTest, DaemonAndKeeperDie) {
  const Client client = attach(20000);
  Holdings holdings(client);
  const pid_t keeper_pid = keeper();
  ASSERT_GT(keeper_pid, 0);
  daemon->signal(SIGSTOP);  // Or it would replace it.
  ::kill(keeper_pid, SIGKILL);
  kill_and_start();
  EXPECT_TRUE(daemon->logs("state_lost"));
  holdings.expect_bytes();
  EXPECT_TRUE(refused(holdings.groups[0].barrier(20000), CCO_ABORTED,
                      {"cco-memd and what kept its descriptors have both ended"}));
}

// Goal    after a start of the machine nothing is gone on with, which is said, once.
// Method  in a mount namespace of the test's own the kernel's boot id is another file.
TEST_F(RestartTest, ANewBootIsSaidOnce) {
  constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";
  const std::string other = folder() + "/boot_id";
  std::ofstream(other) << "01234567-89ab-cdef-0123-456789abcdef\n";
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "another boot id takes root: " << std::strerror(errno);
  }
  Ranks pair(2, attach_and_wait, ranks());
  EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"ready", "ready"}));
  watch.reset();
  for (uint32_t rank = 0; rank < 2; ++rank) pair.signal(rank, SIGKILL);
  daemon->signal(SIGSTOP);  // As all is gone at once.
  ::kill(keeper(), SIGKILL);
  daemon->kill();
  pair.expect_success();
  ASSERT_EQ(::mount(other.c_str(), kBootId, nullptr, MS_BIND, nullptr), 0) << std::strerror(errno);
  start_kept();
  EXPECT_TRUE(daemon->logs("event=state_discarded records="));
  watch = std::make_unique<NodeWatch>(socket_path());
  EXPECT_TRUE(watch->settles_at(before));
  kill_and_start();
  EXPECT_EQ(daemon->log().find("state_discarded"), std::string::npos) << daemon->log();
  EXPECT_EQ(daemon->log().find("state_lost"), std::string::npos) << daemon->log();
  ASSERT_EQ(::umount(kBootId), 0);
}

// Goal    a second daemon on one state is refused, and the first goes on.
TEST_F(RestartTest, OneDaemonPerState) {
  const TempDir other;
  const Ended second = run_memd(
      {"--driver", "host", "--socket", other.file("memd.sock"), "--state-dir", state_dir()});
  EXPECT_NE(second.exit_code, 0);
  EXPECT_NE(second.output.find(state_dir()), std::string::npos) << second.output;
  EXPECT_TRUE(watch->answers());
}

}  // namespace
}  // namespace cco::test
