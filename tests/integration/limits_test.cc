// Limits: each names itself, its value and what it counts, and loses nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using absl::StatusCode;

class LimitsTest : public NodeTest {
 protected:
  Outcome try_attach() {
    Client client;
    return outcome(Client::create({daemon->socket_path().c_str(), 0}, &client));
  }
};

// Goal    one session too many of a tenant is refused; when another ends, there is room.
// Method  a limit of three; the watch is the first.
TEST_F(LimitsTest, SessionsOfATenant) {
  start_with("limits { sessions_per_tenant: 3 }");
  Client first = attach();
  const Client second = attach();
  EXPECT_TRUE(refused(try_attach(), CCO_RESOURCE_EXHAUSTED,
                      {"limits.sessions_per_tenant is 3", "attached"}));
  first = Client();
  EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.sessions == 2; }));
  EXPECT_TRUE(succeeded(try_attach()));
}

void be_refused(Rank& rank) {
  Client client;
  EXPECT_TRUE(refused(outcome(Client::create({rank.socket_path.c_str(), 0}, &client)),
                      CCO_RESOURCE_EXHAUSTED,
                      {"limits.sessions is 3", "3 processes are attached"}));
}

// Goal    one session too many of the node is refused, but for a few of operators.
// Method  a limit of three; the watch is the first. Tests are run by the daemon's own user, who is
//         an operator; as root, another user is played, too.
TEST_F(LimitsTest, Sessions) {
  start_with("socket_mode: '0666' limits { sessions: 3 sessions_per_tenant: 100 }");
  std::vector<Client> clients;
  while (clients.size() < 2) clients.push_back(attach());
  if (::geteuid() == 0) {
    Ranks::Options user = ranks();
    user.wrapper = {"setpriv", "--reuid=1000", "--clear-groups"};
    run_ranks(1, be_refused, user);
  }
  while (clients.size() < 2 + 16) clients.push_back(attach());
  EXPECT_TRUE(refused(try_attach(), CCO_RESOURCE_EXHAUSTED, {"limits.sessions is 3", "19 pro"}));
  clients.pop_back();
  EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.sessions == 18; }));
  EXPECT_TRUE(succeeded(try_attach()));
}

// Goal    one group too many is refused, those that form included.
// Method  a limit of two, one of them forming.
TEST_F(LimitsTest, Groups) {
  start_with("limits { groups: 2 ranks_per_group: 2 tenant_share_percent: 100 }");
  const Client client = attach();
  const std::vector<Group> one = form_group(client, "one", 1);
  Group forming, more;
  std::thread waits([&] {
    EXPECT_TRUE(succeeded(Group::create(client, {.rank = 0, .size = 2, .name = "two"}, &forming)));
  });
  EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.groups == 2; }));
  EXPECT_TRUE(refused(Group::create(client, {.rank = 0, .size = 1, .name = "three"}, &more),
                      CCO_RESOURCE_EXHAUSTED,
                      {"limits.groups is 2", "1 groups run and 1 are forming"}));
  EXPECT_TRUE(refused(Group::create(client, {.rank = 0, .size = 3, .name = "three"}, &more),
                      CCO_RESOURCE_EXHAUSTED, {"limits.ranks_per_group is 2", "3 ranks"}));
  EXPECT_TRUE(succeeded(Group::create(client, {.rank = 1, .size = 2, .name = "two"}, &more)));
  waits.join();
}

