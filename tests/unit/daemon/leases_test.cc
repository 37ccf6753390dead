// Leases: bytes that are kept for a job, to the byte, whatever comes in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSlab = 1 << 20, kControl = 64 * 1024;
constexpr uint64_t kGpu = 64 << 20;  // All of one GPU's memory.
constexpr uint64_t kHour = 3'600'000;

std::string text(const absl::Status& status) { return std::string(status.message()); }

class LeasesTest : public ::testing::Test {
 protected:
  explicit LeasesTest(BrokerOptions options = Fixture::small_options()) : f(std::move(options)) {}

  SessionId attach_in(const std::string& cgroup, uint32_t uid = 1000) {
    return f.broker.open_session({uid, uid, ++f.pid, false, cgroup}, UniqueFd())->session;
  }
  static LeaseRequest on_gpu_0(uint64_t bytes, uint64_t ttl_ms = kHour) {
    return {{"HOST-0"}, bytes, ttl_ms, "", ""};
  }
  Broker::NewLease lease(const LeaseRequest& request) {
    const auto made = f.broker.create_lease(f.session(root), request);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : Broker::NewLease();
  }
  absl::Status refused(const LeaseRequest& request) {
    return f.broker.create_lease(f.session(root), request).status();
  }
  Fixture::Answer<JoinResult> join(SessionId id, const std::string& token, uint32_t rank = 0,
                                   uint32_t size = 1, const std::string& name = "job") {
    JoinRequest request;
    request.name = name;
    request.rank = rank;
    request.size = size;
    request.gpu_uuid = "HOST-0";
    request.lease = token;
    return f.join(id, request);
  }
  absl::Status window(SessionId id, GroupId group, uint64_t bytes, const std::string& name) {
    return f.create(id, f.window(group, 0, bytes, name))->status();
  }
  const MemoryLedger& ledger() const { return f.broker.slabs().ledger(); }
  uint64_t used(LeaseId id) const { return ledger().reservation(id)->used.at(0); }
  void end(LeaseId id) { ASSERT_TRUE(f.broker.end_lease(f.session(root), id).ok()); }

  Fixture f;
  const SessionId root = f.attach(0);
};

// Goal    reserved bytes are nobody else's from the moment the lease is made, on its GPUs alone;
//         its own job gets all of them.
TEST_F(LeasesTest, KeepBytesForTheirJob) {
  const auto made = lease(on_gpu_0(kGpu - 2 * kSlab));
  EXPECT_EQ(ledger().free_bytes(0), 2 * kSlab);
  EXPECT_EQ(ledger().free_bytes(1), kGpu);
  const SessionId other = f.attach(2000), mine = f.attach();
  const auto theirs = join(other, "");
  ASSERT_TRUE(theirs->ok());
  const absl::Status status = window(other, (*theirs)->group, 2 * kSlab, "w");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(status), HasSubstr(absl::StrCat("leases keep ", kGpu - 2 * kSlab)));
  const auto joined = join(mine, made.token);
  ASSERT_TRUE(joined->ok()) << joined->status();
  EXPECT_EQ(f.broker.groups().at((*joined)->group)->lease, made.id);
  EXPECT_EQ(used(made.id), kControl) << "control regions come out of it, too";
  EXPECT_TRUE(window(mine, (*joined)->group, kGpu - 2 * kSlab - kControl, "w").ok());
  EXPECT_EQ(used(made.id), kGpu - 2 * kSlab);
  EXPECT_EQ(ledger().reserved_bytes(0), 0u);
  EXPECT_EQ(ledger().free_bytes(0), 2 * kSlab - kControl);
  ASSERT_TRUE(f.broker.leave(f.session(mine), (*joined)->group, 0).ok());
  EXPECT_EQ(used(made.id), 0u);
  EXPECT_EQ(ledger().reserved_bytes(0), kGpu - 2 * kSlab) << "for the job's next group";
}

