#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text(const absl::Status& status) { return std::string(status.message()); }

// Goal    ranks form a group whatever the order in which they come, and all learn the same.
// Method  four sessions join in a mixed order; compare the answers.
TEST(BrokerGroups, FormsInAnyOrder) {
  Fixture f;
  std::vector<Fixture::Answer<JoinResult>> answers(4);
  std::vector<SessionId> sessions;
  for (int i = 0; i < 4; ++i) sessions.push_back(f.attach());
  for (uint32_t rank : {2u, 0u, 3u, 1u}) {
    EXPECT_EQ(f.broker.groups().size(), 0u);
    answers[rank] = f.join(sessions[rank], rank, 4);
  }
  for (const auto& answer : answers) {
    ASSERT_TRUE(answer->ok()) << answer->status();
    EXPECT_EQ((*answer)->group, (*answers[0])->group);
    EXPECT_EQ((*answer)->gpu_uuids,
              (std::vector<std::string>{"HOST-0", "HOST-1", "HOST-2", "HOST-3"}));
  }
  EXPECT_EQ(f.pool.live(), 4) << "one control region for each rank";
}

// Goal    what cannot be a group is refused at once, with the cause.
// Method  one bad request each; the message must name the value and what is allowed.
TEST(BrokerGroups, BadRequestsSayWhy) {
  Fixture f;
  const SessionId id = f.attach();
  struct Case {
    std::function<void(JoinRequest&)> spoil;
    absl::StatusCode code;
    std::string says;
  };
  const std::vector<Case> cases = {
      {[](auto& r) { r.rank = 4; }, absl::StatusCode::kInvalidArgument, "rank 4 is out of range"},
      {[](auto& r) { r.size = 0; }, absl::StatusCode::kInvalidArgument, "size is 0"},
      {[](auto& r) { r.size = 257; }, absl::StatusCode::kResourceExhausted,
       "limits.ranks_per_group is 256"},
      {[](auto& r) { r.name = ""; }, absl::StatusCode::kInvalidArgument, "name or a unique id"},
      {[](auto& r) { r.unique_id = std::string(16, 'x'); }, absl::StatusCode::kInvalidArgument,
       "not both"},
      {[](auto& r) { r.name = std::string(128, 'n'); }, absl::StatusCode::kInvalidArgument,
       "128 bytes"},
      {[](auto& r) { r.name = "w\n<4>event=audit"; }, absl::StatusCode::kInvalidArgument,
       "control character (10) at byte 1"},
      {[](auto& r) { r.name = "", r.unique_id = "short"; }, absl::StatusCode::kInvalidArgument,
       "5 bytes"},
      {[](auto& r) { r.slot_bytes = 4096; }, absl::StatusCode::kInvalidArgument,
       "multiple of 4294967296"},
      {[](auto& r) { r.slot_bytes = uint64_t{1} << 63; }, absl::StatusCode::kInvalidArgument,
       "slot_bytes is"},
      {[](auto& r) { r.gpu_uuid = "GPU-nowhere"; }, absl::StatusCode::kNotFound, "'GPU-nowhere'"},
      {[](auto& r) { r.timeout = Milliseconds(3'600'001); }, absl::StatusCode::kInvalidArgument,
       "timeout_ms"},
  };
  for (const Case& c : cases) {
    JoinRequest request;
    request.name = "g";
    request.rank = 0;
    request.size = 4;
    request.gpu_uuid = "HOST-0";
    c.spoil(request);
    const auto answer = f.join(id, request);
    EXPECT_EQ(answer->status().code(), c.code) << c.says;
    EXPECT_THAT(text(answer->status()), HasSubstr(c.says));
  }
  EXPECT_TRUE(f.broker.forming().empty());
}

// Goal    one rank cannot be two processes, neither while the group forms nor when it runs.
TEST(BrokerGroups, RankTwiceIsRefused) {
  Fixture f;
  const SessionId first = f.attach(), second = f.attach();
  const auto waiting = f.join(first, 0, 2);
  const auto again = f.join(second, 0, 2);
  EXPECT_EQ(again->status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(text(again->status()), AllOf(HasSubstr("rank 0"), HasSubstr("pid 101")));
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kUnknown) << "the first must go on waiting";
  f.join(second, 1, 2);
  ASSERT_TRUE(waiting->ok());
  EXPECT_EQ(f.join(f.attach(), 0, 2)->status().code(), absl::StatusCode::kAlreadyExists);
}

