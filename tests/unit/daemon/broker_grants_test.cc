// Windows shared across tenants: who may attach, what that reaches, and how long memory stays.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr Milliseconds kKeep{5000};
constexpr uint64_t kSize = 100'000;  // Rounded up: two pages of 64 KiB.
constexpr uint64_t kSlabBytes = 128 * 1024;

std::string text(const absl::Status& status) { return std::string(status.message()); }

class GrantsTest : public ::testing::Test {
 protected:
  explicit GrantsTest(BrokerOptions options = Fixture::small_options()) : f(std::move(options)) {}

  // User 1000's group of two ranks, with a window of slabs of its own.
  void SetUp() override {
    group = f.form(2, &owners);
    window = make("w");
    other = f.attach(2000);
    stranger = f.attach(3000);
  }
  WindowResult make(const std::string& name) {
    WindowRequest request = f.window(group, 0, kSize, name);
    request.keep = kKeep;
    const auto answers = f.create_all(owners, request);
    EXPECT_TRUE(answers[0]->ok()) << answers[0]->status();
    return **answers[0];
  }
  GrantRequest about(const WindowResult& window, Access access = Access::kReadOnly) {
    return {group, 0, window.window, window.generation, "uid-2000", access};
  }
  std::string grant(Access access = Access::kReadOnly) {
    return f.broker.grant_window(f.session(owners[0]), about(window, access))->token;
  }
  absl::StatusOr<const Attachment*> attach(SessionId session, const std::string& token) {
    return f.broker.attach_window(f.session(session), token);
  }
  std::vector<SlabId> slabs() {
    return f.broker.groups().at(group)->slabs.at(window.slab_index).ids;
  }
  void leave_all() {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(f.broker.leave(f.session(owners[rank]), group, rank).ok());
    }
  }
  uint64_t held_bytes() { return f.broker.slabs().usage(0).held_bytes; }

  Fixture f;
  std::vector<SessionId> owners;
  GroupId group{};
  WindowResult window;
  SessionId other{}, stranger{};
};

// Goal    a token works for the tenant it was granted to, again and again, and for nobody else, in
//         one and the same words; after it was revoked for nobody.
TEST_F(GrantsTest, TokensAreOneTenants) {
  const std::string token = grant();
  EXPECT_THAT(f.journal.lines, Contains(HasSubstr("tenant=uid-1000 to=uid-2000 access=read-only")));
  const auto attachment = attach(other, token);
  ASSERT_TRUE(attachment.ok()) << attachment.status();
  EXPECT_EQ((*attachment)->slabs, slabs());
  EXPECT_EQ((*attachment)->size_bytes, kSize);
  EXPECT_TRUE(attach(other, token).ok());
  const absl::Status foreign = attach(stranger, token).status();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(foreign, attach(stranger, "never was").status());
  EXPECT_FALSE(attach(owners[0], token).ok()) << "his own tenant's processes need a grant, too";
  const std::string second = grant();
  ASSERT_TRUE(f.broker
                  .revoke_grant(f.session(owners[1]),
                                {group, 1, window.window, window.generation, ""}, token)
                  .ok());
  EXPECT_EQ(attach(other, token).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(attach(other, second).ok());
  EXPECT_EQ(f.broker.revoke_grant(f.session(owners[0]), about(window), token).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(f.broker.attachment_count(*f.broker.groups().at(group),
                                      f.broker.groups().at(group)->windows.at(window.window)),
            3u);
}

// Goal    only a live rank that uses the window grants it, and only one with slabs of its own.
TEST_F(GrantsTest, WhatCannotBeGranted) {
  const auto refused = [&](SessionId session, const GrantRequest& request) {
    return f.broker.grant_window(f.session(session), request).status();
  };
  EXPECT_EQ(refused(other, about(window)).code(), absl::StatusCode::kNotFound);
  WindowResult shared = **f.create_all(owners, f.window(group, 0, 4096, "shared"))[0];
  const absl::Status status = refused(owners[0], about(shared));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(status), HasSubstr("with keep_ms"));
  GrantRequest request = about(window);
  ++request.generation;
  EXPECT_EQ(refused(owners[0], request).code(), absl::StatusCode::kFailedPrecondition);
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("x\n"), std::string(64, 'x')}) {
    request = about(window);
    request.tenant = name;
    EXPECT_EQ(refused(owners[0], request).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  request.tenant = "nobody-knows";  // Whether there is such a tenant is not told.
  EXPECT_TRUE(f.broker.grant_window(f.session(owners[0]), request).ok());
  ASSERT_TRUE(
      f.broker.destroy_window(f.session(owners[0]), group, 0, window.window, window.generation)
          .ok());
  EXPECT_EQ(refused(owners[0], about(window)).code(), absl::StatusCode::kNotFound);
}

class LimitedGrantsTest : public GrantsTest {
 protected:
  LimitedGrantsTest() : GrantsTest(options()) {}
  static BrokerOptions options() {
    BrokerOptions options = Fixture::small_options();
    options.limits.grants_per_group = 2;
    options.limits.attachments_per_session = 2;
    options.allow_unenforced_read_only = false;
    return options;
  }
};

// Goal    grants and attachments have limits, which those that have ended do not use up.
TEST_F(LimitedGrantsTest, LimitsAreKept) {
  const std::string token = grant();
  grant();
  const absl::Status third = f.broker.grant_window(f.session(owners[0]), about(window)).status();
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(third), HasSubstr("grants_per_group is 2"));
  const AttachmentId first = (*attach(other, token))->id;
  ASSERT_TRUE(attach(other, token).ok());
  EXPECT_THAT(text(attach(other, token).status()), HasSubstr("attachments_per_session is 2"));
  ASSERT_TRUE(f.broker.detach_window(f.session(other), first).ok());
  EXPECT_TRUE(attach(other, token).ok());
  ASSERT_TRUE(f.broker.revoke_grant(f.session(owners[0]), about(window), token).ok());
  EXPECT_TRUE(f.broker.grant_window(f.session(owners[0]), about(window)).ok());
}

