// Taking a GPU out of service.
#include <gtest/gtest.h>

#include "daemon/core/error.h"
#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using absl::StatusCode;

class DrainTest : public ::testing::Test {
 protected:
  // Of GPUs 0 and 1.
  void form_pair() { group = node.form(2, &members); }
  absl::StatusOr<std::vector<int>> drain(const std::string& gpu, int64_t deadline_ms) {
    return node.broker.drain(node.session(root), gpu, Milliseconds(deadline_ms));
  }
  bool logged(const std::string& text) const {
    for (const std::string& line : node.journal.lines) {
      if (line.find(text) != std::string::npos) return true;
    }
    return false;
  }

  Fixture node;
  SessionId root = node.attach(0);
  std::vector<SessionId> members;
  GroupId group{};
};

void expect_refused(const absl::Status& status, StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
}

// Goal    a GPU that nobody uses is drained at once, and serves again at once.
TEST_F(DrainTest, UnusedGpu) {
  ASSERT_TRUE(drain("HOST-3", 30000).ok());
  EXPECT_EQ(node.broker.service(3), GpuService::kDrained);
  EXPECT_EQ(node.broker.service(2), GpuService::kServing);
  EXPECT_EQ(node.executor.timer_count(), 0u) << "a deadline that nobody needs any more";
  const auto refused = node.join(members.emplace_back(node.attach()), 3, 4);
  expect_refused(refused->status(), StatusCode::kUnavailable, "GPU HOST-3 has been drained");
  EXPECT_FALSE(retryable(refused->status())) << "only an operator changes it";
  ASSERT_TRUE(node.broker.undrain(node.session(root), "").ok());
  EXPECT_EQ(node.broker.service(3), GpuService::kServing);
  EXPECT_FALSE(node.broker.wants_restart());
}

// Goal    while it is draining, who is there goes on, and nothing new begins; when they have left
//         in time, nothing is revoked.
TEST_F(DrainTest, LeavingInTime) {
  form_pair();
  ASSERT_TRUE((*node.create_all(members, node.window(group, 0, 4096))[0]).ok());
  ASSERT_TRUE(drain("HOST-1", 30000).ok());
  node.executor.advance(Milliseconds(10000));
  EXPECT_EQ(node.broker.drain_left(1), Milliseconds(20000));
  EXPECT_EQ(node.notices.pages[1]->conditions, CCO_CONDITION_DRAINING);
  EXPECT_EQ(node.notices.pages[0]->conditions, 0u) << "rank 0's GPU serves";
  EXPECT_EQ(node.broker.users(1).size(), 2u) << "one with a rank there, one that maps it";

  expect_refused(node.join(node.attach(), 1, 2, "another")->status(), StatusCode::kUnavailable,
                 "being drained by an operator (20000 ms left): use another GPU");
  const auto small = node.create_all(members, node.window(group, 0, 4096, "small"));
  EXPECT_TRUE(small[1]->ok()) << "in a slab that is there";
  const auto large = node.create_all(members, node.window(group, 0, 4 << 20, "large"));
  expect_refused(large[0]->status(), StatusCode::kUnavailable, "is being drained");

  for (uint32_t rank : {1, 0}) {
    EXPECT_EQ(node.broker.service(1), GpuService::kDraining);
    ASSERT_TRUE(node.broker.leave(node.session(members[rank]), group, rank).ok());
  }
  EXPECT_EQ(node.broker.service(1), GpuService::kDrained);
  EXPECT_FALSE(logged("gpu_revoked"));
  EXPECT_EQ(node.pool.live(), 0);
}

