// What outlives the daemon: a broker's state through records, and answers that wait for them.
#include "daemon/state/recorder.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/daemon/recorder_rig.h"

namespace cco::memd {
namespace {

// Goal    a daemon goes on with all that another knew: the records of the two are the same.
// Method  a group with windows of every placement, some given up, a rank that left, a report of
//         each kind, an answer; then a second daemon whose records are all written anew.
TEST_F(RecorderTest, StateIsTheSameAfterwards) {
  std::vector<SessionId> members;
  GroupId group{};
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 3; ++pid) members.push_back(node->attach(pid));
    group = form(*node, members);
    window(*node, members, group, "heap", Placement::kHeap, 5000);
    const WindowResult gone = window(*node, members, group, "gone", Placement::kHeap, 3 << 20);
    window(*node, members, group, "control", Placement::kControl, 512);
    window(*node, members, group, "external", Placement::kExternal, 4096);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(node->broker
                      .destroy_window(*node->broker.session(members[rank]), group, rank,
                                      gone.window, gone.generation)
                      .ok());
    }
    Session& first = *node->broker.session(members[0]);
    ASSERT_TRUE(node->broker.report_peers(first, group, 0, {{1, true, "self-test"}}).ok());
    ASSERT_TRUE(
        node->broker.report_transports(first, group, 0, {{1, "sdma", true, "host", "detail"}})
            .ok());
    ASSERT_TRUE(first.requests->begin("id", "what", [](const Outcome&) {}));
    first.requests->end("id", {absl::AbortedError("why"), ""});
    node->broker.note_answer(members[0], "id");
    ASSERT_TRUE(node->broker.leave(*node->broker.session(members[2]), group, 2).ok());
    node->round();
  }
  const auto before = store.records;
  EXPECT_EQ(store.count(RecordKind::kWindow), 3u);
  const auto node = start();
  EXPECT_EQ(store.records, before);
  EXPECT_TRUE(node->losses.empty());
  Changes all;
  for (const auto& [id, session] : node->broker.sessions().all()) all.sessions.insert(id);
  for (const auto& [id, slab] : node->broker.slabs().all()) all.slabs.insert(id);
  EXPECT_EQ(all.sessions.size(), 3u);
  EXPECT_EQ(all.slabs.size(), store.count(RecordKind::kSlab));
  // Each kind of record, made anew.
  const Group& restored = *node->broker.groups().at(group);
  EXPECT_EQ(encode(restored), (before.at({RecordKind::kGroup, record_key(group)})));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(encode(restored, rank, node->pool.gpus()),
              (before.at({RecordKind::kRank, record_key(group, rank)})));
  }
  for (const auto& [id, kept] : restored.windows) {
    EXPECT_EQ(encode(restored, kept), (before.at({RecordKind::kWindow, record_key(group, id)})));
  }
  for (const auto& [id, slab] : node->broker.slabs().all()) {
    EXPECT_EQ(encode(id, slab, node->pool.gpus()),
              (before.at({RecordKind::kSlab, record_key(id)})));
  }
  for (const auto& [id, session] : node->broker.sessions().all()) {
    EXPECT_EQ(encode(session), (before.at({RecordKind::kSession, record_key(id)})));
  }
  // The room that is taken stays taken, and the rest can be used: nothing overlaps.
  EXPECT_EQ(node->broker.session(members[0])->state, SessionState::kAway);
  std::string answer;
  EXPECT_FALSE(
      node->broker.session(members[0])->requests->begin("id", "what", [&](const Outcome& outcome) {
        answer = std::string(outcome.status.message());
      }));
  EXPECT_EQ(answer, "why");
}

