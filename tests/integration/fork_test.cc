// Processes that fork after they have attached.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/node_test.h"

namespace cco::test {
namespace {

class ForkTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
};

// Ends a forked child without its parent's destructors.
[[noreturn]] void leave(bool good) { ::_exit(good ? 0 : 1); }

bool ended_well(pid_t child) {
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

// Goal    a forked child is refused in words, whatever it calls, and neither its calls nor its end
//         touch the parent's session.
// Method  eight children of an attached process; the parent works on, with a window and a barrier.
TEST_F(ForkTest, ChildIsRefused) {
  run_ranks(
      2,
      [](Rank& rank) {
        Client client = test::attach(rank);
        Group group = join(client, rank);
        Window window;
        ASSERT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 64}, &window)));
        for (int i = 0; i < 8; ++i) {
          const pid_t child = ::fork();
          if (child != 0) {
            EXPECT_TRUE(ended_well(child));
            continue;
          }
          bool good = refused(group.barrier(), CCO_FAILED_PRECONDITION, {"forked", "exec"});
          good &= refused(group.check(), CCO_FAILED_PRECONDITION, {"forked"});
          good &= refused(group.abort(), CCO_FAILED_PRECONDITION, {"forked"});
          Window more;
          good &= refused(Window::create(group, "x", {.size_bytes = 1}, &more),
                          CCO_FAILED_PRECONDITION, {"forked"});
          Client fresh;
          good &= refused(Client::create({rank.socket_path.c_str(), 0}, &fresh),
                          CCO_FAILED_PRECONDITION, {"forked"});
          window = Window();
          group = Group();
          client = Client();
          leave(good);
        }
        EXPECT_TRUE(succeeded(group.check()));
        EXPECT_TRUE(succeeded(group.barrier()));
        Window more;
        EXPECT_TRUE(succeeded(Window::create(group, "x", {.size_bytes = 1}, &more)));
        EXPECT_TRUE(succeeded(group.barrier()));
      },
      ranks());
}

// Goal    a child that lives on does not keep a dead parent's session alive.
// Method  the parent forks, says so and is killed; the child sits on what it inherited.
TEST_F(ForkTest, ChildOutlivesTheParent) {
  Ranks team(
      1,
      [](Rank& rank) {
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        const pid_t child = ::fork();
        if (child == 0) {
          rank.hear();
          leave(true);
        }
        rank.say(std::to_string(child));
        ::pause();
      },
      ranks());
  const pid_t child = static_cast<pid_t>(std::stol("0" + team.hear(0)));
  ASSERT_GT(child, 0);
  team.signal(0, SIGKILL);
  team.wait(0);
  EXPECT_TRUE(nothing_left());
  EXPECT_EQ(::kill(child, 0), 0) << "the child should still live";
  team.tell(0, "end");
}

// Goal    a program that a forked child starts may attach: a session of its own.
// Method  fork, and exec of this program as another rank, while the parent stays attached.
TEST_F(ForkTest, ExecMayAttach) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "parent", 1);
  run_ranks(
      1,
      [](Rank& rank) {
        const Client client = test::attach(rank);
        join(client, rank, "child");
      },
      ranks());
  EXPECT_TRUE(succeeded(groups[0].barrier()));
}

// Goal    forking first, and attaching in each child, works.
// Method  a process that has no client forks four, which form a group.
TEST_F(ForkTest, ForkFirst) {
  run_ranks(
      1,
      [](Rank& rank) {
        std::vector<pid_t> children;
        for (uint32_t i = 0; i < 4; ++i) {
          const pid_t child = ::fork();
          if (child != 0) {
            children.push_back(child);
            continue;
          }
          Client client;
          bool good = Client::create({rank.socket_path.c_str(), 0}, &client) == CCO_OK;
          Group group;
          good &= Group::create(client, {.rank = i, .size = 4, .name = "job"}, &group) == CCO_OK;
          good &= group.barrier() == CCO_OK;
          group = Group();
          leave(good);
        }
        for (const pid_t child : children) EXPECT_TRUE(ended_well(child));
      },
      ranks());
}

}  // namespace
}  // namespace cco::test
