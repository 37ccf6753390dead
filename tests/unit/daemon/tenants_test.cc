// Tenants: how they are found, what they may have, what is recorded of those who act on others'.
#include "daemon/core/tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSlab = 1 << 20, kControl = 64 * 1024;  // kControl is the granularity, too.

std::string text(const absl::Status& status) { return std::string(status.message()); }

// One tenant of users 1000 and 1001.
BrokerOptions with_quotas(const Quotas& quotas) {
  Tenant team;
  team.name = "team";
  team.uids = {1000, 1001};
  team.quotas = quotas;
  BrokerOptions options = Fixture::small_options();
  options.tenants = Tenants({team}, {});
  return options;
}

// Goal    the first tenant that takes a process has it, by user, group or cgroup; a user whom none
//         takes is a tenant of his own.
TEST(Tenants, AreFoundInOrder) {
  Tenant users, group, jobs;
  users.name = "users";
  users.uids = {1000, 1001};
  group.name = "group";
  group.gids = {50};
  jobs.name = "jobs";
  jobs.cgroup = "/jobs.slice";
  Tenant others;
  others.priority = 7;
  const Tenants tenants({users, group, jobs}, others);
  const auto name = [&](uint32_t uid, uint32_t gid, const std::string& cgroup) {
    return tenants.name(tenants.find({uid, gid, 1, false, cgroup}));
  };
  EXPECT_EQ(name(1001, 1, ""), "users");
  EXPECT_EQ(name(1001, 50, "/jobs.slice"), "users");
  EXPECT_EQ(name(7, 50, "/jobs.slice"), "group");
  EXPECT_EQ(name(7, 7, "/jobs.slice"), "jobs");
  EXPECT_EQ(name(7, 7, "/jobs.slice/a.scope"), "jobs");
  EXPECT_EQ(name(7, 7, "/jobs.slice-2"), "uid-7");
  EXPECT_EQ(name(7, 7, ""), "uid-7");
  EXPECT_EQ(name(0, 0, "/"), "uid-0");
  EXPECT_EQ(name(0xffffffff, 0, ""), "uid-4294967295");
  EXPECT_NE(tenants.find({7, 7, 1, false}), tenants.find({8, 7, 1, false}));
  EXPECT_EQ(tenants.terms(tenants.find({7, 7, 1, false})).priority, 7u);
}

// Goal    the users of one tenant form groups together; another tenant's group of that name is
//         another group.
TEST(Tenants, NamesAreTheTenantsOwn) {
  Fixture f(with_quotas({}));
  const auto first = f.join(f.attach(1000), 0, 2);
  const auto theirs = f.join(f.attach(2000), 1, 2);
  const auto second = f.join(f.attach(1001), 1, 2);
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_TRUE(second->ok()) << second->status();
  EXPECT_EQ((*first)->group, (*second)->group);
  EXPECT_EQ(theirs->status().code(), absl::StatusCode::kUnknown) << "it waits";
  EXPECT_TRUE((*f.join(f.attach(2001), 0, 1)).ok());
}

// Goal    a refusal says which quota, its value, what is used and by whom.
TEST(Tenants, SessionsOverTheQuota) {
  Fixture f(with_quotas({.sessions = 2}));
  f.attach(1000);
  const SessionId second = f.attach(1001);
  const absl::Status status = f.broker.open_session({1000, 1, 7, false}, UniqueFd()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(status),
              AllOf(HasSubstr("attaching pid 7"), HasSubstr("tenant 'team' has 2 sessions"),
                    HasSubstr("pid 102 1, pid 101 1"), HasSubstr("quotas.sessions is 2"),
                    HasSubstr("raise it")));
  EXPECT_TRUE(f.broker.open_session({2000, 1, 8, false}, UniqueFd()).ok()) << "another tenant";
  f.broker.close_session(second);
  EXPECT_TRUE(f.broker.open_session({1000, 1, 7, false}, UniqueFd()).ok());
}