// Goal    what clients write and folders are called need not be text: no byte of it keeps the next
//         daemon from starting.
// Method  bytes that are no UTF-8 wherever the broker takes some, and in an answer.
TEST_F(RecorderTest, AnyBytesComeBack) {
  const std::string bytes("\xff\xc3 \x80\0", 5);
  SessionId id{};
  GroupId group{};
  {
    const auto node = start();
    id = node->broker.open_session({1000, 1000, 1, false, "/" + bytes}, Node::memfd("p"))->session;
    group = form(*node, {id});
    Session& session = *node->broker.session(id);
    ASSERT_TRUE(node->broker.report_peers(session, group, 0, {{0, true, bytes}}).ok());
    ASSERT_TRUE(
        node->broker.report_transports(session, group, 0, {{0, "lsa", true, bytes, bytes}}).ok());
    ASSERT_TRUE(session.requests->begin(bytes, bytes, [](const Outcome&) {}));
    session.requests->end(bytes, {absl::AbortedError(bytes), bytes});
    node->broker.note_answer(id, bytes);
    node->round();
  }
  const auto node = start();
  EXPECT_EQ(node->broker.session(id)->who.cgroup, "/" + bytes);
  const Rank& rank = node->broker.groups().at(group)->ranks[0];
  EXPECT_EQ(rank.peers.find(0)->detail, bytes);
  EXPECT_EQ(rank.transports.find(1)->provider, bytes);
  const RequestLog::Entry* answer = node->broker.session(id)->requests->find(bytes);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->outcome.status.message(), bytes);
}

// Goal    who pays is found anew from who the kernel said the processes are, so that a restart with
//         the same configuration changes nothing, and one with another takes effect.
TEST_F(RecorderTest, TenantsAreOfTheConfigurationThatIs) {
  std::vector<SessionId> members;
  GroupId group{};
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 2; ++pid) {
      const Identity who{1000, 1000, pid, false, "/jobs.slice/a"};
      members.push_back(node->broker.open_session(who, Node::memfd("p"))->session);
    }
    group = form(*node, members);
    node->round();
  }
  for (const bool by_cgroup : {false, true}) {
    Tenant team;
    team.name = "team";
    if (by_cgroup) {
      team.cgroup = "/jobs.slice";
    } else {
      team.uids = {1000};
    }
    team.quotas.groups = 1;
    BrokerOptions options = Fixture::small_options();
    options.tenants = Tenants({team}, {});
    const auto node = start(options);
    EXPECT_EQ(node->broker.session(members[0])->tenant, Tenants::id(0));
    EXPECT_EQ(node->broker.groups().at(group)->tenant, Tenants::id(0));
    EXPECT_EQ(node->broker.slabs().bytes(Tenants::id(0), 1), options.control_bytes);
    JoinRequest request;
    request.name = "more";
    request.size = 1;
    request.gpu_uuid = "HOST-0";
    absl::Status refused;
    node->broker.join(*node->broker.session(members[0]), request,
                      [&](absl::StatusOr<JoinResult> result) { refused = result.status(); });
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  }
  const auto node = start();
  const TenantId user = node->broker.session(members[0])->tenant;
  EXPECT_EQ(node->broker.tenants().name(user), "uid-1000");
  EXPECT_EQ(node->broker.groups().at(group)->tenant, user);
  for (const SessionId id : members) node->broker.process_exited(id);
  EXPECT_EQ(node->broker.slabs().bytes(user, 0), 0u);
}