// Goal    windows, slabs and bytes have their limits.
// Method  small ones, each reached by one window too many.
TEST_F(LimitsTest, WindowsSlabsBytes) {
  start_with(
      "limits { windows_per_group: 2 slabs_per_group: 3 bytes_per_gpu: 8388608 } "
      "slab_bytes: 1048576 control_bytes: 1048576 "
      "host { device_count: 1 bytes_per_device: 67108864 }");
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 1);
  Window window, more;
  {
    Window first;
    ASSERT_TRUE(succeeded(Window::create(groups[0], "a", {.size_bytes = 8}, &first)));
    ASSERT_TRUE(succeeded(Window::create(groups[0], "b", {.size_bytes = 8}, &window)));
    EXPECT_TRUE(refused(Window::create(groups[0], "c", {.size_bytes = 8}, &more),
                        CCO_RESOURCE_EXHAUSTED, {"limits.windows_per_group is 2", "2 windows"}));
  }
  EXPECT_TRUE(refused(Window::create(groups[0], "c", {.size_bytes = 8 << 20}, &more),
                      CCO_RESOURCE_EXHAUSTED,
                      {"slab of 8388608 bytes on HOST-0", "limits.bytes_per_gpu", "8388608"}));
  {
    Window large;
    ASSERT_TRUE(succeeded(Window::create(groups[0], "c", {.size_bytes = 2 << 20}, &large)));
  }
  EXPECT_TRUE(refused(Window::create(groups[0], "d", {.size_bytes = 3 << 20}, &more),
                      CCO_RESOURCE_EXHAUSTED, {"limits.slabs_per_group is 3"}));
  EXPECT_TRUE(succeeded(Window::create(groups[0], "e", {.size_bytes = 2 << 20}, &more)));
}

// Goal    a session cannot keep more calls waiting than it may, and learns it.
// Method  three barriers of three ranks that nobody else joins; the fourth call is refused.
TEST_F(LimitsTest, Calls) {
  start_with("limits { calls_per_session: 3 }");
  const Client client = attach();
  std::vector<std::thread> threads;
  std::vector<Group> groups(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(Group::create(client, {.rank = rank, .size = 4, .name = "job", .timeout_ms = 2000},
                              &groups[rank]),
                CCO_DEADLINE_EXCEEDED);
    });
  }
  const auto all_wait = [&] {
    const std::vector<std::string> pending = watch->pending();
    return !pending.empty() && pending[0].find("ranks 0,1,2 wait") != std::string::npos;
  };
  const Stopwatch time;
  while (!all_wait() && time.elapsed() < patience()) std::this_thread::yield();
  Group more;
  EXPECT_TRUE(refused(Group::create(client, {.rank = 0, .size = 1, .name = "x"}, &more),
                      CCO_RESOURCE_EXHAUSTED, {"limits.calls_per_session is 3", "3 calls"}));
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(succeeded(Group::create(client, {.rank = 0, .size = 1, .name = "x"}, &more)));
}

// Goal    a client that has no descriptor left is told so, loses nothing, and gets through once it
//         has some.
// Method  a child fills its table, asks for a window in a new slab, makes room and asks again.
TEST_F(LimitsTest, ClientOutOfDescriptors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors itself to look at objects";
#endif
  start();
  run_ranks(
      1,
      [](Rank& rank) {
        const rlimit limit{256, 256};
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        std::vector<UniqueFd> fill;
        for (;;) {
          UniqueFd fd(::dup(0));
          if (!fd) break;
          fill.push_back(std::move(fd));
        }
        Window window;
        EXPECT_TRUE(refused(Window::create(group, "w", {.size_bytes = 4096}, &window),
                            CCO_RESOURCE_EXHAUSTED, {"file descriptor", "RLIMIT_NOFILE=256"}));
        Client other;
        EXPECT_TRUE(refused(Client::create({rank.socket_path.c_str(), 0}, &other),
                            CCO_RESOURCE_EXHAUSTED, {"RLIMIT_NOFILE=256"}));
        fill.resize(fill.size() - 40);
        EXPECT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 4096}, &window)));
        EXPECT_TRUE(succeeded(Client::create({rank.socket_path.c_str(), 0}, &other)));
      },
      ranks());
}

// Attaches until it is refused; keeps what it has until told to end.
void attach_until_refused(Rank& rank) {
  std::vector<Client> clients;
  Outcome last;
  while (clients.size() < 64) {
    Client client;
    last = outcome(Client::create({rank.socket_path.c_str(), 0}, &client));
    if (last.status != CCO_OK) break;
    clients.push_back(std::move(client));
  }
  EXPECT_GT(clients.size(), 4u);
  EXPECT_TRUE(refused(last, CCO_RESOURCE_EXHAUSTED,
                      {"limit of open file descriptors", "RLIMIT_NOFILE=64", "LimitNOFILE"}));
  rank.say("full");
  rank.hear();
}

