// A client's process is stopped, and goes on.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

class StallTest : public NodeTest {
 protected:
  std::string state_of(RawSession& session, pid_t pid) {
    v1::ListSessionsResponse sessions;
    const absl::Status status =
        session.call(&Stub::ListSessions, v1::ListSessionsRequest(), &sessions);
    EXPECT_TRUE(status.ok()) << status;
    for (const v1::SessionInfo& info : sessions.sessions()) {
      if (info.pid() == pid) return info.state();
    }
    return "none";
  }
  // A signal takes its time to arrive.
  ::testing::AssertionResult becomes(RawSession& session, pid_t pid, const std::string& state) {
    const Stopwatch time;
    std::string now;
    while ((now = state_of(session, pid)) != state && time.elapsed() < patience()) {
      std::this_thread::yield();
    }
    if (now == state) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "its session is " << now << ", not " << state;
  }
};

void meet_again(Rank& rank) {
  const Client client = attach(rank, 20000);
  const Group group = join(client, rank);
  rank.say("ready");
  EXPECT_EQ(rank.hear(), "wait");
  const Outcome result = outcome(group.barrier(rank.rank == 0 ? 300 : 20000));
  rank.say(absl::StrCat(cco_status_name(result.status), " ", result.message));
  if (rank.rank != 0) return;
  EXPECT_EQ(rank.hear(), "again");
  EXPECT_TRUE(succeeded(group.barrier(20000)));
}

// Goal    a process that is stopped is shown as stalled, not as lost; a call that waits for it in
//         vain says so, and how to go on; once it goes on, so does the group.
TEST_F(StallTest, StoppedProcessIsNamed) {
  start();
  {
    RawSession session(daemon->socket_path());
    Ranks pair(2, meet_again, ranks());
    EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"ready", "ready"}));
    EXPECT_EQ(state_of(session, pair.pid(1)), "attached");
    pair.signal(1, SIGSTOP);
    EXPECT_TRUE(becomes(session, pair.pid(1), "stalled"));
    EXPECT_EQ(state_of(session, pair.pid(0)), "attached");
    pair.tell_all("wait");
    const std::string told = pair.hear(0);
    EXPECT_EQ(told.rfind("CCO_DEADLINE_EXCEEDED ", 0), 0u) << told;
    EXPECT_NE(told.find(absl::StrCat("rank 1 (pid ", pair.pid(1),
                                     ", stopped by a signal: SIGCONT resumes it) has not come "
                                     "within 300 ms")),
              std::string::npos)
        << told;
    pair.signal(1, SIGCONT);
    EXPECT_TRUE(becomes(session, pair.pid(1), "attached"));
    pair.tell(0, "again");
    EXPECT_EQ(pair.hear(1), "CCO_OK ");
    pair.expect_success();
  }
}

// Goal    what is stopped dies like anything else: then it is lost, and nothing is left of it.
TEST_F(StallTest, StoppedProcessDies) {
  start();
  Ranks pair(2, meet_again, ranks());
  EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"ready", "ready"}));
  pair.signal(1, SIGSTOP);
  pair.signal(1, SIGKILL);
  pair.tell(0, "wait");
  EXPECT_NE(pair.hear(0).find("CCO_ABORTED"), std::string::npos);
  pair.signal(0, SIGKILL);
  pair.expect_success();
}

}  // namespace
}  // namespace cco::test