// Goal    a session comes back with its token, and as the same process alone.
TEST_F(RecorderTest, SessionsComeBack) {
  std::string token;
  SessionId id{};
  {
    const auto node = start();
    const auto welcome = node->broker.open_session({1000, 1000, 5, false}, Node::memfd("p"));
    token = welcome->token;
    id = welcome->session;
    node->round();
  }
  const auto node = start();
  const Identity who{1000, 1000, 5, false};
  EXPECT_EQ(node->broker.resume_session(token, {1000, 1000, 6, false}, UniqueFd()).status().code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(node->broker.resume_session(token, {1001, 1000, 5, false}, UniqueFd()).status().code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(node->broker.resume_session("another", who, UniqueFd()).status().code(),
            absl::StatusCode::kUnauthenticated);
  const auto back = node->broker.resume_session(token, who, UniqueFd());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->session, id);
  EXPECT_EQ(node->broker.resume_session(token, who, UniqueFd()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // Ids are not used again.
  EXPECT_GT(number(node->attach(7)), number(id));
}

// Goal    who is no operator any more when the next daemon runs can do nothing there as one, and
//         who has become one can, though both go on with the sessions that they had; and no session
//         that is away serves anybody.
// Method  each way over a restart, and once more, as what has changed is recorded, too.
TEST_F(RecorderTest, OperatorsAreWhoTheyAreNow) {
  for (const bool was_operator : {true, false}) {
    Identity who{1000, 1000, 5, was_operator};
    std::string token;
    {
      const auto node = start();
      token = node->broker.open_session(who, Node::memfd("p"))->token;
      node->round();
    }
    for (int restart = 0; restart < 2; ++restart) {
      who.is_operator = (restart == 0) != was_operator;
      const auto node = start();
      EXPECT_EQ(node->broker.authenticate(token, who).status().code(),
                absl::StatusCode::kUnauthenticated);
      ASSERT_TRUE(node->broker.resume_session(token, who, UniqueFd()).ok());
      const absl::StatusOr<Session*> session = node->broker.authenticate(token, who);
      ASSERT_TRUE(session.ok()) << session.status();
      EXPECT_EQ(node->broker.drain(**session, "HOST-3", Milliseconds(0)).status().code(),
                who.is_operator ? absl::StatusCode::kOk : absl::StatusCode::kPermissionDenied);
      EXPECT_EQ(node->broker.may_see(**session, TenantId{1}), who.is_operator);
      EXPECT_EQ(node->broker.undrain(**session, "HOST-3").ok(), who.is_operator);
      node->round();
      EXPECT_EQ(encode(**session),
                (store.records.at({RecordKind::kSession, record_key((*session)->id)})));
      if (restart == 1) node->broker.process_exited((*session)->id);
      node->round();
    }
  }
}

// Goal    what was revoked, and may still be mapped, is taken in the next daemon, too.
TEST_F(RecorderTest, RevokedMemoryStaysTaken) {
  std::vector<SessionId> members;
  uint64_t taken = 0;
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 2; ++pid) members.push_back(node->attach(pid));
    const GroupId group = form(*node, members);
    window(*node, members, group, "w", Placement::kHeap, 3 << 20);
    window(*node, members, group, "external", Placement::kExternal, 4096);
    taken = node->broker.slabs().ledger().slab_bytes(1);
    const auto root = node->broker.open_session({0, 0, 99, true}, Node::memfd("root"));
    Session& session = *node->broker.session(root->session);
    ASSERT_TRUE(node->broker.drain(session, "HOST-1", Milliseconds(0)).ok());
    node->executor.advance(Milliseconds(0));
    ASSERT_TRUE(node->broker.undrain(session, "HOST-1").ok());
    node->broker.process_exited(root->session);
    node->round();
  }
  EXPECT_GT(taken, uint64_t{3} << 20);
  const auto node = start();
  const SlabTable& slabs = node->broker.slabs();
  const TenantId tenant = node->broker.session(members[0])->tenant;
  for (const SessionId id : members) {
    EXPECT_EQ(slabs.usage(1).revoked_bytes, taken);
    EXPECT_EQ(slabs.bytes(tenant, 1), taken);
    EXPECT_EQ(slabs.ledger().slab_bytes(1), taken);
    node->broker.process_exited(id);
  }
  EXPECT_EQ(slabs.bytes(tenant, 1), 0u);
  EXPECT_EQ(slabs.ledger().slab_bytes(1), 0u);
}

// Goal    a session that nobody knows of, or whose end nobody will tell, is not waited for for
//         ever; one with ranks and a process that lives is.
TEST_F(RecorderTest, NobodyIsWaitedForInVain) {
  SessionId without_ranks{}, without_process{}, member{};
  {
    const auto node = start();
    without_ranks = node->attach(1);
    without_process = node->broker.open_session({1000, 1000, 2, false}, UniqueFd())->session;
    member = node->attach(3);
    form(*node, {without_process, member});
    node->round();
  }
  const auto node = start();
  node->executor.advance(Fixture::small_options().return_timeout - Milliseconds(1));
  EXPECT_EQ(node->broker.sessions().size(), 3u);
  node->executor.advance(Milliseconds(1));
  node->round();
  EXPECT_EQ(node->broker.session(without_ranks), nullptr);
  EXPECT_EQ(node->broker.session(without_process), nullptr);
  EXPECT_NE(node->broker.session(member), nullptr);
  EXPECT_EQ(store.count(RecordKind::kSession), 1u);
}

// Goal    what ends while no daemon runs is cleaned up by the next: records, descriptors, memory.
TEST_F(RecorderTest, NothingIsLeftOfTheDead) {
  std::vector<SessionId> members;
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 2; ++pid) members.push_back(node->attach(pid));
    const GroupId group = form(*node, members);
    window(*node, members, group, "w", Placement::kHeap, 5000);
    node->round();
  }
  vault.fds.emplace("slab-999", Node::memfd("put, and killed before the commit"));
  const auto node = start();
  EXPECT_EQ(vault.fds.count("slab-999"), 0u);
  EXPECT_GT(vault.fds.size(), 4u);
  for (const SessionId id : members) node->broker.process_exited(id);
  node->round();
  EXPECT_TRUE(vault.fds.empty());
  for (const RecordKind kind :
       {RecordKind::kSession, RecordKind::kGroup, RecordKind::kRank, RecordKind::kWindow,
        RecordKind::kSlab, RecordKind::kAnswer, RecordKind::kKeptWindow, RecordKind::kAttachment}) {
    EXPECT_EQ(store.count(kind), 0u) << static_cast<int>(kind);
  }
  EXPECT_EQ(store.count(RecordKind::kDaemon), 1u);
}