// Goal    groups that form count like those that run, and are given back by whatever ends them.
TEST(Tenants, GroupsOverTheQuota) {
  Fixture f(with_quotas({.groups = 2}));
  const SessionId one = f.attach(1000), two = f.attach(1001);
  ASSERT_TRUE((*f.join(one, 0, 1, "runs")).ok());
  const auto forming = f.join(two, 0, 2, "forms");
  const auto refused = f.join(two, 0, 1, "third");
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(refused->status()),
              AllOf(HasSubstr("forming group 'third'"), HasSubstr("tenant 'team' has 2 groups"),
                    HasSubstr("pid 101 1, on their way 1"), HasSubstr("quotas.groups is 2")));
  EXPECT_TRUE((*f.join(f.attach(2000), 0, 1, "third")).ok()) << "another tenant";
  EXPECT_TRUE((*f.join(f.attach(1000), 1, 2, "forms")).ok()) << "it is counted already";
  const GroupId runs = f.session(one).ranks.begin()->first;
  ASSERT_TRUE(f.broker.leave(f.session(one), runs, 0).ok());
  EXPECT_TRUE((*f.join(two, 0, 1, "third")).ok());
}

// Goal    windows of all groups count, and so do those that wait for memory: two that come at once
//         do not both get the last place.
// Method  a GPU that does not answer while the second window asks.
TEST(Tenants, WindowsOverTheQuota) {
  Fixture f(with_quotas({.windows = 2}));
  std::vector<SessionId> a, b;
  const GroupId first = f.form(1, &a, "a"), second = f.form(1, &b, "b");
  const auto held = f.create(a[0], f.window(first, 0, 256, "held"));
  ASSERT_TRUE(held->ok());
  f.pool.stuck.insert(0);
  const auto waits = f.create(b[0], f.window(second, 0, kSlab, "waits"));
  const auto refused = f.create(a[0], f.window(first, 0, 256, "more"));
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(refused->status()),
              AllOf(HasSubstr("window 'more'"), HasSubstr("tenant 'team' has 2 windows"),
                    HasSubstr("pid 102 1, pid 101 1"), HasSubstr("quotas.windows is 2")));
  f.pool.stuck.clear();
  f.pool.answer();
  EXPECT_TRUE((*waits).ok());
  EXPECT_FALSE((*f.create(a[0], f.window(first, 0, 256, "more"))).ok());
  ASSERT_TRUE(
      f.broker.destroy_window(f.session(a[0]), first, 0, (*held)->window, (*held)->generation)
          .ok());
  EXPECT_TRUE((*f.create(a[0], f.window(first, 0, 256, "more"))).ok());
}

// Goal    a group's own limits count what is in the making as well.
TEST(Tenants, LimitsOfAGroupCountWhatIsInTheMaking) {
  BrokerOptions options = Fixture::small_options();
  options.limits.windows_per_group = 2;
  options.limits.slabs_per_group = 2;
  Fixture f(options);
  std::vector<SessionId> members;
  const GroupId group = f.form(1, &members);
  f.pool.stuck.insert(0);
  const auto first = f.create(members[0], f.window(group, 0, kSlab, "first"));
  EXPECT_THAT(text(f.create(members[0], f.window(group, 0, kSlab, "second"))->status()),
              AllOf(HasSubstr("needs another slab"), HasSubstr("limits.slabs_per_group is 2")));
  WindowRequest control = f.window(group, 0, 256, "control");
  control.placement = Placement::kControl;
  EXPECT_TRUE((*f.create(members[0], control)).ok());
  control.name = "third";
  EXPECT_THAT(text(f.create(members[0], control)->status()),
              AllOf(HasSubstr("has 2 windows"), HasSubstr("limits.windows_per_group is 2")));
  f.pool.stuck.clear();
  f.pool.answer();
  EXPECT_TRUE((*first).ok());
}

