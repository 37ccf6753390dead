// Other users, and other namespaces.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/integration/ccoctl.h"
#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using absl::StatusCode;

class TenantTest : public NodeTest {
 protected:
  Ranks::Options ranks_as(const std::string& uid, const std::string& argument = "") const {
    Ranks::Options options = ranks(argument);
    options.wrapper = {"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups"};
    return options;
  }
  static bool can_change_user() { return ::geteuid() == 0; }
};

// What a session sees of groups, as "name:uid name:uid".
std::string visible_groups(RawSession& session) {
  v1::ListGroupsResponse groups;
  EXPECT_TRUE(session.call(&Stub::ListGroups, v1::ListGroupsRequest(), &groups).ok());
  std::string text;
  for (const v1::GroupInfo& group : groups.groups()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", group.name(), ":", group.uid());
  }
  return text;
}

// Makes a group and a window, tells their ids, and waits.
void keep_group(Rank& rank) {
  RawSession session(rank.socket_path);
  const v1::JoinGroupResponse group = session.join("job");
  const v1::CreateWindowResponse window = session.create_window(group.group_id(), "w");
  rank.say(absl::StrCat(group.group_id(), " ", window.window_id(), " ", window.generation()));
  EXPECT_EQ(rank.hear(), "end");
  v1::ListWindowsResponse windows;
  EXPECT_TRUE(session.call(&Stub::ListWindows, v1::ListWindowsRequest(), &windows).ok());
  EXPECT_EQ(windows.windows_size(), 1);
  v1::BarrierRequest barrier;  // Nobody aborted it.
  barrier.set_request_id(new_request_id());
  barrier.set_group_id(group.group_id());
  v1::BarrierResponse passed;
  EXPECT_TRUE(session.call(&Stub::Barrier, barrier, &passed).ok());
  session.leave(group.group_id());
}

// With another user's ids: sees nothing, gets nothing, changes nothing.
void try_everything(Rank& rank) {
  uint64_t group_id = 0, window_id = 0, generation = 0;
  ASSERT_EQ(std::sscanf(rank.argument.c_str(), "%lu %lu %lu", &group_id, &window_id, &generation),
            3);
  RawSession session(rank.socket_path);
  EXPECT_EQ(visible_groups(session), "");
  v1::AbortGroupRequest abort;
  abort.set_request_id(new_request_id());
  abort.set_group_id(group_id);
  v1::AbortGroupResponse aborted;
  EXPECT_TRUE(refused(session.call(&Stub::AbortGroup, abort, &aborted), StatusCode::kNotFound,
                      {"may abort"}));
  v1::LeaveGroupRequest leave;
  leave.set_request_id(new_request_id());
  leave.set_group_id(group_id);
  v1::LeaveGroupResponse left;
  EXPECT_TRUE(refused(session.call(&Stub::LeaveGroup, leave, &left), StatusCode::kNotFound,
                      {"not rank 0"}));
  v1::ExportSlabsRequest slabs;
  slabs.set_request_id(new_request_id());
  slabs.set_group_id(group_id);
  v1::ExportSlabsResponse exports;
  EXPECT_TRUE(refused(session.call(&Stub::ExportSlabs, slabs, &exports), StatusCode::kNotFound,
                      {"not rank 0"}));
  v1::DestroyWindowRequest destroy;
  destroy.set_request_id(new_request_id());
  destroy.set_group_id(group_id);
  destroy.set_window_id(window_id);
  destroy.set_generation(generation);
  v1::DestroyWindowResponse destroyed;
  EXPECT_TRUE(refused(session.call(&Stub::DestroyWindow, destroy, &destroyed),
                      StatusCode::kNotFound, {"not rank 0"}));
  v1::ExplainGroupRequest explain;
  explain.set_group_id(group_id);
  v1::ExplainGroupResponse explained;
  EXPECT_TRUE(refused(session.call(&Stub::ExplainGroup, explain, &explained), StatusCode::kNotFound,
                      {"no group"}));
  v1::ListSessionsResponse sessions;
  EXPECT_TRUE(session.call(&Stub::ListSessions, v1::ListSessionsRequest(), &sessions).ok());
  EXPECT_EQ(sessions.sessions_size(), 1);
  v1::ListWindowsRequest list;
  list.set_group_id(group_id);
  v1::ListWindowsResponse windows;
  EXPECT_TRUE(session.call(&Stub::ListWindows, list, &windows).ok());
  EXPECT_EQ(windows.windows_size(), 0);
  const v1::JoinGroupResponse own = session.join("job");  // The same name is another group.
  EXPECT_NE(own.group_id(), group_id);
  EXPECT_EQ(visible_groups(session), "job:1001");
  session.leave(own.group_id());
}