// Goal    answers leave after what they promise is recorded; while that does not work nothing new
//         is begun, and afterwards they leave.
TEST_F(RecorderTest, AnswersWait) {
  const auto node = start();
  std::vector<std::string> sent;
  const auto post = [&](const std::string& name) {
    node->recorder.post([&sent, name](const absl::Status& recorded) {
      sent.push_back(absl::StrCat(name, recorded.ok() ? "" : " failed"));
    });
  };
  node->attach(1);
  post("first");
  EXPECT_TRUE(sent.empty());
  node->round();
  EXPECT_EQ(sent, std::vector<std::string>{"first"});
  for (absl::Status* broken : {&store.failure, &vault.failure}) {
    sent.clear();
    *broken = absl::ResourceExhaustedError("no space left");
    node->attach(2);
    post("second");
    node->round();
    node->round();
    EXPECT_TRUE(sent.empty());
    EXPECT_EQ(node->recorder.accepting().code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(std::string(node->recorder.accepting().message()).find("no space left"),
              std::string::npos);
    EXPECT_EQ(node->executor.timer_count(), 1u);  // It will be tried again without a client.
    *broken = absl::OkStatus();
    node->executor.advance(Milliseconds(1000));
    node->round();
    EXPECT_EQ(sent, std::vector<std::string>{"second"});
    EXPECT_TRUE(node->recorder.accepting().ok());
    EXPECT_EQ(store.count(RecordKind::kSession), node->broker.sessions().size());
  }
  sent.clear();
  store.failure = absl::UnavailableError("disk gone");
  node->attach(4);
  post("last");
  node->round();
  node->recorder.stop();
  node->round();
  EXPECT_EQ(sent, std::vector<std::string>{"last failed"});
}

// Goal    what could not be kept over a restart is not begun: the answer names the limit, and when
//         something has ended there is room again.
// Method  ten descriptors: two sessions, a group of two, and two slabs on each rank fill them.
TEST_F(RecorderTest, NothingIsBegunThatCannotBeKept) {
  BrokerOptions options = Fixture::small_options();
  options.kept_descriptors = 10;
  options.limits.tenant_share_percent = 100;
  Fixture f(options);
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  for (const char* name : {"a", "b"}) {
    const auto made = f.create_all(members, f.window(group, 0, 1 << 20, name));
    ASSERT_TRUE(made[1]->ok()) << made[1]->status();
  }
  const auto refused = f.create_all(members, f.window(group, 0, 1 << 20, "c"));
  const auto session = f.broker.open_session({1000, 1000, 77, false}, UniqueFd());
  for (const absl::Status& status :
       {refused[0]->status(), refused[1]->status(), session.status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_NE(std::string(status.message()).find("of the 10 descriptors"), std::string::npos)
        << status;
  }
  EXPECT_TRUE(f.broker.leave(f.session(members[0]), group, 0).ok());
  EXPECT_TRUE(f.broker.leave(f.session(members[1]), group, 1).ok());
  EXPECT_TRUE(f.broker.open_session({1000, 1000, 77, false}, UniqueFd()).ok());
  // Three sessions and a group of four would be eleven.
  EXPECT_EQ((*f.join(members[0], 0, 4, "h")).status().code(), absl::StatusCode::kResourceExhausted);
}

// Goal    a round without changes writes nothing.
TEST_F(RecorderTest, QuietRoundsWriteNothing) {
  const auto node = start();
  node->attach(1);
  node->round();
  const int commits = store.commits;
  node->round();
  EXPECT_EQ(store.commits, commits);
}

// Goal    descriptors or GPUs that have gone cost what needs them, and that is said.
TEST_F(RecorderTest, LossesAreSaid) {
  std::vector<SessionId> members;
  GroupId group{};
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 2; ++pid) members.push_back(node->attach(pid));
    group = form(*node, members);
    lease(*node, {{"HOST-1"}, 1 << 20, 1000, "", ""});
    node->round();
  }
  const auto records = store.records;
  std::map<std::string, UniqueFd> none;
  std::swap(vault.fds, none);
  {
    const auto node = start();
    EXPECT_EQ(node->losses.size(), 3u);  // Two slabs, and the group.
    EXPECT_NE(node->broker.groups().at(group)->abort_word, 0u);
    EXPECT_EQ(node->broker.slabs().size(), 0u);
    EXPECT_EQ(store.count(RecordKind::kSlab), 0u);
  }
  store.records = records;
  std::swap(vault.fds, none);
  driver = *HostDriver::create(1, 64 << 20);  // HOST-1 is gone.
  const auto node = start();
  EXPECT_EQ(node->losses.size(), 3u);
  EXPECT_EQ(store.count(RecordKind::kLease), 0u);
  EXPECT_TRUE(node->broker.groups().empty());
  EXPECT_EQ(store.count(RecordKind::kGroup), 0u);
  EXPECT_EQ(store.count(RecordKind::kRank), 0u);
  EXPECT_EQ(store.count(RecordKind::kSlab), 0u);
  EXPECT_EQ(vault.fds.size(), 2u);  // The processes.
}

