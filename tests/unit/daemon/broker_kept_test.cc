// Windows that outlive their group: who keeps them, who finds them, and how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr Milliseconds kKeep{5000};
constexpr uint64_t kSize = 100'000;  // Rounded up: two pages of 64 KiB.

std::string text(const absl::Status& status) { return std::string(status.message()); }

class KeptTest : public ::testing::Test {
 protected:
  WindowRequest kept(GroupId group, const std::string& name = "w", uint64_t size = kSize) {
    WindowRequest request = f.window(group, 0, size, name);
    request.keep = kKeep;
    return request;
  }
  // On every rank, made at once.
  WindowResult make(GroupId group, const std::vector<SessionId>& members,
                    const std::string& name = "w") {
    const auto answers = f.create_all(members, kept(group, name));
    for (const auto& answer : answers) EXPECT_TRUE(answer->ok()) << answer->status();
    return answers[0]->ok() ? **answers[0] : WindowResult();
  }
  absl::Status destroy(GroupId group, const std::vector<SessionId>& members, uint32_t rank,
                       const WindowResult& window) {
    return f.broker.destroy_window(f.session(members[rank]), group, rank, window.window,
                                   window.generation);
  }
  std::vector<SlabId> slabs_of(GroupId group, const WindowResult& window) {
    return f.broker.groups().at(group)->slabs.at(window.slab_index).ids;
  }
  uint64_t kept_bytes() {
    uint64_t bytes = 0;
    for (int gpu = 0; gpu < 4; ++gpu) bytes += f.broker.slabs().usage(gpu).kept_bytes;
    return bytes;
  }
  size_t kept_count() { return f.broker.kept_windows().all().size(); }

  // A window that two ranks have used, and left.
  WindowResult leave_one_behind() {
    std::vector<SessionId> members;
    const GroupId group = f.form(2, &members);
    const WindowResult window = make(group, members);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(f.broker.leave(f.session(members[rank]), group, rank).ok());
    }
    EXPECT_EQ(kept_count(), 1u);
    return window;
  }

  Fixture f;
};

// Goal    a window is kept when the last that may touch it has gone, whole, and found by the next
//         group of its name, at its old offset.
// Method  one rank leaves, one is lost, and its process exits later.
TEST_F(KeptTest, OutlivesLeavingAndDeath) {
  std::vector<SessionId> first;
  const GroupId group = f.form(2, &first);
  ASSERT_TRUE((*f.create_all(first, f.window(group, 0, 256, "other"))[1]).ok());
  const WindowResult made = make(group, first);
  EXPECT_FALSE(made.found);
  const std::vector<SlabId> slabs = slabs_of(group, made);
  f.broker.close_session(first[1]);
  ASSERT_TRUE(f.broker.leave(f.session(first[0]), group, 0).ok());
  EXPECT_EQ(kept_count(), 0u) << "its process may still write";
  EXPECT_NE(f.broker.slabs().fd(slabs[0]), nullptr);
  f.broker.process_exited(first[1]);
  EXPECT_TRUE(f.broker.groups().empty());
  EXPECT_EQ(kept_count(), 1u);
  EXPECT_EQ(f.pool.live(), 2) << "its two slabs";
  EXPECT_EQ(kept_bytes(), 2u * 128 * 1024);

  std::vector<SessionId> second;
  const GroupId next = f.form(2, &second);
  ASSERT_NE(next, group);
  const WindowResult found = make(next, second);
  EXPECT_TRUE(found.found);
  EXPECT_NE(found.window, made.window);
  EXPECT_GT(found.generation, made.generation);
  EXPECT_EQ(found.offset, made.offset);
  EXPECT_EQ(slabs_of(next, found), slabs);
  EXPECT_EQ(kept_count(), 0u);
  EXPECT_EQ(kept_bytes(), 0u);
  EXPECT_EQ(f.executor.timer_count(), 0u);
}