// Goal    where the driver cannot keep readers from writing, that is said, and refused where the
//         configuration wants it.
TEST_F(LimitedGrantsTest, WhatTheDriverCannotEnforce) {
  f.pool.enforces = false;
  const absl::Status status = f.broker.grant_window(f.session(owners[0]), about(window)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(status), HasSubstr("allow_unenforced_read_only"));
  const auto writing =
      f.broker.grant_window(f.session(owners[0]), about(window, Access::kReadWrite));
  ASSERT_TRUE(writing.ok());
  EXPECT_TRUE(writing->is_enforced);
}
TEST_F(GrantsTest, WhatTheDriverCannotEnforceIsSaid) {
  f.pool.enforces = false;
  const auto reading = f.broker.grant_window(f.session(owners[0]), about(window));
  ASSERT_TRUE(reading.ok());
  EXPECT_FALSE(reading->is_enforced);
  const auto attachment = attach(other, reading->token);
  ASSERT_TRUE(attachment.ok());
  EXPECT_TRUE(f.broker.export_attachment(f.session(other), (*attachment)->id).ok());
}

// Goal    who is attached gets the window's slabs and no others, by tickets of its own, which are
//         void once it has detached; for reading by fds that cannot be written through.
TEST_F(GrantsTest, ExportsReachTheWindowAlone) {
  make("second");
  for (const Access access : {Access::kReadOnly, Access::kReadWrite}) {
    const AttachmentId id = (*attach(other, grant(access)))->id;
    EXPECT_EQ(f.broker.export_attachment(f.session(stranger), id).status().code(),
              absl::StatusCode::kNotFound);
    const auto tickets = f.broker.export_attachment(f.session(other), id);
    ASSERT_TRUE(tickets.ok()) << tickets.status();
    ASSERT_EQ(tickets->slabs.size(), 2u);
    EXPECT_EQ(tickets->notice, "");
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(tickets->slabs[rank].size_bytes, kSlabBytes);
      EXPECT_EQ(tickets->slabs[rank].offset, 0u);
      EXPECT_FALSE(f.broker.desk().redeem(stranger, tickets->slabs[rank].ticket).ok());
    }
    const auto fd = f.broker.desk().redeem(other, tickets->slabs[1].ticket);
    ASSERT_TRUE(fd.ok()) << fd.status();
    struct stat theirs {
    }, ours{};
    ASSERT_EQ(::fstat((*fd)->get(), &theirs), 0);
    ASSERT_EQ(::fstat(f.broker.slabs().fd(slabs()[1])->get(), &ours), 0);
    EXPECT_EQ(theirs.st_ino, ours.st_ino);
    EXPECT_EQ(::fcntl((*fd)->get(), F_GETFL) & O_ACCMODE,
              access == Access::kReadOnly ? O_RDONLY : O_RDWR);
    ASSERT_TRUE(f.broker.detach_window(f.session(other), id).ok());
    EXPECT_FALSE(f.broker.desk().redeem(other, tickets->slabs[0].ticket).ok());
    EXPECT_EQ(f.broker.export_attachment(f.session(other), id).status().code(),
              absl::StatusCode::kNotFound);
    f.executor.run_posted();
  }
}

