// The daemon is missing, stopped or killed: every call ends, in time, and says so.
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kLocalMs = 400, kCollectiveMs = 700;

class DaemonLossTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
};

// Two ranks in this process, with one of everything, and calls of rank 0 that need the daemon; the
// collective ones wait for rank 1, which does not come.
struct Work {
  explicit Work(const std::string& socket_path) {
    EXPECT_TRUE(succeeded(Client::create({socket_path.c_str(), kLocalMs}, &client)));
    groups = form_group(client, "job", 2);
    windows = form_window(groups, "w", {.size_bytes = 4096});
  }
  std::vector<std::pair<std::string, std::function<cco_status()>>> calls() {
    return {
        {"barrier", [this] { return groups[0].barrier(kCollectiveMs); }},
        {"window",
         [this] {
           Window window;
           return Window::create(groups[0], "x", {.size_bytes = 8, .timeout_ms = kCollectiveMs},
                                 &window);
         }},
        {"comm",
         [this] {
           Comm comm;
           return Comm::create(groups[0], {.signal_count = 1, .timeout_ms = kCollectiveMs}, &comm);
         }},
        {"group",
         [this] {
           Group group;
           return Group::create(
               client, {.rank = 0, .size = 2, .name = "x", .timeout_ms = kCollectiveMs}, &group);
         }},
        {"abort", [this] { return groups[0].abort(); }},
    };
  }

  Client client;
  std::vector<Group> groups;
  std::vector<Window> windows;
};

// Goal    without a daemon a client learns it at once, and what to check.
// Method  a path where nothing is; a socket whose daemon was killed.
TEST_F(DaemonLossTest, Missing) {
  const TempDir folder;
  Client client;
  const Stopwatch time;
  EXPECT_TRUE(refused(Client::create({folder.file("memd.sock").c_str(), 0}, &client),
                      CCO_UNAVAILABLE, {folder.path(), "No such file", "Is cco-memd running"}));
  forget_daemon();
  daemon->kill();
  EXPECT_TRUE(refused(Client::create({daemon->socket_path().c_str(), 0}, &client), CCO_UNAVAILABLE,
                      {daemon->socket_path().substr(0, 10), "no cco-memd listens"}));
  EXPECT_LT(time.elapsed(), patient(milliseconds(1000)));
}

// Goal    calls that are under way when the daemon is killed end at once with UNAVAILABLE, and so
//         do later ones; what needs no daemon still works.
// Method  every call once with the kill in the middle, on a thread; then all of them again.
TEST_F(DaemonLossTest, Killed) {
  Work work(daemon->socket_path());
  std::vector<std::thread> threads;
  std::vector<Outcome> outcomes(2);
  threads.emplace_back([&] { outcomes[0] = outcome(work.groups[0].barrier(60000)); });
  threads.emplace_back([&] {
    Window window;
    outcomes[1] = outcome(
        Window::create(work.groups[0], "x", {.size_bytes = 8, .timeout_ms = 60000}, &window));
  });
  while (watch->pending().size() < 2) std::this_thread::yield();
  forget_daemon();
  const Stopwatch time;
  daemon->kill();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(time.elapsed(), patient(milliseconds(2000)));
  for (const Outcome& result : outcomes) {
    EXPECT_TRUE(refused(result, CCO_UNAVAILABLE, {daemon->socket_path(), "has gone"}));
  }
  for (const auto& [name, call] : work.calls()) {
    const Stopwatch each;
    EXPECT_TRUE(refused(call(), CCO_UNAVAILABLE, {"has gone"})) << name;
    EXPECT_LT(each.elapsed(), patient(milliseconds(1000))) << name;
  }
  unsigned char* peer = nullptr;
  ASSERT_TRUE(succeeded(work.windows[0].get_address(1, 0, &peer)));
  *peer = 1;
  EXPECT_TRUE(succeeded(work.groups[0].check()));
  const Stopwatch ending;
  work.windows.clear();
  work.groups.clear();
  work.client = Client();
  EXPECT_LT(ending.elapsed(), patient(milliseconds(2000)));
}

void work_without_an_answer(Rank& rank) {
  Work work(rank.socket_path);
  rank.say("stop it");
  rank.hear();
  for (const auto& [name, call] : work.calls()) {
    const Stopwatch each;
    EXPECT_TRUE(refused(call(), CCO_DEADLINE_EXCEEDED, {"has not answered", "stopped"})) << name;
    EXPECT_LT(each.elapsed(), patient(milliseconds(kCollectiveMs + 1000 + 500))) << name;
  }
  const Stopwatch attaching;
  Client late;
  EXPECT_TRUE(refused(Client::create({rank.socket_path.c_str(), kLocalMs}, &late),
                      CCO_DEADLINE_EXCEEDED, {"has not answered within"}));
  EXPECT_LT(attaching.elapsed(), patient(milliseconds(kLocalMs + 1500)));
  EXPECT_TRUE(succeeded(work.groups[0].check()));
  const Stopwatch ending;
  work.windows.clear();
  work.groups.clear();
  work.client = Client();
  EXPECT_LT(ending.elapsed(), patient(milliseconds(4000)));
  rank.say("done");
  rank.hear();
}

// Goal    calls to a daemon that does not run end within their own time plus a second, and name it;
//         when it runs again, it has lost nothing, and keeps nothing once the client has exited.
// Method  SIGSTOP, every call with a clock beside it, ending everything, SIGCONT.
TEST_F(DaemonLossTest, Stopped) {
  Ranks child(1, work_without_an_answer, ranks());
  ASSERT_EQ(child.hear(0), "stop it");
  daemon->signal(SIGSTOP);
  child.tell(0, "stopped");
  EXPECT_EQ(child.hear(0), "done");
  daemon->signal(SIGCONT);
  EXPECT_TRUE(watch->answers());
  child.tell(0, "end");
  child.expect_success();
}

// Goal    a call that ran out of time while the daemon was stopped can be made again: it is joined,
//         not doubled.
// Method  a barrier whose answer is lost to SIGSTOP, then again on both ranks after SIGCONT.
TEST_F(DaemonLossTest, StoppedForAWhile) {
  Work work(daemon->socket_path());
  daemon->signal(SIGSTOP);
  EXPECT_EQ(work.groups[0].barrier(kCollectiveMs), CCO_DEADLINE_EXCEEDED);
  daemon->signal(SIGCONT);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(all_succeeded(
        on_threads(2, [&](uint32_t rank) { return work.groups[rank].barrier(20000); })));
  }
  form_window(work.groups, "after", {.size_bytes = 16});
}

// Goal    after a crash the next daemon takes over the place, and new clients work at once.
// Method  kill and start ten times; two clients attach each time, in time; old ones say what to do.
TEST_F(DaemonLossTest, KilledAndStartedAgain) {
  const std::string socket_path = daemon->socket_path();
  const TempDir folder;
  DaemonProcess::Options options;
  options.socket_path = folder.file("memd.sock");
  forget_daemon();
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    start(options);
    const Stopwatch time;
    Client clients[2];
    for (Client& client : clients) {
      EXPECT_TRUE(succeeded(Client::create({options.socket_path.c_str(), 0}, &client)));
    }
    EXPECT_LT(time.elapsed(), patient(milliseconds(1000)));
    forget_daemon();
    daemon->kill();
    Group group;
    EXPECT_TRUE(refused(Group::create(clients[0], {.rank = 0, .size = 1, .name = "x"}, &group),
                        CCO_UNAVAILABLE, {"has gone", "Make a new client"}));
  }
}

}  // namespace
}  // namespace cco::test