// Goal    at the deadline the group is aborted with the cause, the slabs on that GPU alone are let
//         go of, and what processes may still map is counted until they have left.
TEST_F(DrainTest, RevokedAtTheDeadline) {
  form_pair();
  const auto waiting = node.barrier(members[0], group, 0, 0);
  ASSERT_TRUE(drain("HOST-1", 500).ok());
  node.executor.advance(Milliseconds(499));
  EXPECT_EQ(node.pool.live(), 2);
  node.executor.advance(Milliseconds(1));
  EXPECT_EQ(node.pool.live(), 1) << "rank 0's is on a GPU that serves";
  EXPECT_EQ(node.broker.service(1), GpuService::kDrained);
  EXPECT_EQ(node.broker.slabs().usage(1).revoked_bytes, 64u * 1024);
  EXPECT_EQ(node.broker.slabs().usage(0).revoked_bytes, 0u);
  expect_refused(waiting->status(), StatusCode::kAborted,
                 "an operator has taken GPU HOST-1 out of service");
  EXPECT_EQ(rank_of(waiting->status()), 1u);
  for (const auto* page : node.notices.pages) {
    EXPECT_EQ(page->aborts, std::vector<uint64_t>{CCO_ABORT_WORD(CCO_ABORT_REVOKED, 1)});
  }
  expect_refused(node.broker.export_slab(node.session(members[0]), group, 0, 0).status(),
                 StatusCode::kAborted, "has been freed");

  ASSERT_TRUE(node.broker.undrain(node.session(root), "HOST-1").ok());
  EXPECT_EQ(node.broker.service(1), GpuService::kServing);
  for (uint32_t rank : {0, 1}) {
    EXPECT_EQ(node.broker.slabs().usage(1).revoked_bytes, 64u * 1024)
        << "somebody may still map it";
    ASSERT_TRUE(node.broker.leave(node.session(members[rank]), group, rank).ok());
  }
  EXPECT_EQ(node.broker.slabs().usage(1).revoked_bytes, 0u);
  EXPECT_EQ(node.pool.live(), 0);
}

// Goal    what was revoked is its tenant's, and not free, as long as a process may map it, also
//         once the GPU serves again: a quota, others' allocations, who waits in turn, and leases
//         all find it taken, and free when the last has gone.
// Method  a tenant has 40 of a GPU's 64 MiB, and a quota of 48. The GPU is drained at once and
//         brought back; then 40 MiB are asked for in each way, while two ranks, one and none may
//         map the first.
TEST(RevokedMemory, IsTakenWhileItMayBeMapped) {
  constexpr uint64_t kBytes = 40 << 20;
  BrokerOptions options = Fixture::small_options();
  Tenant others;
  others.quotas.bytes_per_gpu = 48 << 20;
  options.tenants = Tenants({}, others);
  Fixture node(options);
  const SessionId root = node.attach(0);
  std::vector<SessionId> members;
  const GroupId group = node.form(2, &members);
  ASSERT_TRUE((*node.create_all(members, node.window(group, 0, kBytes))[0]).ok());
  ASSERT_TRUE(node.broker.drain(node.session(root), "HOST-1", Milliseconds(0)).ok());
  node.executor.advance(Milliseconds(0));
  ASSERT_TRUE(node.broker.undrain(node.session(root), "HOST-1").ok());
  ASSERT_EQ(node.pool.live(), 2) << "on the other GPU";

  const auto begin = [&](SessionId session, Milliseconds wait) {
    JoinRequest request;
    request.name = absl::StrCat("more-", number(session));
    request.size = 1;
    request.gpu_uuid = "HOST-1";
    WindowRequest window = node.window((*node.join(session, request))->group, 0, kBytes);
    window.wait_for_memory = wait;
    return node.create(session, window);
  };
  const auto ask_as = [&](uint32_t uid) {
    const SessionId session = node.attach(uid);
    const absl::Status status = begin(session, Milliseconds(0))->status();
    node.broker.process_exited(session);
    return status;
  };
  const auto lease = [&] {
    const auto made =
        node.broker.create_lease(node.session(root), {{"HOST-1"}, kBytes, 60000, "", ""});
    if (!made.ok()) return made.status();
    return node.broker.end_lease(node.session(root), made->id);
  };
  const SessionId patient = node.attach(1002);
  const auto waiting = begin(patient, Milliseconds(30000));
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(node.broker.slabs().usage(1).revoked_bytes, kBytes + options.control_bytes);
    expect_refused(ask_as(1000), StatusCode::kResourceExhausted, "its quotas.bytes_per_gpu");
    expect_refused(ask_as(1000), StatusCode::kResourceExhausted, "pid 103 42008576");
    expect_refused(ask_as(1001), StatusCode::kResourceExhausted, "slab of 41943040 bytes");
    EXPECT_EQ(lease().code(), StatusCode::kResourceExhausted);
    node.executor.run_posted();
    EXPECT_EQ(waiting->status().code(), StatusCode::kUnknown);
    node.broker.process_exited(members[rank]);
  }
  node.executor.run_posted();
  EXPECT_TRUE(waiting->ok()) << waiting->status();
  node.broker.process_exited(patient);
  EXPECT_EQ(node.broker.slabs().usage(1).revoked_bytes, 0u);
  EXPECT_TRUE(ask_as(1000).ok());
  EXPECT_TRUE(ask_as(1001).ok());
  EXPECT_TRUE(lease().ok());
  EXPECT_EQ(node.broker.slabs().ledger().free_bytes(1), uint64_t{64} << 20);
}