// Goal    ranks that disagree all get one error, which names the first that differs; the name is
//         free afterwards.
TEST(BrokerGroups, DisagreementNamesTheFirstThatDiffers) {
  Fixture f;
  const auto a = f.join(f.attach(), 0, 4);
  const auto b = f.join(f.attach(), 2, 8);
  for (const auto& answer : {a, b}) {
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(text(answer->status()),
                AllOf(HasSubstr("rank 2 says it has 8"), HasSubstr("rank 0 says 4")));
    EXPECT_EQ(rank_of(answer->status()), 2u);
  }
  std::vector<Fixture::Answer<JoinResult>> answers;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    JoinRequest request;
    request.name = "g";
    request.rank = rank;
    request.size = 3;
    request.gpu_uuid = "HOST-0";
    request.slot_bytes = rank == 1 ? uint64_t{8} << 30 : uint64_t{4} << 30;
    answers.push_back(f.join(f.attach(), request));
  }
  for (const auto& answer : answers) EXPECT_EQ(rank_of(answer->status()), 1u) << answer->status();
  EXPECT_TRUE(f.broker.forming().empty());
}

// Goal    a rank that never comes is named when the deadline passes, others keep their own
//         deadlines, and a retry works.
TEST(BrokerGroups, MissingRankIsNamedAndRetryWorks) {
  Fixture f;
  const SessionId zero = f.attach(), one = f.attach(), two = f.attach();
  JoinRequest request;
  request.name = "g";
  request.size = 3;
  request.gpu_uuid = "HOST-0";
  request.timeout = Milliseconds(1000);
  const auto hurried = f.join(zero, request);
  const auto patient = f.join(one, 1, 3);
  f.executor.advance(Milliseconds(999));
  EXPECT_EQ(hurried->status().code(), absl::StatusCode::kUnknown);
  f.executor.advance(Milliseconds(1));
  EXPECT_EQ(hurried->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(text(hurried->status()), AllOf(HasSubstr("rank 2 has not come within 1000 ms")));
  EXPECT_EQ(rank_of(hurried->status()), 2u);
  EXPECT_EQ(patient->status().code(), absl::StatusCode::kUnknown);
  const auto retried = f.join(zero, request);
  const auto last = f.join(two, 2, 3);
  EXPECT_TRUE(retried->ok() && patient->ok() && last->ok());
}

// Goal    all who time out name the rank that never came, not those who have timed out before them.
// Method  two wait for a third, one longer than the other; then one comes to whom only such ranks
//         are missing.
TEST(BrokerGroups, WhoGaveUpIsNotBlamed) {
  Fixture f;
  const SessionId zero = f.attach(), one = f.attach(), two = f.attach();
  JoinRequest request;
  request.name = "g";
  request.size = 3;
  request.gpu_uuid = "HOST-0";
  request.timeout = Milliseconds(1000);
  const auto hurried = f.join(zero, request);
  f.executor.advance(Milliseconds(10));
  request.rank = 1;
  const auto later = f.join(one, request);
  request.rank = 2;
  request.timeout = Milliseconds(2000);
  f.executor.advance(Milliseconds(990));
  EXPECT_EQ(rank_of(hurried->status()), 2u);
  const auto last = f.join(two, request);
  f.executor.advance(Milliseconds(10));
  EXPECT_EQ(rank_of(later->status()), 0u) << "all have come, and one has gone";
  f.executor.advance(Milliseconds(2000));
  EXPECT_THAT(text(last->status()), HasSubstr("ranks 0,1 have not come"));

  const auto first = f.join(zero, 0, 3);
  f.executor.advance(Milliseconds(10));
  const auto second = f.join(one, 1, 3);
  f.executor.advance(Milliseconds(60'000));
  EXPECT_EQ(rank_of(first->status()), 2u);
  EXPECT_EQ(rank_of(second->status()), 2u);
  EXPECT_THAT(text(second->status()), HasSubstr("rank 2 has not come"));
}

// Goal    a forming group that everybody has given up leaves nothing behind.
TEST(BrokerGroups, AbandonedFormingGroupIsForgotten) {
  Fixture f;
  const auto answer = f.join(f.attach(), 0, 2);
  f.executor.advance(Milliseconds(60'000));
  EXPECT_EQ(answer->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(f.broker.forming().empty());
  EXPECT_EQ(f.executor.timer_count(), 0u);
}

// Goal    two tenants' groups of one name are two groups.
TEST(BrokerGroups, NamesBelongToTenants) {
  Fixture f;
  const auto mine = f.join(f.attach(1000), 0, 1, "shared");
  const auto theirs = f.join(f.attach(1001), 0, 1, "shared");
  ASSERT_TRUE(mine->ok() && theirs->ok());
  EXPECT_NE((*mine)->group, (*theirs)->group);
}

// Goal    failure of any allocation while a group forms fails it for all, and leaves nothing
//         allocated.
// Method  fail allocation 0, 1, … until it gets through.
TEST(BrokerGroups, FailedAllocationLeavesNothing) {
  for (int fail = 0; fail < 3; ++fail) {
    Fixture f;
    f.pool.fail_call = fail;
    std::vector<Fixture::Answer<JoinResult>> answers;
    for (uint32_t rank = 0; rank < 3; ++rank) answers.push_back(f.join(f.attach(), rank, 3));
    for (const auto& answer : answers) {
      EXPECT_EQ(answer->status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(rank_of(answer->status()), static_cast<uint32_t>(fail));
    }
    EXPECT_EQ(f.pool.live(), 0);
    EXPECT_EQ(f.broker.slabs().usage(0).bytes, 0u);
    EXPECT_TRUE(f.broker.groups().empty() && f.broker.forming().empty());
  }
}

// Goal    a GPU that does not answer ends the wait of those who need it, by name, and delays nobody
//         else.
TEST(BrokerGroups, StuckGpuDelaysNobodyElse) {
  Fixture f;
  f.pool.stuck = {1};
  const auto a = f.join(f.attach(), 0, 2, "stuck");
  const auto b = f.join(f.attach(), 1, 2, "stuck");
  EXPECT_TRUE(f.join(f.attach(), 0, 1, "free")->ok());
  f.executor.advance(Milliseconds(60'000));
  for (const auto& answer : {a, b}) {
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(text(answer->status()),
                HasSubstr("allocation of the control regions has not ended"));
  }
  const auto early = f.join(f.attach(), 0, 2, "stuck");
  EXPECT_EQ(early->status().code(), absl::StatusCode::kUnavailable)
      << "the old attempt still waits for its GPU";
  f.pool.stuck = {};
  f.pool.answer();
  EXPECT_EQ(f.pool.live(), 1) << "only the free group's control region";
  const auto retry = f.join(f.attach(), 0, 1, "stuck");
  EXPECT_TRUE(retry->ok()) << retry->status();
}

// Goal    a lost rank ends all collective work by name, at once; its memory waits for its process
//         and the survivors.
TEST(BrokerGroups, LostRankIsAnnouncedAndItsMemoryHeld) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(3, &members);
  const auto waiting = f.barrier(members[0], group, 0, 0);
  f.broker.close_session(members[2]);
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(rank_of(waiting->status()), 2u);
  EXPECT_THAT(text(waiting->status()), HasSubstr("rank 2 is lost"));
  for (auto* page : f.notices.pages) {
    EXPECT_EQ(page->aborts, std::vector<uint64_t>{CCO_ABORT_WORD(CCO_ABORT_PEER_LOST, 2)});
    EXPECT_EQ(page->out, std::set<uint32_t>{2});
  }
  EXPECT_EQ(f.broker.slabs().usage(2).quarantined_bytes, 64u * 1024);
  EXPECT_EQ(f.barrier(members[1], group, 1, 0)->status().code(), absl::StatusCode::kAborted);

  f.broker.process_exited(members[2]);
  EXPECT_EQ(f.broker.slabs().usage(2).quarantined_bytes, 0u);
  EXPECT_EQ(f.broker.slabs().usage(2).held_bytes, 64u * 1024) << "survivors may still map it";
  f.broker.close_session(members[1]);
  for (auto* page : f.notices.pages)
    EXPECT_EQ(page->aborts.size(), 1u) << "an abort word is written once";
  EXPECT_TRUE(f.broker.leave(f.session(members[0]), group, 0).ok());
  EXPECT_EQ(f.pool.live(), 3) << "rank 1's process has not exited";
  f.broker.process_exited(members[1]);
  EXPECT_EQ(f.pool.live(), 0);
  EXPECT_TRUE(f.broker.groups().empty());
}

// Goal    leaving in order is no loss: device waits are not aborted, host calls that need the rank
//         end.
TEST(BrokerGroups, LeavingIsNoLoss) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto waiting = f.barrier(members[1], group, 1, 0);
  ASSERT_TRUE(f.broker.leave(f.session(members[0]), group, 0).ok());
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(text(waiting->status()), HasSubstr("rank 0 has left"));
  for (auto* page : f.notices.pages) EXPECT_TRUE(page->aborts.empty());
  EXPECT_EQ(f.broker.leave(f.session(members[0]), group, 0).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(f.broker.leave(f.session(members[1]), group, 1).ok());
  EXPECT_EQ(f.pool.live(), 0);
  f.broker.close_session(members[0]);
  EXPECT_EQ(f.broker.sessions().size(), 1u) << "a session without ranks ends with its connection";
}

// Goal    only members and operators abort, everybody is told, and it is final.
TEST(BrokerGroups, AbortIsForMembersAndOperators) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  EXPECT_EQ(f.broker.abort(f.session(f.attach(1001)), group, 0).code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(f.broker.abort(f.session(f.attach(0)), group, 0).ok());
  EXPECT_TRUE(f.broker.abort(f.session(members[1]), group, 1).ok());
  const auto answer = f.barrier(members[1], group, 1, 0);
  EXPECT_THAT(text(answer->status()), HasSubstr("operator (user 0) aborted it"));
  EXPECT_EQ(f.notices.pages[0]->aborts,
            std::vector<uint64_t>{CCO_ABORT_WORD(CCO_ABORT_REQUESTED, 0)});
}

// Goal    barriers match by sequence, and a process cannot act as a rank that it is not.
TEST(BrokerGroups, BarrierMatchesBySequence) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto first = f.barrier(members[0], group, 0, 0);
  EXPECT_EQ(f.barrier(members[0], group, 1, 0)->status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(f.barrier(members[0], group, 0, 0)->status().code(), absl::StatusCode::kAlreadyExists);
  const auto ahead = f.barrier(members[1], group, 1, 1, Milliseconds(10));
  f.executor.advance(Milliseconds(10));
  EXPECT_EQ(ahead->status().code(), absl::StatusCode::kDeadlineExceeded);
  const auto second = f.barrier(members[1], group, 1, 0);
  EXPECT_TRUE(first->ok() && second->ok());
}

// Goal    a barrier to which ranks come with a problem gives all of them the first rank's, and the
//         next one is as any other. A text of excessive length is refused, as it is kept.
TEST(BrokerGroups, BarrierWithProblems) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(3, &members);
  const auto come = [&](uint32_t rank, const std::string& problem) {
    return f.barrier(members[rank], group, rank, 0, Milliseconds(0), problem);
  };
  EXPECT_EQ(come(0, std::string(1025, 'x'))->status().code(), absl::StatusCode::kInvalidArgument);
  const auto last = come(2, "no memory");
  const auto first = come(0, "");
  const auto second = come(1, std::string(1024, 'x'));
  for (const auto& answer : {first, second, last}) {
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(text(answer->status()), HasSubstr("rank 1 can not go on: xxx"));
    EXPECT_EQ(rank_of(answer->status()), 1u);
  }
  const auto again = come(0, ""), meets = come(1, "");
  EXPECT_TRUE(come(2, "")->ok());
  EXPECT_TRUE(again->ok() && meets->ok());
}

// Goal    a stopping daemon answers everybody.
TEST(BrokerGroups, StopAnswersEverybody) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto barrier = f.barrier(members[0], group, 0, 0);
  const auto forming = f.join(f.attach(), 0, 2, "other");
  f.broker.stop();
  EXPECT_EQ(barrier->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(forming->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(f.barrier(members[0], group, 0, 0)->status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cco::memd