// Goal    what the owner gives up stays for who is attached, as the owner's bytes, until the last
//         has detached or its process has exited; then it is freed, once.
TEST_F(GrantsTest, MemoryStaysForThoseAttached) {
  const std::string token = grant();
  const AttachmentId first = (*attach(other, token))->id;
  const SessionId second = f.attach(2000);
  ASSERT_TRUE(attach(second, token).ok());
  leave_all();
  EXPECT_EQ(f.broker.kept_windows().all().size(), 1u) << "it is kept all the same";
  EXPECT_EQ(attach(other, token).status().code(), absl::StatusCode::kNotFound);
  f.executor.advance(kKeep);
  EXPECT_EQ(f.broker.kept_windows().all().size(), 0u);
  EXPECT_EQ(f.pool.live(), 2);
  EXPECT_EQ(held_bytes(), kSlabBytes);
  EXPECT_EQ(f.broker.slabs().bytes(Tenants().find({1000, 1000}), 0), kSlabBytes);
  EXPECT_TRUE(f.broker.export_attachment(f.session(other), first).ok());
  ASSERT_TRUE(f.broker.detach_window(f.session(other), first).ok());
  EXPECT_EQ(f.pool.live(), 2);
  f.broker.close_session(second);
  EXPECT_EQ(f.pool.live(), 2) << "the process may still read";
  ASSERT_NE(f.broker.session(second), nullptr);
  f.broker.process_exited(second);
  EXPECT_EQ(f.pool.live(), 0);
  EXPECT_EQ(f.broker.session(second), nullptr);
  EXPECT_EQ(f.broker.slabs().size(), 0u);
}

// Goal    a GPU that is drained is let go of, whoever is attached: what the group uses, and what is
//         held for attachments alone. Other GPUs' memory stays for them. What they may still map
//         is its owner's until they have gone, though he has.
TEST_F(GrantsTest, DrainedGpusAreLetGoOf) {
  const SessionId root = f.attach(0);
  const AttachmentId first = (*attach(other, grant()))->id;
  const WindowResult unused = make("unused");
  const std::string token = f.broker.grant_window(f.session(owners[0]), about(unused))->token;
  const AttachmentId second = (*attach(other, token))->id;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(
        f.broker
            .destroy_window(f.session(owners[rank]), group, rank, unused.window, unused.generation)
            .ok());
  }
  f.executor.advance(kKeep);
  EXPECT_EQ(held_bytes(), kSlabBytes);
  ASSERT_TRUE(f.broker.drain(f.session(root), "HOST-0", Milliseconds(0)).ok());
  f.executor.advance(Milliseconds(0));
  EXPECT_EQ(f.broker.slabs().usage(0).slab_count, 0u);
  EXPECT_EQ(f.broker.service(0), GpuService::kDrained);
  for (const AttachmentId id : {first, second}) {
    EXPECT_EQ(f.broker.export_attachment(f.session(other), id).status().code(),
              absl::StatusCode::kAborted);
  }
  EXPECT_EQ(attach(other, grant()).status().code(), absl::StatusCode::kFailedPrecondition);
  leave_all();
  f.executor.advance(kKeep);
  EXPECT_EQ(f.pool.live(), 2) << "of both windows on the other GPU";
  const TenantId owner = f.session(owners[0]).tenant;
  EXPECT_EQ(f.broker.slabs().bytes(owner, 0), 2 * kSlabBytes);
  EXPECT_EQ(f.broker.slabs().usage(0).revoked_bytes, 2 * kSlabBytes);
  ASSERT_TRUE(f.broker.detach_window(f.session(other), second).ok());
  EXPECT_EQ(f.broker.slabs().bytes(owner, 0), kSlabBytes);
  f.broker.process_exited(other);
  EXPECT_EQ(f.broker.slabs().bytes(owner, 0), 0u);
  EXPECT_EQ(f.pool.live(), 0);
}