// Goal    bytes count from the moment their allocation begins, on each GPU by itself, whoever of
//         the tenant asks; what fails or ends is given back, to the byte.
TEST(Tenants, BytesOverTheQuota) {
  Fixture f(with_quotas({.bytes_per_gpu = kSlab + 2 * kControl}));
  std::vector<SessionId> a, b;
  const GroupId first = f.form(1, &a, "a"), second = f.form(1, &b, "b");
  const TenantId team = Tenants::id(0);
  EXPECT_EQ(f.broker.slabs().bytes(team, 0), 2 * kControl);
  f.pool.stuck.insert(0);
  const auto waits = f.create(a[0], f.window(first, 0, kSlab));
  const auto refused = f.create(b[0], f.window(second, 0, 4096));
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(refused->status()),
              AllOf(HasSubstr(absl::StrCat("slabs of ", kControl, " bytes on HOST-0")),
                    HasSubstr(absl::StrCat("tenant 'team' has ", kSlab + 2 * kControl, " bytes")),
                    HasSubstr(absl::StrCat("pid 102 ", kControl, ", pid 101 ", kControl)),
                    HasSubstr(absl::StrCat("on their way ", kSlab)),
                    HasSubstr(absl::StrCat("quotas.bytes_per_gpu is ", kSlab + 2 * kControl))));
  f.pool.stuck.clear();
  f.pool.answer();
  ASSERT_TRUE((*waits).ok());
  EXPECT_EQ(f.broker.slabs().bytes(team, 0), kSlab + 2 * kControl);
  const SessionId other = f.attach(2000);
  ASSERT_TRUE((*f.join(other, 0, 1)).ok()) << "another tenant";
  EXPECT_TRUE((*f.create(other, f.window(f.session(other).ranks.begin()->first, 0, kSlab))).ok());
  ASSERT_TRUE(f.broker.leave(f.session(a[0]), first, 0).ok());
  EXPECT_EQ(f.broker.slabs().bytes(team, 0), kControl);
  EXPECT_TRUE((*f.create(b[0], f.window(second, 0, 4096))).ok());
  ASSERT_TRUE(f.broker.leave(f.session(b[0]), second, 0).ok());
  EXPECT_EQ(f.broker.slabs().bytes(team, 0), 0u);
}

// Goal    ranks that share a GPU are counted together, a failed allocation leaves nothing charged,
//         and a smaller slab is tried before a window is refused.
TEST(Tenants, BytesOfOneCallAddUp) {
  Fixture f(with_quotas({.bytes_per_gpu = 5 * kControl}));
  const TenantId team = Tenants::id(0);
  const SessionId id = f.attach(1000);
  JoinRequest request;
  request.name = "g";
  request.size = 2;
  request.gpu_uuid = "HOST-0";
  f.pool.fail_call = 1;
  const auto failed = f.join(id, request);
  request.rank = 1;
  f.join(id, request);
  EXPECT_THAT(text(failed->status()), HasSubstr("injected"));
  EXPECT_EQ(f.broker.slabs().bytes(team, 0), 0u);
  const auto joined = f.join(id, request);
  request.rank = 0;
  f.join(id, request);
  ASSERT_TRUE(joined->ok()) << joined->status();
  const GroupId group = (*joined)->group;
  const auto refused = f.create(id, f.window(group, 0, 2 * kControl));
  f.create(id, f.window(group, 1, 2 * kControl));
  EXPECT_THAT(text(refused->status()),
              HasSubstr(absl::StrCat("slabs of ", 4 * kControl, " bytes on HOST-0")));
  EXPECT_EQ(f.broker.slabs().bytes(team, 0), 2 * kControl);
  const auto fits = f.create(id, f.window(group, 0, 4096));
  f.create(id, f.window(group, 1, 4096));
  EXPECT_TRUE(fits->ok()) << fits->status();
  EXPECT_EQ(f.broker.slabs().bytes(team, 0), 4 * kControl);
}