// Goal    a tenant can neither see nor touch another's groups, even with their ids; an operator
//         sees all and may abort any.
// Method  user 1000 keeps a group, user 1001 tries everything; root looks and aborts.
TEST_F(TenantTest, OthersGroupsAreOutOfReach) {
  if (!can_change_user()) GTEST_SKIP() << "not root: cannot play other users";
  start_with("socket_mode: '0666'");
  Ranks owner(1, keep_group, ranks_as("1000"));
  const std::string ids = owner.hear(0);
  run_ranks(1, try_everything, ranks_as("1001", ids));
  {
    RawSession root(daemon->socket_path());
    EXPECT_EQ(visible_groups(root), "job:1000");
  }
  owner.tell(0, "end");
  owner.expect_success();

  Ranks aborted(
      1,
      [](Rank& rank) {
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        cco_group_info info{};
        EXPECT_TRUE(succeeded(group.get_info(&info)));
        rank.say(std::to_string(info.group_id));
        rank.hear();
        EXPECT_TRUE(refused(group.barrier(), CCO_ABORTED, {"an operator (user 0)"}));
      },
      ranks_as("1000"));
  v1::AbortGroupRequest abort;
  abort.set_request_id(new_request_id());
  abort.set_group_id(std::stoull("0" + aborted.hear(0)));
  v1::AbortGroupResponse response;
  {
    RawSession root(daemon->socket_path());
    EXPECT_TRUE(root.call(&Stub::AbortGroup, abort, &response).ok());
  }
  aborted.tell(0, "look");
  aborted.expect_success();
}

// Goal    a user whom the socket does not admit is told which door is closed.
// Method  the default mode, as user 1000.
TEST_F(TenantTest, NotAdmitted) {
  if (!can_change_user()) GTEST_SKIP() << "not root: cannot play other users";
  start();
  run_ranks(
      1,
      [](Rank& rank) {
        Client client;
        EXPECT_TRUE(refused(Client::create({rank.socket_path.c_str(), 0}, &client),
                            CCO_PERMISSION_DENIED, {"Permission denied", "group"}));
      },
      ranks_as("1000"));
}

// Goal    a tenant's sessions do not use up another's.
// Method  sessions_per_tenant of 2: user 1000 takes both, user 1001 still gets one.
TEST_F(TenantTest, LimitsAreEachTenantsOwn) {
  if (!can_change_user()) GTEST_SKIP() << "not root: cannot play other users";
  start_with("socket_mode: '0666' limits { sessions_per_tenant: 2 }");
  const RankBody fill = [](Rank& rank) {
    const Client first = test::attach(rank);
    const Client second = test::attach(rank);
    Client third;
    EXPECT_TRUE(refused(Client::create({rank.socket_path.c_str(), 0}, &third),
                        CCO_RESOURCE_EXHAUSTED,
                        {"tenant 'uid-1000' has 2", "sessions_per_tenant is 2"}));
    rank.say("full");
    rank.hear();
  };
  Ranks full(1, fill, ranks_as("1000"));
  EXPECT_EQ(full.hear(0), "full");
  run_ranks(
      1, [](Rank& rank) { test::attach(rank); }, ranks_as("1001"));
  full.tell(0, "end");
  full.expect_success();
}