// Goal    an owner that dies while others are attached changes nothing for them.
TEST_F(GrantsTest, OwnersDie) {
  ASSERT_TRUE(attach(other, grant(Access::kReadWrite)).ok());
  for (const SessionId id : owners) f.broker.close_session(id);
  for (const SessionId id : owners) f.broker.process_exited(id);
  EXPECT_TRUE(f.broker.groups().empty());
  f.executor.advance(kKeep);
  EXPECT_EQ(f.pool.live(), 2);
  EXPECT_EQ(held_bytes(), kSlabBytes);
  f.broker.process_exited(other);
  EXPECT_EQ(f.pool.live(), 0);
}

// Goal    evicting a window that others are attached to says what is free, and what is not yet.
TEST_F(GrantsTest, EvictionSaysWhatIsHeld) {
  const AttachmentId id = (*attach(other, grant()))->id;
  leave_all();
  const uint64_t before = f.broker.slabs().ledger().free_bytes(0);
  const auto evicted = f.broker.evict_kept(f.session(owners[0]), window.window);
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_EQ(evicted->freed, 0u);
  EXPECT_EQ(evicted->held, 2 * kSlabBytes);
  EXPECT_EQ(f.broker.slabs().ledger().free_bytes(0), before);
  EXPECT_EQ(held_bytes(), kSlabBytes);
  ASSERT_TRUE(f.broker.detach_window(f.session(other), id).ok());
  EXPECT_EQ(f.broker.slabs().ledger().free_bytes(0), before + kSlabBytes);
}

// Goal    an attachment does not keep the owner's next group from finding its window, and has no
//         say in it once it ends.
TEST_F(GrantsTest, TheNextGroupFindsTheWindow) {
  const AttachmentId id = (*attach(other, grant()))->id;
  const std::vector<SlabId> before = slabs();
  leave_all();
  owners.clear();
  group = f.form(2, &owners);
  window = make("w");
  EXPECT_TRUE(window.found);
  EXPECT_EQ(slabs(), before);
  ASSERT_TRUE(f.broker.detach_window(f.session(other), id).ok());
  EXPECT_NE(f.broker.slabs().fd(before[0]), nullptr);
  EXPECT_EQ(f.broker.slabs().all().at(before[0]).state, SlabState::kLive);
}

// Goal    a grant comes along when the group is shrunk; what an attachment reaches of the rank that
//         was lost stays until it ends.
TEST_F(GrantsTest, ComesAlongWithShrink) {
  const std::string token = grant();
  const AttachmentId id = (*attach(other, token))->id;
  f.broker.close_session(owners[0]);
  f.broker.process_exited(owners[0]);
  auto answer = std::make_shared<absl::StatusOr<ShrinkResult>>();
  f.broker.shrink(f.session(owners[1]), {group, 1, {}}, f.into(answer));
  f.executor.run_posted();
  ASSERT_TRUE(answer->ok()) << answer->status();
  EXPECT_EQ(f.pool.live(), 3) << "two of the window, and a control region";
  EXPECT_TRUE(f.broker.export_attachment(f.session(other), id).ok());
  const auto again = attach(other, token);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->slabs.size(), 1u);
  ASSERT_TRUE(f.broker.detach_window(f.session(other), id).ok());
  EXPECT_EQ(f.pool.live(), 2);
}

}  // namespace
}  // namespace cco::memd