// Goal    a group that forms with a rank there is told at once, and memory that comes later is
//         given back before the GPU counts as drained.
TEST_F(DrainTest, FormingGroups) {
  const auto waiting = node.join(node.attach(), 1, 2, "waiting");
  node.pool.stuck.insert(0);
  std::vector<Fixture::Answer<JoinResult>> allocating;
  for (uint32_t rank : {0, 1})
    allocating.push_back(node.join(node.attach(), rank, 2, "allocating"));
  ASSERT_TRUE(drain("HOST-1", 30000).ok());
  for (const auto& answer : {waiting, allocating[0], allocating[1]}) {
    expect_refused(answer->status(), StatusCode::kUnavailable, "HOST-1 is being drained");
  }
  EXPECT_EQ(node.broker.service(1), GpuService::kDraining) << "its slab is being made";
  node.pool.stuck.clear();
  node.pool.answer();
  EXPECT_EQ(node.broker.service(1), GpuService::kDrained);
  EXPECT_EQ(node.pool.live(), 0);
  EXPECT_TRUE(node.broker.forming().empty());
}

// Goal    a group that shrinks meanwhile does not begin anew on that GPU, whatever it has there.
TEST_F(DrainTest, ShrinkingGroups) {
  form_pair();
  node.pool.stuck.insert(0);
  std::vector<Fixture::Answer<ShrinkResult>> answers;
  for (const uint32_t rank : {0, 1}) {
    answers.push_back(std::make_shared<absl::StatusOr<ShrinkResult>>());
    node.broker.shrink(node.session(members[rank]), {group, rank, {}}, node.into(answers.back()));
  }
  ASSERT_TRUE(drain("HOST-1", 0).ok());
  node.executor.advance(Milliseconds(0));
  EXPECT_EQ(node.broker.service(1), GpuService::kDraining) << "a control region is being made";
  node.pool.stuck.clear();
  node.pool.answer();
  for (const auto& answer : answers) {
    expect_refused(answer->status(), StatusCode::kUnavailable, "HOST-1 is being drained");
  }
  EXPECT_EQ(node.broker.service(1), GpuService::kDrained);
  EXPECT_EQ(node.broker.groups().size(), 1u) << "the old one";
  for (const uint32_t rank : {0, 1}) {
    ASSERT_TRUE(node.broker.leave(node.session(members[rank]), group, rank).ok());
  }
  EXPECT_EQ(node.pool.live(), 0);
}

// Goal    what nobody uses, and is kept, holds up no drain.
TEST_F(DrainTest, KeptWindows) {
  form_pair();
  WindowRequest request = node.window(group, 0, 4096, "kept");
  request.keep = Milliseconds(1'000'000);
  ASSERT_TRUE((*node.create_all(members, request)[0]).ok());
  ASSERT_TRUE(drain("HOST-1", 30000).ok());
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(node.broker.service(1), GpuService::kDraining);
    ASSERT_TRUE(node.broker.leave(node.session(members[rank]), group, rank).ok());
  }
  EXPECT_EQ(node.broker.service(1), GpuService::kDrained);
  EXPECT_TRUE(logged("kept_window_revoked"));
  EXPECT_EQ(node.pool.live(), 0);
}

// Goal    the deadline of a drain can be set anew, the drain be taken back, and repeated.
TEST_F(DrainTest, SecondThoughts) {
  form_pair();
  ASSERT_TRUE(drain("", 1000).ok());
  ASSERT_TRUE(node.broker.undrain(node.session(root), "").ok());
  node.executor.advance(Milliseconds(2000));
  EXPECT_EQ(node.pool.live(), 2) << "taken back";
  for (const auto* page : node.notices.pages) EXPECT_EQ(page->conditions, 0u);
  ASSERT_TRUE(drain("", 1000).ok());
  ASSERT_TRUE(drain("", 5000).ok());
  node.executor.advance(Milliseconds(2000));
  EXPECT_EQ(node.pool.live(), 2) << "the later deadline counts";
  ASSERT_TRUE(drain("", 0).ok());
  node.executor.advance(Milliseconds(0));
  EXPECT_EQ(node.pool.live(), 0);
  for (int gpu = 0; gpu < 4; ++gpu) EXPECT_EQ(node.broker.service(gpu), GpuService::kDrained);
  ASSERT_TRUE(drain("", 0).ok());
}