// Goal    a daemon near its descriptor limit says so to those whom it cannot serve, goes on serving
//         the rest, still lets an operator in, and recovers.
// Method  a limit of 64: a user's clients until one is refused, with the watch answered and root
//         let in; after they left, groups until one is refused; after those, all works.
TEST_F(LimitsTest, DaemonOutOfDescriptors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors itself to look at objects";
#endif
  DaemonProcess::Options options;
  options.config = "socket_mode: '0666'";
  options.wrapper = {"sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\""};
  start(options);
  Ranks::Options user = ranks();
  if (::geteuid() == 0) user.wrapper = {"setpriv", "--reuid=1000", "--clear-groups"};
  Ranks crowd(1, attach_until_refused, user);
  EXPECT_EQ(crowd.hear(0), "full");
  EXPECT_TRUE(watch->answers());
  EXPECT_TRUE(daemon->logs("event=client_refused"));
  EXPECT_TRUE(::geteuid() != 0 || succeeded(try_attach()));
  crowd.tell(0, "end");
  crowd.expect_success();
  EXPECT_TRUE(nothing_left());
  {
    const Client client = attach();
    std::vector<Group> groups;
    Outcome last;
    while (groups.size() < 64) {
      Group group;
      const std::string name = "group" + std::to_string(groups.size());
      last = outcome(Group::create(client, {.rank = 0, .size = 1, .name = name.c_str()}, &group));
      if (last.status != CCO_OK) break;
      groups.push_back(std::move(group));
    }
    EXPECT_TRUE(refused(last, CCO_RESOURCE_EXHAUSTED, {"file descriptor"})) << groups.size();
    EXPECT_TRUE(watch->answers());
  }
  EXPECT_TRUE(nothing_left());
  const Client client = attach();
  form_group(client, "after", 2);
}

// Goal    strangers who take all descriptors do not end the daemon; it recovers when they go.
// Method  a limit of 64, and as many connections to the RPC socket as will be taken.
TEST_F(LimitsTest, StrangersTakeAllDescriptors) {
  DaemonProcess::Options options;
  options.wrapper = {"sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\""};
  start(options);
  {
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 100; ++i) {
      auto socket = connect_unix(daemon->socket_path(), SOCK_STREAM);
      if (socket.ok()) strangers.push_back(*std::move(socket));
    }
    EXPECT_TRUE(daemon->logs("event=client_refused"));
    EXPECT_TRUE(watch->answers());
  }
  EXPECT_TRUE(nothing_left());
  attach();
}

// Goal    the daemon sizes nothing by its descriptor limit.
// Method  the largest limit that this machine allows: it starts in time and stays small.
TEST_F(LimitsTest, HugeDescriptorLimit) {
  DaemonProcess::Options options;
  options.wrapper = {
      "sh", "-c",
      "ulimit -n 1073741816 2> /dev/null || ulimit -n \"$(cat /proc/sys/fs/nr_open)\""
      " 2> /dev/null || true; exec \"$0\" \"$@\""};
  const Stopwatch time;
  start(options);
  EXPECT_LT(time.elapsed(), patient(std::chrono::milliseconds(3000)));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes(daemon->pid()), uint64_t{100} << 20);
#endif
}

// Goal    each session costs the daemon a fixed number of descriptors beyond its slabs.
// Method  ten clients without and with a group.
TEST_F(LimitsTest, DescriptorsPerSession) {
  start();
  std::vector<Client> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(attach());
  EXPECT_TRUE(watch->becomes([&](const NodeLedger& ledger) {
    return ledger.open_fds <= before.open_fds + 10 * 3;  // Two channels and a pidfd.
  }));
}

}  // namespace
}  // namespace cco::test
