// Windows that outlive their group: contents, time to live, eviction.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "tests/integration/ccoctl.h"
#include "tests/integration/raw_session.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

constexpr uint32_t kTimeoutMs = 20000;
constexpr uint64_t kHourMs = 3'600'000;
constexpr uint64_t kSize = (3 << 20) + 5;

// Nobody is left, and only kept memory.
::testing::AssertionResult all_is_kept(NodeWatch& node) {
  return node.becomes([](const NodeLedger& ledger) {
    return ledger.groups == 0 && ledger.kept_bytes() != 0 &&
           ledger.kept_bytes() == ledger.slab_bytes();
  });
}

::testing::AssertionResult evict(const std::string& socket_path, const std::string& window) {
  RawSession session(socket_path);
  v1::ListKeptResponse listed;
  EXPECT_TRUE(session.call(&Stub::ListKept, v1::ListKeptRequest(), &listed).ok());
  v1::EvictKeptRequest request;
  request.set_request_id(new_request_id());
  for (const v1::KeptWindowInfo& kept : listed.windows()) {
    if (kept.name() == window) request.set_window_id(kept.window_id());
  }
  v1::EvictKeptResponse response;
  const absl::Status status = session.call(&Stub::EvictKept, request, &response);
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status;
}

class KeptWindowTest : public KeptNodeTest {};

unsigned char pattern(uint32_t rank, uint64_t at) {
  return static_cast<unsigned char>(at * 31 + at / 251 + 7 * (rank + 1));
}

bool is_found(const Window& window) {
  cco_window_info info{};
  EXPECT_TRUE(succeeded(window.get_info(&info)));
  EXPECT_EQ(info.size_bytes, kSize);
  return info.is_found == 1;
}

// A worker: "fill" its copy, or "check" every rank's.
void work(Rank& rank) {
  const Client client = test::attach(rank, kTimeoutMs);
  const Group group = join(client, rank);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(
      group, "weights", {.size_bytes = kSize, .timeout_ms = kTimeoutMs, .keep_ms = kHourMs},
      &window)));
  const bool fills = rank.argument == "fill";
  EXPECT_EQ(is_found(window), !fills);
  for (uint32_t other = 0; other < rank.size; ++other) {
    unsigned char* bytes = nullptr;
    ASSERT_TRUE(succeeded(window.get_address(other, 0, &bytes)));
    for (uint64_t at = 0; at < kSize; ++at) {
      if (fills) {
        if (other == rank.rank) bytes[at] = pattern(other, at);
      } else {
        ASSERT_EQ(bytes[at], pattern(other, at)) << "rank " << other << ", byte " << at;
      }
    }
  }
  rank.say("ready");
  rank.hear();
}

// Goal    a worker dies, its group ends, and the next group of that name finds what it had, on
//         every rank, byte by byte; also if the daemon was killed in between.
TEST_F(KeptWindowTest, WorkersFindTheirContents) {
  for (const bool kills_daemon : {false, true}) {
    Ranks first(3, work, ranks("fill"));
    EXPECT_EQ(first.hear_all(), (std::vector<std::string>(3, "ready")));
    first.signal(1, SIGKILL);
    first.wait(1);
    EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.held_bytes() != 0; }));
    EXPECT_EQ(watch->now().kept_bytes(), 0u) << "others use it";
    first.tell_all("end");
    first.expect_success();
    EXPECT_TRUE(all_is_kept(*watch));
    if (kills_daemon) {
      kill_and_start();
      EXPECT_TRUE(all_is_kept(*watch));
    }
    Ranks second(3, work, ranks("check"));
    EXPECT_EQ(second.hear_all(), (std::vector<std::string>(3, "ready")));
    second.tell_all("end");
    second.expect_success();
    EXPECT_TRUE(all_is_kept(*watch));
    EXPECT_TRUE(evict(daemon->socket_path(), "weights"));
  }
}

// Goal    all workers die at once, while the daemon is away: the next daemon keeps the window.
TEST_F(KeptWindowTest, AllDieWithoutDaemon) {
  Ranks first(2, work, ranks("fill"));
  EXPECT_EQ(first.hear_all(), (std::vector<std::string>(2, "ready")));
  daemon->kill();
  for (uint32_t rank = 0; rank < 2; ++rank) first.signal(rank, SIGKILL);
  first.expect_success();
  start_kept();
  EXPECT_TRUE(all_is_kept(*watch));
  run_ranks(
      2,
      [](Rank& rank) {
        const Client client = test::attach(rank, kTimeoutMs);
        const Group group = join(client, rank);
        Window window;
        ASSERT_TRUE(succeeded(Window::create(
            group, "weights", {.size_bytes = kSize, .timeout_ms = kTimeoutMs, .keep_ms = 1},
            &window)));
        EXPECT_TRUE(is_found(window));
        unsigned char* byte = nullptr;
        ASSERT_TRUE(succeeded(window.get_address(1 - rank.rank, kSize - 1, &byte)));
        EXPECT_EQ(*byte, pattern(1 - rank.rank, kSize - 1));
      },
      ranks());
}