// Goal    operators alone may, and every attempt is in the audit; wrong arguments change nothing.
TEST_F(DrainTest, OperatorsAlone) {
  const SessionId user = node.attach();
  expect_refused(node.broker.drain(node.session(user), "HOST-0", Milliseconds(0)).status(),
                 StatusCode::kPermissionDenied, "user 1000 is no operator");
  expect_refused(node.broker.undrain(node.session(user), "").status(),
                 StatusCode::kPermissionDenied, "is no operator");
  expect_refused(drain("HOST-9", 0).status(), StatusCode::kNotFound, "no GPU 'HOST-9'");
  expect_refused(drain("HOST-0", 3'600'001).status(), StatusCode::kInvalidArgument,
                 "it takes 0 to 3600000");
  EXPECT_TRUE(node.broker.drains().empty());
  EXPECT_TRUE(logged("call=DrainGpu gpu=HOST-0 deadline_ms=0 result=PERMISSION_DENIED"));
  EXPECT_TRUE(logged("call=UndrainGpu gpu=all result=PERMISSION_DENIED"));
  EXPECT_TRUE(logged("call=DrainGpu gpu=HOST-9 deadline_ms=0 result=NOT_FOUND"));
}

// Goal    a driver that lets go only with its process: another process is wanted as soon as nothing
//         is left, and again to bring the GPU back; where that cannot be, nothing is begun.
TEST(DrainByRestart, WantsAnotherProcess) {
  BrokerOptions options = Fixture::small_options();
  options.drains_by_restart = true;
  Fixture node(options);
  const SessionId root = node.attach(0);
  std::vector<SessionId> members;
  node.form(2, &members);
  ASSERT_TRUE(node.broker.drain(node.session(root), "HOST-1", Milliseconds(100)).ok());
  EXPECT_FALSE(node.broker.wants_restart());
  node.executor.advance(Milliseconds(100));
  EXPECT_TRUE(node.broker.wants_restart());
  EXPECT_EQ(node.broker.service(1), GpuService::kDraining) << "this process still has its files";
  node.pool.closed.insert(1);  // As in the process that comes after.
  EXPECT_EQ(node.broker.service(1), GpuService::kDrained);
}

TEST(DrainByRestart, ReturnsWithAnotherProcess) {
  Fixture node;
  const SessionId root = node.attach(0);
  ASSERT_TRUE(node.broker.drain(node.session(root), "HOST-1", Milliseconds(0)).ok());
  node.pool.closed.insert(1);  // As in the process that came after.
  ASSERT_TRUE(node.broker.undrain(node.session(root), "HOST-1").ok());
  EXPECT_EQ(node.broker.service(1), GpuService::kReturning);
  EXPECT_TRUE(node.broker.wants_restart());
  const auto early = node.join(node.attach(), 1, 2);
  expect_refused(early->status(), StatusCode::kUnavailable, "starts itself anew");
  EXPECT_TRUE(retryable(early->status())) << "the next process takes it";
}

TEST(DrainByRestart, RefusedWhereItWouldLoseAll) {
  BrokerOptions options = Fixture::small_options();
  options.drain_refusal = "no state_dir";
  Fixture node(options);
  const SessionId root = node.attach(0);
  expect_refused(node.broker.drain(node.session(root), "HOST-1", Milliseconds(0)).status(),
                 StatusCode::kFailedPrecondition, "no state_dir");
  EXPECT_EQ(node.broker.service(1), GpuService::kServing);
}

// Goal    a rank that does not come because its process is stopped is named as that.
TEST_F(DrainTest, TimeOutsNameStoppedProcesses) {
  node.processes.stopped.insert(103);
  for (int i = 0; i < 3; ++i) {  // With pidfds, which attach() gives none.
    members.push_back(
        node.broker.open_session({1000, 1000, ++node.pid, false}, UniqueFd(::dup(0)))->session);
  }
  Fixture::Answer<JoinResult> joined;
  for (uint32_t rank = 0; rank < 3; ++rank) joined = node.join(members[rank], rank, 3);
  group = (*joined)->group;
  const auto waiting = node.barrier(members[0], group, 0, 0, Milliseconds(10));
  node.executor.advance(Milliseconds(10));
  expect_refused(waiting->status(), StatusCode::kDeadlineExceeded,
                 "ranks 1 (pid 103, stopped by a signal: SIGCONT resumes it),2 have not come");
}

}  // namespace
}  // namespace cco::memd
