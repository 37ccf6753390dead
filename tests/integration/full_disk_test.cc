// The disk of the daemon's state has no room: what waits, what goes on, and what is right later.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/base/unique.h"
#include "tests/integration/raw_session.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

constexpr uint32_t kTimeoutMs = 60000;

// A disk of its own, which no other process sees.
class FullDiskTest : public KeptNodeTest {
 protected:
  void SetUp() override {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      GTEST_SKIP() << "a file system of the test's own takes root: " << std::strerror(errno);
    }
    ASSERT_EQ(::mkdir(state_dir().c_str(), 0700), 0) << std::strerror(errno);
    if (::mount("cco", state_dir().c_str(), "tmpfs", 0, "size=4m,mode=0700") != 0) {
      GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(errno);
    }
    is_mounted_ = true;
    KeptNodeTest::SetUp();
  }
  void TearDown() override {
    if (watch != nullptr) KeptNodeTest::TearDown();
    if (!is_mounted_) return;
    EXPECT_EQ(::umount2(state_dir().c_str(), MNT_DETACH), 0) << std::strerror(errno);
  }
  void fill_disk() const {
    const UniqueFd ballast(::open(ballast_path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string page(4096, 'x');
    while (::write(ballast.get(), page.data(), page.size()) > 0) {
    }
    ASSERT_EQ(errno, ENOSPC) << std::strerror(errno);
  }
  void empty_disk() const { ASSERT_EQ(::unlink(ballast_path().c_str()), 0); }

 private:
  std::string ballast_path() const { return state_dir() + "/ballast"; }
  bool is_mounted_ = false;
};

void expect_pattern(const Window& window, const std::vector<uint32_t>& values) {
  for (uint32_t rank = 0; rank < values.size(); ++rank) {
    unsigned char* bytes = nullptr;
    ASSERT_TRUE(succeeded(window.get_address(rank, 0, &bytes)));
    for (int at = 0; at < 4096; ++at) ASSERT_EQ(bytes[at], values[rank]) << rank << ' ' << at;
  }
}

// Ranks 0 and 2 survive rank 1, whose death comes while nothing can be recorded.
void survive(Rank& rank) {
  const Client client = attach(rank, kTimeoutMs);
  const Group group = join(client, rank);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 4096}, &window)));
  unsigned char* mine = nullptr;
  ASSERT_TRUE(succeeded(window.get_address(rank.rank, 0, &mine)));
  std::memset(mine, static_cast<int>(10 + rank.rank), 4096);
  ASSERT_TRUE(succeeded(group.barrier(kTimeoutMs)));
  std::atomic<bool> has_ended{false};
  Outcome ended;
  std::thread call;
  if (rank.rank == 0) {  // A call that is under way when the disk is full.
    call = std::thread([&] {
      ended = outcome(group.barrier(kTimeoutMs));
      has_ended = true;
    });
  }
  rank.say("ready");
  rank.hear();
  if (rank.rank == 1) rank.hear();
  const Stopwatch time;
  cco_status status = CCO_OK;
  while (status == CCO_OK && time.elapsed() < patience()) status = group.check();
  EXPECT_TRUE(refused(status, CCO_ABORTED, {"rank 1 is lost"}));
  EXPECT_FALSE(has_ended) << "an answer that is not recorded";
  expect_pattern(window, {10, 11, 12});
  rank.say("noticed");
  if (call.joinable()) {
    call.join();
    EXPECT_TRUE(refused(ended, CCO_ABORTED, {"rank 1 is lost"}));
  }
  Group rest;
  ASSERT_TRUE(succeeded(Group::shrink(group, kTimeoutMs, &rest)));
  Window old_window, new_window;
  ASSERT_TRUE(succeeded(Window::open(rest, "w", &old_window)));
  ASSERT_TRUE(succeeded(Window::create(rest, "new", {.size_bytes = 4096}, &new_window)));
  expect_pattern(old_window, {10, 12});
  rank.say("went on");
  rank.hear();
  ASSERT_TRUE(succeeded(rest.barrier(kTimeoutMs)));
  expect_pattern(old_window, {10, 12});
  rank.say("went on");
  rank.hear();
}

// Goal    while there is no room nobody is told what is not recorded, nothing new is begun, a
//         peer's death is noticed, and mapped memory stays; with room again every call ends well,
//         and the next daemon knows all. One that starts without room says so and destroys nothing.
// Method  a real daemon, its state on a small tmpfs that is filled and emptied under three ranks of
//         which one is killed meanwhile, and filled once more over a kill of the daemon.
TEST_F(FullDiskTest, EverythingIsRightAfterwards) {
  Ranks team(3, survive, ranks());
  EXPECT_EQ(team.hear_all(), (std::vector<std::string>(3, "ready")));
  const Stopwatch time;
  while (watch->pending().empty() && time.elapsed() < patience()) std::this_thread::yield();
  ASSERT_FALSE(watch->pending().empty()) << "rank 0 does not wait";
  fill_disk();
  std::thread latecomer([&] {  // Whose answer waits.
    Client client;
    EXPECT_TRUE(succeeded(Client::create({socket_path().c_str(), kTimeoutMs}, &client)));
  });
  EXPECT_TRUE(daemon->logs("state_not_recorded"));
  EXPECT_TRUE(refused(Connection::open(socket_path(), patience()).status(),
                      absl::StatusCode::kUnavailable, {"cannot record its state", "no room"}));
  team.tell_all("look");
  team.signal(1, SIGKILL);
  team.wait(1);
  for (const uint32_t rank : {0, 2}) EXPECT_EQ(team.hear(rank), "noticed");
  EXPECT_EQ(watch->now().groups, 1u) << "what only shows goes on";
  empty_disk();
  EXPECT_TRUE(daemon->logs("state_recorded_again"));
  latecomer.join();
  for (const uint32_t rank : {0, 2}) EXPECT_EQ(team.hear(rank), "went on");

  fill_disk();
  daemon->kill();
  const auto started = DaemonProcess::start(kept_options());
  if (!started.ok()) {
    EXPECT_NE(std::string(started.status().message()).find("no room"), std::string::npos)
        << started.status();
  }
  empty_disk();
  if (started.ok()) (*started)->kill();
  start_kept();
  EXPECT_FALSE(daemon->log().find("state_lost") != std::string::npos) << daemon->log();
  for (const uint32_t rank : {0, 2}) team.tell(rank, "once more");
  for (const uint32_t rank : {0, 2}) EXPECT_EQ(team.hear(rank), "went on");
  for (const uint32_t rank : {0, 2}) team.tell(rank, "end");
  team.expect_success();
}

}  // namespace
}  // namespace cco::test