class LingeringKeeperTest : public KeptNodeTest {
 protected:
  static constexpr std::chrono::milliseconds kLinger{100};
  DaemonProcess::Options kept_options() const override {
    DaemonProcess::Options options = KeptNodeTest::kept_options();
    options.config += absl::StrCat("keeper_linger_ms: ", kLinger.count(), "\n");
    return options;
  }
  /// Ends all sessions of this process, for which the keeper would stay.
  void leave(uint32_t others) {
    RawSession last(socket_path());
    EXPECT_TRUE(watch->answers());  // This daemon may not have heard of it yet.
    watch.reset();
    v1::GetNodeResponse node;
    const Stopwatch time;
    do {
      EXPECT_TRUE(last.call(&Stub::GetNode, v1::GetNodeRequest(), &node).ok());
    } while (node.session_count() != others + 1 && time.elapsed() < patience());
    EXPECT_EQ(node.session_count(), others + 1);
    last.connection().end(patience());
  }
  UniqueFd keeper_process() const {
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, keeper(), 0)));
  }
};

// Goal    where no daemon runs for longer than the keeper lingers, and nobody lives, what has
//         keep_ms is still there for the next one: whether the last worker left before the daemon
//         ended, or after; and whichever daemon of several it was that knew of it.
TEST_F(LingeringKeeperTest, KeptWindowsOutliveIt) {
  for (const bool dies_after_daemon : {false, true}) {
    Ranks first(2, work, ranks("fill"));
    EXPECT_EQ(first.hear_all(), (std::vector<std::string>{"ready", "ready"}));
    const auto end_workers = [&] {
      for (uint32_t rank = 0; rank < 2; ++rank) first.signal(rank, SIGKILL);
      first.expect_success();
    };
    if (!dies_after_daemon) {
      end_workers();
      EXPECT_TRUE(all_is_kept(*watch));
      kill_and_start();  // This one is told nothing of the window.
    }
    leave(/*others=*/dies_after_daemon ? 2 : 0);
    daemon->kill();
    if (dies_after_daemon) end_workers();
    EXPECT_FALSE(wait_readable(keeper_process(), 5 * kLinger).ok()) << "the keeper has ended";
    start_kept();
    EXPECT_FALSE(daemon->log().find("state_lost") != std::string::npos) << daemon->log();
    watch = std::make_unique<NodeWatch>(socket_path());
    EXPECT_TRUE(all_is_kept(*watch));
    Ranks second(2, work, ranks("check"));
    EXPECT_EQ(second.hear_all(), (std::vector<std::string>{"ready", "ready"}));
    second.tell_all("end");
    second.expect_success();
    EXPECT_TRUE(all_is_kept(*watch));
    EXPECT_TRUE(evict(daemon->socket_path(), "weights"));
  }
}

// Goal    when its time is over its memory is freed, once; by another daemon, too.
TEST_F(KeptWindowTest, TimeToLive) {
  for (const bool kills_daemon : {false, true}) {
    run_ranks(
        1,
        [](Rank& rank) {
          const Client client = test::attach(rank, kTimeoutMs);
          const auto groups = form_group(client, "job", 2, kTimeoutMs);
          form_window(groups, "cache",
                      {.size_bytes = kSize,
                       .timeout_ms = kTimeoutMs,
                       .keep_ms = std::stoull(rank.argument)});
        },
        ranks(kills_daemon ? "3000" : "100"));
    if (kills_daemon) {
      EXPECT_TRUE(all_is_kept(*watch));
      kill_and_start();
    }
    EXPECT_TRUE(daemon->logs("kept_window_expired"));
    EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.slab_bytes() == 0; }));
    const std::string log = daemon->log();
    EXPECT_EQ(log.find("kept_window_expired"), log.rfind("kept_window_expired")) << log;
  }
}