// What a session sees of tenants, as "name used/quota of groups name …".
std::string visible_tenants(RawSession& session) {
  v1::ListTenantsResponse tenants;
  EXPECT_TRUE(session.call(&Stub::ListTenants, v1::ListTenantsRequest(), &tenants).ok());
  std::string text;
  for (const v1::TenantInfo& tenant : tenants.tenants()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", tenant.name());
    for (const v1::QuotaInfo& quota : tenant.quotas()) {
      if (quota.name() == "groups") absl::StrAppend(&text, " ", quota.used(), "/", quota.value());
    }
  }
  return text;
}

// Goal    users of one configured tenant share names, sight and quotas; others see nothing of it,
//         and an operator sees all.
// Method  user 1000 keeps a group; user 1001 is of the same tenant, 1002 of none, root looks.
TEST_F(TenantTest, ConfiguredTenants) {
  if (!can_change_user()) GTEST_SKIP() << "not root: cannot play other users";
  start_with(
      "socket_mode: '0666' tenants { name: 'idle' gid: 77 }\n"
      "tenants { name: 'team' uid: [1000, 1001] quotas { groups: 1 } }");
  Ranks owner(1, keep_group, ranks_as("1000"));
  owner.hear(0);
  run_ranks(
      1,
      [](Rank& rank) {
        RawSession session(rank.socket_path);
        EXPECT_EQ(visible_groups(session), "job:1000");
        EXPECT_EQ(visible_tenants(session), "team 1/1");
        v1::JoinGroupResponse joined;
        EXPECT_TRUE(refused(
            session.call(&Stub::JoinGroup, RawSession::join_request("more"), &joined),
            StatusCode::kResourceExhausted, {"tenant 'team' has 1 groups", "quotas.groups is 1"}));
        EXPECT_TRUE(
            refused(session.call(&Stub::JoinGroup, RawSession::join_request("job"), &joined),
                    StatusCode::kAlreadyExists, {"is running"}));
      },
      ranks_as("1001"));
  run_ranks(
      1,
      [](Rank& rank) {
        RawSession session(rank.socket_path);
        EXPECT_EQ(visible_tenants(session), "uid-1002 0/0");
        session.leave(session.join("job").group_id());
      },
      ranks_as("1002"));
  {
    RawSession root(daemon->socket_path());
    EXPECT_EQ(visible_tenants(root), "idle 0/0 team 1/1 uid-0 0/0");
  }
  std::vector<std::string> team;
  const std::string table = ccoctl(daemon->socket_path(), {"tenants"});
  for (const auto& line : absl::StrSplit(table, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words[0] == "team") team = words;
  }
  EXPECT_EQ(team, (std::vector<std::string>{"team", "uid", "1000,1001", "0", "1/512", "1/1", "1/-",
                                            "5", "MiB/-", "yes"}));
  owner.tell(0, "end");
  owner.expect_success();
}

// Goal    a client in a container's namespaces works like any other, and its death is noticed.
// Method  a child in its own user and pid namespaces joins a group, and is killed.
TEST_F(TenantTest, OtherNamespaces) {
  const std::vector<std::string> unshare = {
      "unshare", "--user", "--map-root-user", "--pid", "--kill-child=KILL", "--fork"};
  Process::Options probe;
  probe.arguments = unshare;
  probe.arguments.push_back("true");
  if (Process(probe).wait(patience()) != 0) {
    GTEST_SKIP() << "this machine gives no user and pid namespaces to unshare(1)";
  }
  start();
  Ranks::Options options = ranks();
  options.wrapper = unshare;
  Ranks team(
      2,
      [](Rank& rank) {
        EXPECT_EQ(::getpid(), 1);
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        Window window;
        EXPECT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 10}, &window)));
        rank.say("ready");
        rank.hear();
        EXPECT_TRUE(refused(group.barrier(), CCO_ABORTED, {"rank 1"}));
      },
      options);
  for (const std::string& text : team.hear_all()) EXPECT_EQ(text, "ready");
  team.signal(1, SIGKILL);
  team.tell(0, "look");
  team.expect_success();
}

}  // namespace
}  // namespace cco::test