// Goal    records that contradict each other are refused, and not touched.
// Method  every record taken away, and every one cut short, one at a time.
TEST_F(RecorderTest, ContradictionsAreRefused) {
  {
    const auto node = start();
    std::vector<SessionId> members{node->attach(1), node->attach(2)};
    const GroupId group = form(*node, members);
    window(*node, members, group, "w", Placement::kHeap, 5000);
    lease(*node, {{}, 1 << 20, 1000, "", ""});
    const WindowResult kept =
        window(*node, members, group, "kept", Placement::kHeap, 5000, Milliseconds(1));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(node->broker
                      .destroy_window(*node->broker.session(members[rank]), group, rank,
                                      kept.window, kept.generation)
                      .ok());
    }
    node->round();
  }
  const auto whole = store.records;
  int refused = 0;
  for (const auto& [key, body] : whole) {
    for (const bool cut : {false, true}) {
      store.records = whole;
      if (cut) {
        store.records[key] = body.substr(0, body.size() - 1);
      } else {
        store.records.erase(key);
      }
      const auto damaged = store.records;
      Node node(store, vault, driver);
      const absl::Status status = node.start();
      if (status.ok()) continue;  // A window fewer contradicts nothing.
      ++refused;
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_NE(std::string(status.message()).find("move the state folder away"),
                std::string::npos);
      EXPECT_EQ(store.records, damaged);
    }
  }
  EXPECT_GE(refused, 20);
}

// Goal    a state of another driver is refused, and not touched.
TEST_F(RecorderTest, AnotherDriversStateIsRefused) {
  start()->round();
  const auto before = store.records;
  Node node(store, vault, driver);
  const auto left = node.recorder.load("cuda", node.pool.gpus(), node.notices);
  EXPECT_EQ(left.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.records, before);
}

}  // namespace
}  // namespace cco::memd