// Goal    in a group that runs, it is kept when every rank has destroyed it, and no sooner; what
//         tickets for it are left is void then, as another group may find it.
TEST_F(KeptTest, EveryRankDestroysIt) {
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const WindowResult made = make(group, members);
  const std::vector<SlabId> slabs = slabs_of(group, made);
  const auto tickets = f.broker.export_slab(f.session(members[0]), group, 0, made.slab_index);
  ASSERT_TRUE(tickets.ok()) << tickets.status();
  ASSERT_TRUE(destroy(group, members, 0, made).ok());
  EXPECT_EQ(kept_count(), 0u);
  EXPECT_EQ(f.create(members[0], kept(group))->status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(destroy(group, members, 1, made).ok());
  EXPECT_EQ(kept_count(), 1u);
  EXPECT_EQ(f.broker.window_count(), 0u);
  for (const auto& slab : tickets->slabs) {
    EXPECT_EQ(f.broker.desk().redeem(members[0], slab.ticket).status().code(),
              absl::StatusCode::kNotFound);
  }
  const WindowResult found = make(group, members);
  EXPECT_TRUE(found.found);
  EXPECT_EQ(slabs_of(group, found), slabs);
}

// Goal    where its offset is taken, or does not suit, it is found at another.
TEST_F(KeptTest, OffsetIsTaken) {
  const WindowResult made = leave_one_behind();
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto other = f.create_all(members, f.window(group, 0, 256, "other"));
  ASSERT_TRUE(other[0]->ok());
  ASSERT_EQ((*other[0])->offset, made.offset);
  const WindowResult found = make(group, members);
  EXPECT_TRUE(found.found);
  EXPECT_NE(found.offset, made.offset);
  ASSERT_TRUE(destroy(group, members, 0, found).ok() && destroy(group, members, 1, found).ok());
  WindowRequest aligned = kept(group);
  aligned.alignment = 64 << 20;
  const auto again = f.create_all(members, aligned);
  ASSERT_TRUE(again[1]->ok()) << again[1]->status();
  EXPECT_TRUE((*again[1])->found);
  EXPECT_EQ((*again[1])->offset % aligned.alignment, 0u);
}

// Goal    it is freed when its time is over, once; each use starts its time anew.
TEST_F(KeptTest, TimeToLive) {
  leave_one_behind();
  f.executor.advance(kKeep - Milliseconds(1));
  EXPECT_EQ(kept_count(), 1u);
  {
    std::vector<SessionId> members;
    const GroupId group = f.form(2, &members);
    EXPECT_TRUE(make(group, members).found);
    f.executor.advance(10 * kKeep);
    EXPECT_EQ(f.broker.window_count(), 1u) << "it is in use";
    for (uint32_t rank = 0; rank < 2; ++rank) f.broker.process_exited(members[rank]);
  }
  f.executor.advance(kKeep - Milliseconds(1));
  EXPECT_EQ(kept_count(), 1u);
  EXPECT_EQ(f.pool.live(), 2);
  f.executor.advance(Milliseconds(1));
  EXPECT_EQ(kept_count(), 0u);
  EXPECT_EQ(f.pool.live(), 0);
  EXPECT_EQ(f.broker.slabs().usage(0).bytes, 0u);
  EXPECT_THAT(f.journal.lines, Contains(HasSubstr("kept_window_expired")));
  EXPECT_EQ(f.executor.timer_count(), 0u);
}

// Goal    its tenant and operators evict it; others learn nothing, and the attempt is recorded.
TEST_F(KeptTest, Eviction) {
  const WindowResult made = leave_one_behind();
  Session& stranger = f.session(f.attach(2000));
  const absl::Status theirs = f.broker.evict_kept(stranger, made.window).status();
  const absl::Status never = f.broker.evict_kept(stranger, WindowId{99}).status();
  EXPECT_EQ(theirs.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(never.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(f.journal.lines,
              Contains(AllOf(HasSubstr("audit uid=2000"), HasSubstr("call=EvictKept"),
                             HasSubstr("NOT_FOUND"))));
  const auto evicted = f.broker.evict_kept(f.session(f.attach(1000)), made.window);
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_EQ(evicted->freed, 2u * 128 * 1024);
  EXPECT_EQ(evicted->held, 0u);
  EXPECT_EQ(f.pool.live(), 0);
  EXPECT_EQ(f.executor.timer_count(), 0u);
  const WindowResult again = leave_one_behind();
  EXPECT_FALSE(again.found);
  EXPECT_TRUE(f.broker.evict_kept(f.session(f.attach(0)), again.window).ok());
  EXPECT_THAT(f.journal.lines, Contains(AllOf(HasSubstr("audit uid=0"), HasSubstr("owner=uid-1000"),
                                              HasSubstr("result=OK"))));
}

// Goal    what cannot be kept is refused, with the cause.
TEST_F(KeptTest, BadRequestsSayWhy) {
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto refused = [&](const WindowRequest& request) {
    return text(f.create(members[request.rank], request)->status());
  };
  EXPECT_THAT(refused(kept(group, "")), HasSubstr("the window has no name"));
  WindowRequest request = kept(group);
  request.placement = Placement::kControl;
  EXPECT_THAT(refused(request), HasSubstr("not of the heap"));
  request = kept(group);
  request.keep = std::chrono::hours(24 * 30) + Milliseconds(1);
  EXPECT_THAT(refused(request), HasSubstr("0 to 2592000000"));
  request = kept(group);
  const auto waits = f.create(members[0], request);
  request.rank = 1;
  request.keep += Milliseconds(1);
  EXPECT_THAT(refused(request), AllOf(HasSubstr("rank 1"), HasSubstr("keep_ms 5001")));
  EXPECT_EQ(waits->status().code(), absl::StatusCode::kInvalidArgument);

  JoinRequest by_id;
  by_id.unique_id = std::string(16, 'i');
  by_id.size = 1;
  by_id.gpu_uuid = "HOST-0";
  const GroupId unnamed = (*f.join(members[0], by_id))->group;
  EXPECT_THAT(refused(kept(unnamed)), HasSubstr("the group has no name"));
}

// Goal    another size, other GPUs, or other ranks do not get it, and it stays.
TEST_F(KeptTest, AnotherLayoutIsRefused) {
  leave_one_behind();
  const auto status_of = [&](const std::vector<uint32_t>& gpus, uint64_t size) {
    std::vector<SessionId> members;
    GroupId group{};
    for (uint32_t rank = 0; rank < gpus.size(); ++rank) {
      JoinRequest request;
      request.name = "g";
      request.rank = rank;
      request.size = static_cast<uint32_t>(gpus.size());
      request.gpu_uuid = absl::StrCat("HOST-", gpus[rank]);
      members.push_back(f.attach());
      const auto answer = f.join(members.back(), request);
      if (answer->ok()) group = (*answer)->group;
    }
    const absl::Status status = (*f.create_all(members, kept(group, "w", size))[0]).status();
    for (const SessionId id : members) f.broker.process_exited(id);
    return status;
  };
  for (const absl::Status& status : {status_of({0, 1}, kSize + 1), status_of({1, 0}, kSize),
                                     status_of({0}, kSize), status_of({0, 1, 2}, kSize)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(text(status), AllOf(HasSubstr("kept with 100000 bytes on HOST-0,HOST-1"),
                                    HasSubstr("ccoctl evict 'g' 'w'")));
    EXPECT_EQ(kept_count(), 1u);
  }
  EXPECT_TRUE(status_of({0, 1}, kSize).ok());
}

// Goal    a group of that name of another tenant gets memory of its own.
TEST_F(KeptTest, OtherTenantsGetNothing) {
  leave_one_behind();
  std::vector<SessionId> members{f.attach(2000), f.attach(2000)};
  f.join(members[0], 0, 2);
  const GroupId group = (*f.join(members[1], 1, 2))->group;
  EXPECT_FALSE(make(group, members).found);
  EXPECT_EQ(kept_count(), 1u);
}

// Goal    a window that nobody got is not kept: when memory, or room for descriptors, is missing.
TEST_F(KeptTest, NothingIsKeptOfWhatFailed) {
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  f.pool.fail_call = 3;
  EXPECT_EQ((*f.create_all(members, kept(group))[0]).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(f.pool.live(), 2);
  WindowRequest filler = f.window(group, 0, 256, "filler");
  filler.placement = Placement::kControl;
  for (int i = 0;; ++i) {
    filler.name = absl::StrCat("filler", i);
    if (!(*f.create_all(members, filler)[0]).ok()) break;
  }
  EXPECT_THAT(text((*f.create_all(members, kept(group))[0]).status()), HasSubstr("control region"));
  EXPECT_EQ(kept_count(), 0u);
  EXPECT_EQ(f.pool.live(), 2);
}

class KeptLimitTest : public ::testing::Test {
 protected:
  static BrokerOptions options() {
    Tenant team;
    team.name = "team";
    team.uids = {1000};
    team.quotas.windows = 3;
    team.quotas.bytes_per_gpu = 64 * 1024 + 3 * 128 * 1024;
    BrokerOptions options = Fixture::small_options();
    options.limits.kept_windows = 2;
    options.limits.tenant_share_percent = 100;
    options.tenants = Tenants({team}, {});
    return options;
  }
  absl::StatusOr<WindowResult> make(const std::string& name, Milliseconds keep) {
    WindowRequest request = f.window(group, 0, kSize, name);
    request.keep = keep;
    return *f.create(members[0], request);
  }
  Fixture f{options()};
  std::vector<SessionId> members;
  GroupId group = f.form(1, &members);
};

// Goal    the node's limit counts those kept and those in use, and finding one again uses none up;
//         the tenant's quotas of windows and bytes go on counting them, and the refusal says so.
TEST_F(KeptLimitTest, KeptWindowsCount) {
  ASSERT_TRUE(make("a", kKeep).ok());
  const auto b = make("b", kKeep);
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(text(make("c", kKeep).status()), HasSubstr("limits.kept_windows is 2"));
  ASSERT_TRUE(f.broker.leave(f.session(members[0]), group, 0).ok());
  EXPECT_EQ(f.broker.use_of(Tenants::id(0)).windows, 2u);
  EXPECT_EQ(f.broker.use_of(Tenants::id(0)).bytes[0], 2u * 128 * 1024);
  members = {};
  group = f.form(1, &members);
  EXPECT_THAT(text(make("c", kKeep).status()), HasSubstr("limits.kept_windows is 2"));
  EXPECT_TRUE(make("b", kKeep)->found);
  const absl::Status no_room = make("plain", Milliseconds(0)).status();
  EXPECT_EQ(no_room.code(), absl::StatusCode::kOk) << no_room;
  EXPECT_THAT(text(make("more", Milliseconds(0)).status()),
              AllOf(HasSubstr("quotas.windows is 3"), HasSubstr("in use or kept")));
  EXPECT_TRUE(make("a", kKeep)->found) << "it counts already";
}

// Goal    an allocation that fails for want of memory says how much the tenant's kept windows hold.
TEST_F(KeptLimitTest, WantOfMemoryNamesThem) {
  ASSERT_TRUE(make("a", kKeep).ok());
  WindowRequest large = f.window(group, 0, 300'000, "large");
  EXPECT_THAT(text(f.create(members[0], large)->status()),
              ::testing::Not(HasSubstr("ccoctl evict")));
  ASSERT_TRUE(f.broker.leave(f.session(members[0]), group, 0).ok());
  members = {};
  large.group = group = f.form(1, &members);
  const absl::Status status = f.create(members[0], large)->status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(status), AllOf(HasSubstr("tenant 'team'"), HasSubstr("hold 131072 bytes"),
                                  HasSubstr("`ccoctl evict` frees them")));
}

}  // namespace
}  // namespace cco::memd