// Goal    a tenant without the right to register memory of its own is told so.
TEST(Tenants, ExternalMemoryIsARight) {
  Tenant others;
  others.external_memory = false;
  BrokerOptions options = Fixture::small_options();
  options.tenants = Tenants({}, others);
  Fixture f(options);
  std::vector<SessionId> members;
  const GroupId group = f.form(1, &members);
  WindowRequest request = f.window(group, 0, 4096);
  request.placement = Placement::kExternal;
  request.allocation_bytes = kControl;
  const GpuMemory memory = *f.driver->allocate(0, kControl, MemoryKind::kData);
  request.offer = *f.broker.desk().take_offer(members[0], *f.driver->export_fd(memory));
  const auto refused = f.create(members[0], request);
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(text(refused->status()),
              AllOf(HasSubstr("'uid-1000'"), HasSubstr("external_memory")));
  EXPECT_TRUE((*f.create(members[0], f.window(group, 0, 4096))).ok());
}

// Goal    what operators do to others is recorded, with who, what, to what, and the result; so is
//         what somebody tried who is none. What members do is no act of an operator.
TEST(Tenants, AdminCallsAreAudited) {
  Fixture f(with_quotas({}));
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const SessionId stranger = f.attach(2000), root = f.attach(0);
  f.journal.lines.clear();
  EXPECT_FALSE(f.broker.abort(f.session(stranger), group, 0).ok());
  EXPECT_THAT(f.journal.lines,
              ElementsAre("audit uid=2000 pid=103 tenant=uid-2000 call=AbortGroup group=1 "
                          "owner=team result=NOT_FOUND"));
  f.journal.lines.clear();
  EXPECT_FALSE(f.broker.abort(f.session(root), GroupId{99}, 0).ok());
  EXPECT_THAT(f.journal.lines, ElementsAre("audit uid=0 pid=104 tenant=uid-0 call=AbortGroup "
                                           "group=99 owner=none result=NOT_FOUND"));
  f.journal.lines.clear();
  EXPECT_TRUE(f.broker.abort(f.session(root), group, 0).ok());
  EXPECT_THAT(f.journal.lines,
              ElementsAre("audit uid=0 pid=104 tenant=uid-0 call=AbortGroup group=1 owner=team "
                          "result=OK",
                          HasSubstr("group_aborted")));
  std::vector<SessionId> others;
  const GroupId second = f.form(1, &others, "second");
  f.journal.lines.clear();
  EXPECT_TRUE(f.broker.abort(f.session(others[0]), second, 0).ok());
  EXPECT_THAT(f.journal.lines, ElementsAre(Not(HasSubstr("audit"))));
}

// For eight of everything, of which one tenant may have half.
BrokerOptions for_eight() {
  BrokerOptions options = Fixture::small_options();
  options.limits.sessions = 8;
  options.limits.sessions_per_tenant = 4;
  options.limits.groups = 8;
  options.limits.kept_windows = 8;
  options.kept_descriptors = 128;
  return options;
}

// What one user takes of something until he is refused.
struct Taken {
  uint64_t count = 0;
  absl::Status refusal;
};

class ShareTest : public ::testing::Test {
 protected:
  Taken take(absl::FunctionRef<absl::Status()> one) {
    constexpr uint64_t kMost = 1000;
    Taken taken;
    while (taken.count < kMost && (taken.refusal = one()).ok()) ++taken.count;
    return taken;
  }
  absl::Status attach(uint32_t uid) {
    const auto made = f.broker.open_session({uid, uid, ++f.pid, uid == 0}, UniqueFd());
    if (made.ok()) sessions[uid] = made->session;
    return made.status();
  }
  absl::Status form(uint32_t uid) {
    const auto joined = f.join(sessions.at(uid), 0, 1, absl::StrCat("g", ++names));
    if (joined->ok()) groups[uid] = (*joined)->group;
    return joined->status();
  }
  absl::Status make(uint32_t uid, Milliseconds keep) {
    WindowRequest request = f.window(groups.at(uid), 0, kSlab, absl::StrCat("w", ++names));
    request.keep = keep;
    return f.create(sessions.at(uid), request)->status();
  }