// Goal    what cannot be kept is refused, and who has it is named.
TEST_F(LeasesTest, MoreThanThereIs) {
  const SessionId id = f.attach(2000);
  ASSERT_TRUE(join(id, "")->ok());
  lease(on_gpu_0(kSlab));
  LeaseRequest request = on_gpu_0(kGpu - kSlab);
  request.gpu_uuids = {"HOST-1", "HOST-0"};
  const absl::Status status = refused(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(status),
              AllOf(HasSubstr(absl::StrCat("a lease of ", kGpu - kSlab, " bytes on HOST-0")),
                    HasSubstr(absl::StrCat("free ", kGpu - kSlab - kControl, " of ", kGpu)),
                    HasSubstr(absl::StrCat("tenant 'uid-2000' uses ", kControl)),
                    HasSubstr(absl::StrCat("lease 1 keeps ", kSlab))));
  EXPECT_EQ(ledger().reserved_bytes(1), 0u) << "all GPUs or none";
  request.bytes_per_gpu -= kControl;
  lease(request);
}

// Goal    arguments out of range are refused, and say what they take.
TEST_F(LeasesTest, BadArguments) {
  const auto expect = [&](void (*spoil)(LeaseRequest&), absl::StatusCode code, const char* words) {
    LeaseRequest request = on_gpu_0(kSlab);
    spoil(request);
    const absl::Status status = refused(request);
    EXPECT_EQ(status.code(), code) << words;
    EXPECT_THAT(text(status), HasSubstr(words));
  };
  using Request = LeaseRequest;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  expect([](Request& r) { r.bytes_per_gpu = kControl - 1; }, kInvalid, "control_bytes is 65536");
  expect([](Request& r) { r.bytes_per_gpu = ~uint64_t{0}; }, absl::StatusCode::kResourceExhausted,
         "free");
  expect([](Request& r) { r.ttl_ms = 999; }, kInvalid, "ttl_ms is 999; it takes 1000");
  expect([](Request& r) { r.ttl_ms = 2'592'000'001; }, kInvalid, "to 2592000000");
  expect([](Request& r) { r.ttl_ms = ~uint64_t{0}; }, kInvalid, "30 days");
  expect([](Request& r) { r.gpu_uuids = {"HOST-9"}; }, kNotFound, "HOST-3");
  expect([](Request& r) { r.gpu_uuids = {"HOST-0", "HOST-0"}; }, kInvalid, "twice");
  expect([](Request& r) { r.tenant = "nobody"; }, kNotFound, "no tenant 'nobody'");
  expect([](Request& r) { r.tenant = "uid-x"; }, kNotFound, "no tenant 'uid-x'");
  for (void (*spoil)(Request&) :
       {+[](Request& r) { r.cgroup = "/"; }, +[](Request& r) { r.cgroup = "jobs"; },
        +[](Request& r) { r.cgroup = "/jobs/"; }, +[](Request& r) { r.cgroup = "/a\nb"; },
        +[](Request& r) { r.cgroup = "/" + std::string(4095, 'x'); }}) {
    expect(spoil, kInvalid, "not the root");
  }
  EXPECT_TRUE(f.broker.leases().all().empty());
  EXPECT_EQ(ledger().free_bytes(0), kGpu);
  LeaseRequest all = on_gpu_0(kGpu);
  all.gpu_uuids = {};
  all.tenant = "uid-1000";
  lease(all);
  for (int gpu = 0; gpu < 4; ++gpu) EXPECT_EQ(ledger().free_bytes(gpu), 0u);
}

// Goal    leases are for operators, and everything that is done or tried is recorded; a token
//         never.
TEST_F(LeasesTest, AreForOperators) {
  const SessionId user = f.attach(1000);
  f.journal.lines.clear();
  EXPECT_EQ(f.broker.create_lease(f.session(user), on_gpu_0(kSlab)).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(f.broker.end_lease(f.session(user), LeaseId{1}).code(),
            absl::StatusCode::kPermissionDenied);
  LeaseRequest request = on_gpu_0(kSlab);
  request.cgroup = "/a\"b";
  const auto made = lease(request);
  end(made.id);
  EXPECT_EQ(f.broker.end_lease(f.session(root), made.id).code(), absl::StatusCode::kNotFound);
  const std::string by_user = "audit uid=1000 pid=102 tenant=uid-1000 call=";
  const std::string by_root = "audit uid=0 pid=101 tenant=uid-0 call=";
  EXPECT_THAT(
      f.journal.lines,
      ElementsAre(
          by_user + "CreateLease lease=0 gpus=\"HOST-0\" bytes_per_gpu=1048576 ttl_ms=3600000 "
                    "for_tenant=\"\" cgroup=\"\" result=PERMISSION_DENIED",
          by_user + "EndLease lease=1 result=PERMISSION_DENIED",
          by_root + "CreateLease lease=1 gpus=\"HOST-0\" bytes_per_gpu=1048576 ttl_ms=3600000 "
                    "for_tenant=\"\" cgroup=\"/a\\\"b\" result=OK",
          by_root + "EndLease lease=1 result=OK",
          "lease_ended lease=1 reason=\"an operator ended it\" bytes_returned=1048576 "
          "bytes_still_used=0",
          by_root + "EndLease lease=1 result=NOT_FOUND"));
}

// Goal    a bad token, one that has ended and another tenant's are refused in the same words.
TEST_F(LeasesTest, TokensAreTheTenantsOwn) {
  LeaseRequest request = on_gpu_0(kSlab);
  request.tenant = "uid-1000";
  const auto theirs = lease(request), ended = lease(request);
  end(ended.id);
  const SessionId stranger = f.attach(2000);
  const absl::Status status = join(stranger, theirs.token)->status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(join(stranger, ended.token)->status(), status);
  EXPECT_EQ(join(stranger, "0123456789abcdef")->status(), status);
  EXPECT_TRUE(join(f.attach(1000), theirs.token)->ok());
  EXPECT_FALSE(f.broker.may_see(f.session(stranger), *f.broker.leases().find(theirs.id)));
  EXPECT_TRUE(f.broker.may_see(f.session(f.attach(1000)), *f.broker.leases().find(theirs.id)));
  EXPECT_TRUE(f.broker.may_see(f.session(root), *f.broker.leases().find(theirs.id)));
}

// Goal    without a token a process has the lease of the innermost cgroup that it is in; a token
//         counts more.
TEST_F(LeasesTest, CgroupsNeedNoToken) {
  LeaseRequest request = on_gpu_0(kSlab);
  request.cgroup = "/jobs/7";
  const auto inner = lease(request);
  request.cgroup = "/jobs";
  const auto outer = lease(request), later = lease(request), by_token = lease(on_gpu_0(kSlab));
  request.cgroup = "/jobs/7/step";
  request.tenant = "uid-2000";
  const auto foreign = lease(request);
  int count = 0;
  const auto lease_of = [&](const std::string& cgroup, const std::string& token) {
    const auto joined = join(attach_in(cgroup), token, 0, 1, absl::StrCat(++count));
    EXPECT_TRUE(joined->ok()) << joined->status();
    return f.broker.groups().at((*joined)->group)->lease;
  };
  EXPECT_EQ(lease_of("/jobs/7", ""), inner.id);
  EXPECT_EQ(lease_of("/jobs/7/step", ""), inner.id);
  EXPECT_EQ(lease_of("/jobs/77", ""), outer.id) << "the older of two";
  EXPECT_EQ(lease_of("/jobs/7", by_token.token), by_token.id);
  EXPECT_EQ(lease_of("/jobs-2", ""), LeaseId{});
  EXPECT_EQ(lease_of("", ""), LeaseId{});
  const SessionId insider = attach_in("/jobs/7/step");
  EXPECT_TRUE(f.broker.may_see(f.session(insider), *f.broker.leases().find(later.id)));
  EXPECT_FALSE(f.broker.may_see(f.session(insider), *f.broker.leases().find(by_token.id)));
  EXPECT_FALSE(f.broker.may_see(f.session(insider), *f.broker.leases().find(foreign.id)));
}

// Goal    all ranks are under one lease, and on its GPUs.
TEST_F(LeasesTest, RanksAgree) {
  const auto made = lease(on_gpu_0(kSlab));
  const auto with = join(f.attach(), made.token, 0, 2), without = join(f.attach(), "", 1, 2);
  for (const auto& answer : {with, without}) {
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(text(answer->status()), AllOf(HasSubstr("rank 1"), HasSubstr("under no lease"),
                                              HasSubstr("under lease 1")));
  }
  JoinRequest elsewhere;
  elsewhere.name = "job";
  elsewhere.size = 1;
  elsewhere.gpu_uuid = "HOST-1";
  elsewhere.lease = made.token;
  const auto refused = f.join(f.attach(), elsewhere);
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(refused->status()), HasSubstr("no bytes on HOST-1, this rank's GPU: it is for "
                                                 "HOST-0"));
  EXPECT_EQ(used(made.id), 0u);
}

// Goal    a group takes from its lease alone, however much is free; the refusal names the lease,
//         its bytes and who uses them.
TEST_F(LeasesTest, OverTheLease) {
  const auto made = lease(on_gpu_0(2 * kSlab));
  const SessionId id = f.attach(), other = f.attach(2000);
  const auto joined = join(id, made.token);
  ASSERT_TRUE(join(other, made.token)->ok());
  ASSERT_TRUE(window(id, (*joined)->group, kSlab, "w").ok());
  const absl::Status status = window(id, (*joined)->group, kSlab, "more");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(status),
              AllOf(HasSubstr(absl::StrCat("slabs of ", kSlab, " bytes on HOST-0: lease 1 has ",
                                           2 * kSlab, " bytes there, used ", kSlab + 2 * kControl)),
                    HasSubstr(absl::StrCat("pid 102 ", kSlab + kControl,
                                           ", other tenants' or on "
                                           "their way ",
                                           kControl))));
  EXPECT_GT(ledger().free_bytes(0), kSlab);
  EXPECT_TRUE(window(id, (*joined)->group, kSlab - 2 * kControl, "rest").ok());
}

// Goal    at the end of a lease, by time or by an operator, the unused part is everybody's at once,
//         what is used stays charged until it is freed, and the group goes on as without a lease.
TEST_F(LeasesTest, EndsOfALease) {
  for (const bool by_time : {true, false}) {
    const auto made = lease(on_gpu_0(8 * kSlab, 1000));
    const SessionId id = f.attach();
    const auto joined = join(id, made.token);
    ASSERT_TRUE(window(id, (*joined)->group, kSlab, "w").ok());
    f.executor.advance(Milliseconds(999));
    EXPECT_EQ(ledger().free_bytes(0), kGpu - 8 * kSlab);
    if (by_time) {
      f.executor.advance(Milliseconds(1));
    } else {
      end(made.id);
    }
    EXPECT_TRUE(f.broker.leases().all().empty());
    EXPECT_EQ(f.executor.timer_count(), 0u);
    EXPECT_EQ(ledger().free_bytes(0), kGpu - kSlab - kControl);
    EXPECT_TRUE(window(id, (*joined)->group, 16 * kSlab, "more than the lease had").ok());
    EXPECT_EQ(ledger().free_bytes(0), kGpu - 17 * kSlab - kControl);
    ASSERT_TRUE(f.broker.leave(f.session(id), (*joined)->group, 0).ok());
    EXPECT_EQ(ledger().free_bytes(0), kGpu);
  }
}

// Goal    whatever the order in which a driver answers, well or not, a lease ends and its group
//         leaves, no byte is counted twice or lost.
// Method  a window whose slab is being allocated; then the three, in every order.
TEST_F(LeasesTest, EveryOrderOfEvents) {
  for (const bool fails : {false, true}) {
    std::array<int, 3> order{0, 1, 2};
    do {
      SCOPED_TRACE(absl::StrCat(fails, order[0], order[1], order[2]));
      const auto made = lease(on_gpu_0(4 * kSlab));
      const SessionId id = f.attach();
      const auto joined = join(id, made.token);
      ASSERT_TRUE(joined->ok());
      f.pool.stuck.insert(0);
      f.pool.fail_call = fails ? f.pool.calls() : -1;
      const auto waits = f.create(id, f.window((*joined)->group, 0, 4 * kSlab - kControl));
      bool has_lease = true, has_slab = false, is_member = true, waits_for_driver = true;
      for (const int event : order) {
        const uint64_t held =
            (is_member ? kControl : 0) + (waits_for_driver || has_slab ? 4 * kSlab - kControl : 0);
        EXPECT_EQ(ledger().slab_bytes(0), held);
        EXPECT_EQ(ledger().free_bytes(0), kGpu - (has_lease ? 4 * kSlab : held));
        if (event == 0) {
          f.pool.stuck.clear();
          f.pool.answer();
          waits_for_driver = false;
          has_slab = !fails && is_member;
        } else if (event == 1) {
          end(made.id);
          has_lease = false;
        } else {
          ASSERT_TRUE(f.broker.leave(f.session(id), (*joined)->group, 0).ok());
          is_member = has_slab = false;
        }
      }
      EXPECT_EQ(ledger().slab_bytes(0), 0u);
      EXPECT_EQ(ledger().free_bytes(0), kGpu);
      EXPECT_EQ(f.pool.live(), 0);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// Goal    two jobs of one lease that ask at once do not both get its last bytes, and a failed
//         allocation gives them back to the lease.
TEST_F(LeasesTest, TwoJobsAtOnce) {
  const auto made = lease(on_gpu_0(kSlab + 2 * kControl));
  const SessionId a = f.attach(), b = f.attach();
  const auto first = join(a, made.token, 0, 1, "a"), second = join(b, made.token, 0, 1, "b");
  f.pool.stuck.insert(0);
  f.pool.fail_call = f.pool.calls();
  const auto waits = f.create(a, f.window((*first)->group, 0, kSlab));
  EXPECT_THAT(text(window(b, (*second)->group, kSlab, "w")), HasSubstr("on their way 1048576"));
  f.pool.stuck.clear();
  f.pool.answer();
  EXPECT_THAT(text(waits->status()), HasSubstr("injected"));
  EXPECT_EQ(used(made.id), 2 * kControl);
  EXPECT_TRUE(window(b, (*second)->group, kSlab, "w").ok());
  EXPECT_EQ(used(made.id), kSlab + 2 * kControl);
}

// Goal    ranks that share a GPU are counted together against their lease.
TEST_F(LeasesTest, RanksOnOneGpuAddUp) {
  const auto made = lease(on_gpu_0(2 * kControl - 1));
  const SessionId id = f.attach();
  const auto refused = join(id, made.token, 0, 2);
  join(id, made.token, 1, 2);
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(refused->status()), HasSubstr(absl::StrCat("slabs of ", 2 * kControl)));
  EXPECT_EQ(used(made.id), 0u);
}

class LimitedLeasesTest : public LeasesTest {
 protected:
  LimitedLeasesTest() : LeasesTest(options()) {}
  static BrokerOptions options() {
    BrokerOptions options = Fixture::small_options();
    options.limits.leases = 2;
    Tenant others;
    others.quotas.bytes_per_gpu = kSlab;
    options.tenants = Tenants({}, others);
    return options;
  }
};

// Goal    there are at most limits.leases; one that ends makes room.
TEST_F(LimitedLeasesTest, Count) {
  const auto first = lease(on_gpu_0(kSlab));
  lease(on_gpu_0(kSlab));
  const absl::Status status = refused(on_gpu_0(kSlab));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(status), HasSubstr("limits.leases is 2"));
  end(first.id);
  lease(on_gpu_0(kSlab));
}

// Goal    a lease is no way around a tenant's quota.
TEST_F(LimitedLeasesTest, QuotasCountAsWell) {
  const auto made = lease(on_gpu_0(8 * kSlab));
  const SessionId id = f.attach();
  const auto joined = join(id, made.token);
  ASSERT_TRUE(joined->ok());
  EXPECT_EQ(f.broker.slabs().bytes(f.session(id).tenant, 0), kControl);
  EXPECT_THAT(text(window(id, (*joined)->group, kSlab, "w")),
              HasSubstr("quotas.bytes_per_gpu is 1048576"));
  EXPECT_TRUE(window(id, (*joined)->group, kSlab - kControl, "w").ok());
}

}  // namespace
}  // namespace cco::memd