// Goal    ccoctl shows what is kept, and evicts it by its names.
TEST_F(KeptWindowTest, CcoctlShowsAndEvicts) {
  EXPECT_EQ(ccoctl(socket_path(), {"kept"}), "no kept windows\n");
  {
    const Client client = attach(kTimeoutMs);
    const auto groups = form_group(client, "job", 2, kTimeoutMs);
    const auto windows = form_window(
        groups, "cache", {.size_bytes = kSize, .timeout_ms = kTimeoutMs, .keep_ms = kHourMs});
    EXPECT_EQ(ccoctl(socket_path(), {"kept"}), "no kept windows\n") << "it is in use";
  }
  EXPECT_TRUE(all_is_kept(*watch));
  const std::string table = ccoctl(socket_path(), {"kept"});
  for (const char* word : {"job", "cache", "EXPIRES IN"}) {
    EXPECT_NE(table.find(word), std::string::npos) << table;
  }
  const std::string json = ccoctl(socket_path(), {"kept", "--json"});
  EXPECT_NE(json.find("\"group_name\""), std::string::npos) << json;
  v1::ListKeptResponse listed;
  EXPECT_TRUE(RawSession(socket_path()).call(&Stub::ListKept, v1::ListKeptRequest(), &listed).ok());
  ASSERT_EQ(listed.windows_size(), 1);
  const std::string id = absl::StrCat(listed.windows(0).window_id());
  const std::string freed = ccoctl(socket_path(), {"evict", "job", "cache", "--id", id});
  EXPECT_EQ(freed.find("freed "), 0u) << freed;
  EXPECT_EQ(freed.find("held"), std::string::npos) << freed;
  EXPECT_EQ(ccoctl(socket_path(), {"kept"}), "no kept windows\n");
}

// Goal    what cannot be kept is refused by name: without names, or for too long; and another size
//         of a kept window, with what is kept.
TEST_F(KeptWindowTest, RefusalsSayWhy) {
  const Client client = attach(kTimeoutMs);
  auto groups = form_group(client, "job", 1, kTimeoutMs);
  Window window;
  const Window::Options options{.size_bytes = kSize, .keep_ms = kHourMs};
  EXPECT_TRUE(refused(Window::create(groups[0], nullptr, options, &window), CCO_INVALID_ARGUMENT,
                      {"the window has no name"}));
  EXPECT_TRUE(
      refused(Window::create(groups[0], "w", {.size_bytes = kSize, .keep_ms = UINT64_MAX}, &window),
              CCO_INVALID_ARGUMENT, {"30 days"}));
  ASSERT_TRUE(succeeded(Window::create(groups[0], "w", options, &window)));
  EXPECT_FALSE(is_found(window));
  window = Window();
  EXPECT_TRUE(refused(
      Window::create(groups[0], "w", {.size_bytes = kSize + 1, .keep_ms = kHourMs}, &window),
      CCO_FAILED_PRECONDITION, {absl::StrCat("kept with ", kSize), "ccoctl evict 'job' 'w'"}));
  ASSERT_TRUE(succeeded(Window::create(groups[0], "w", options, &window)));
  EXPECT_TRUE(is_found(window));
  cco_unique_id id{};
  ASSERT_TRUE(succeeded(cco_unique_id_create(&id)));
  Group unnamed;
  ASSERT_TRUE(succeeded(
      Group::create(client, {.rank = 0, .size = 1, .device = 0, .unique_id = &id}, &unnamed)));
  Window other;
  EXPECT_TRUE(refused(Window::create(unnamed, "w", options, &other), CCO_INVALID_ARGUMENT,
                      {"the group has no name"}));
  window = Window();
  EXPECT_TRUE(evict(daemon->socket_path(), "w"));
}

// Goal    another user's group of the same name gets memory of its own, and cannot evict.
TEST_F(NodeTest, OtherUsersGetNothingThatIsKept) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot play other users";
  start_with("socket_mode: '0666'");
  {
    const Client client = attach(kTimeoutMs);
    const auto groups = form_group(client, "job", 1, kTimeoutMs);
    form_window(groups, "w", {.size_bytes = kSize, .keep_ms = kHourMs});
  }
  EXPECT_TRUE(all_is_kept(*watch));
  Ranks::Options other = ranks();
  other.wrapper = {"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"};
  run_ranks(
      1,
      [](Rank& rank) {
        const Client client = test::attach(rank, kTimeoutMs);
        const Group group = join(client, rank);
        Window window;
        ASSERT_TRUE(
            succeeded(Window::create(group, "w", {.size_bytes = kSize, .keep_ms = 1}, &window)));
        EXPECT_FALSE(is_found(window));
        RawSession session(rank.socket_path);
        v1::ListKeptResponse listed;
        EXPECT_TRUE(session.call(&Stub::ListKept, v1::ListKeptRequest(), &listed).ok());
        EXPECT_EQ(listed.windows_size(), 0);
        v1::EvictKeptRequest request;
        request.set_request_id(new_request_id());
        request.set_window_id(1);
        v1::EvictKeptResponse response;
        EXPECT_TRUE(refused(session.call(&Stub::EvictKept, request, &response),
                            absl::StatusCode::kNotFound, {"no kept window 1"}));
      },
      other);
  EXPECT_TRUE(evict(daemon->socket_path(), "w"));
}

}  // namespace
}  // namespace cco::test