  Fixture f{for_eight()};
  std::map<uint32_t, SessionId> sessions;
  std::map<uint32_t, GroupId> groups;
  uint64_t names = 0;
};

// Goal    one tenant, whatever it does, leaves others some of all that there is for all, and is
//         told which limit it has come to.
// Method  it takes of each until it is refused; then another takes one.
TEST_F(ShareTest, NobodyTakesTheLast) {
  const Taken attached = take([&] { return attach(1000); });
  EXPECT_EQ(attached.count, 4u);
  EXPECT_THAT(text(attached.refusal), HasSubstr("limits.sessions_per_tenant is 4"));
  ASSERT_TRUE(attach(1001).ok());
  const Taken formed = take([&] { return form(1000); });
  EXPECT_EQ(formed.count, 4u);
  EXPECT_THAT(text(formed.refusal),
              AllOf(HasSubstr("tenant 'uid-1000' has 4 groups"),
                    HasSubstr("limits.tenant_share_percent of limits.groups is 4")));
  ASSERT_TRUE(form(1001).ok());
  const Taken kept = take([&] { return make(1000, Milliseconds(1000)); });
  EXPECT_EQ(kept.count, 4u);
  EXPECT_THAT(
      text(kept.refusal),
      AllOf(HasSubstr("tenant 'uid-1000' has 4 windows that are kept"), Not(HasSubstr("way")),
            HasSubstr("limits.tenant_share_percent of limits.kept_windows is 4")));
  EXPECT_TRUE(make(1001, Milliseconds(1000)).ok());
}

// Goal    as above, of descriptors that can outlive the daemon.
// Method  64 for one: 4 sessions, a group's control region and page, and 58 slabs.
TEST_F(ShareTest, NobodyTakesTheLastDescriptor) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(attach(1000).ok());
  ASSERT_TRUE(form(1000).ok());
  const Taken slabs = take([&] { return make(1000, Milliseconds(0)); });
  EXPECT_EQ(slabs.count, 58u);
  EXPECT_THAT(text(slabs.refusal),
              AllOf(HasSubstr("tenant 'uid-1000' has 64 of them"), Not(HasSubstr("way")),
                    HasSubstr("limits.tenant_share_percent of them is 64")));
  EXPECT_EQ(f.broker.open_session({1000, 1000, 1, false}, UniqueFd()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(attach(1001).ok());
  EXPECT_TRUE(form(1001).ok());
  EXPECT_TRUE(make(1001, Milliseconds(0)).ok());
}

// Goal    a quota of its own goes before the share, both ways.
TEST(Tenants, QuotasGoBeforeShares) {
  for (const uint64_t quota : {1u, 7u}) {
    BrokerOptions options = with_quotas({.groups = quota});
    options.limits.groups = 8;
    Fixture f(options);
    const SessionId session = f.attach(1000);
    for (uint64_t i = 0; i <= quota; ++i) {
      EXPECT_EQ((*f.join(session, 0, 1, absl::StrCat("g", i))).ok(), i < quota) << i;
    }
  }
}

// Goal    when users have all sessions, operators still get in, so many of them and no more.
TEST_F(ShareTest, OperatorsGetIn) {
  for (const uint32_t uid : {1000u, 1001u}) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(attach(uid).ok());
  }
  EXPECT_THAT(text(attach(1002)), HasSubstr("limits.sessions is 8"));
  uint32_t count = 0;
  absl::Status status;
  for (uint32_t uid = 2000; status.ok() && uid < 2100; ++uid) {  // Each of a tenant of his own.
    status = f.broker.open_session({uid, uid, uid, true}, UniqueFd()).status();
    count += status.ok() ? 1 : 0;
  }
  EXPECT_EQ(count, kSessionsForOperators);
  EXPECT_THAT(text(status), HasSubstr("limits.sessions is 8"));
}

}  // namespace
}  // namespace cco::memd
