// What outlives the daemon of memory beyond its groups' own: shrunk groups, kept windows, grants,
// leases.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/daemon/recorder_rig.h"

namespace cco::memd {
namespace {

using RecorderMemoryTest = RecorderTest;

// Goal    a group that was shrunk is the same afterwards, while what is left of the old one waits
//         for its lost rank's process.
TEST_F(RecorderMemoryTest, ShrunkGroupsStay) {
  std::vector<SessionId> members;
  GroupId next{};
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 3; ++pid) members.push_back(node->attach(pid));
    const GroupId group = form(*node, members);
    window(*node, members, group, "w", Placement::kHeap, 5000);
    window(*node, members, group, "kept", Placement::kHeap, 5000, Milliseconds(1000));
    window(*node, members, group, "gone", Placement::kControl, 512);
    node->round();
    node->broker.process_exited(members[0]);
    for (const uint32_t rank : {1, 2}) {
      node->broker.shrink(*node->broker.session(members[rank]), {group, rank, {}},
                          [&](absl::StatusOr<ShrinkResult> result) {
                            ASSERT_TRUE(result.ok()) << result.status();
                            next = result->joined.group;
                          });
    }
    node->round();
  }
  EXPECT_EQ(store.count(RecordKind::kGroup), 1u);
  EXPECT_EQ(store.count(RecordKind::kWindow), 2u);
  const auto before = store.records;
  const auto node = start();
  EXPECT_EQ(store.records, before);
  EXPECT_EQ(encode(*node->broker.groups().at(next)),
            (before.at({RecordKind::kGroup, record_key(next)})));
  EXPECT_EQ(store.count(RecordKind::kSlab), 6u);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_TRUE(node->broker.leave(*node->broker.session(members[rank + 1]), next, rank).ok());
  }
  node->executor.advance(Milliseconds(1000));
  node->round();
  EXPECT_EQ(store.count(RecordKind::kSlab), 0u);
  EXPECT_EQ(vault.fds.size(), 2u);  // The processes.
}

// Goal    the vault knows for how long what it holds may be asked for: as long as the longest of
//         all windows, before any of them is answered for, until the last of them has gone; the
//         next daemon says what it found.
TEST_F(RecorderMemoryTest, TheVaultKnowsTheLongestKeep) {
  using Said = std::vector<Milliseconds>;
  constexpr Milliseconds kShort{1000}, kLong{5000}, kNone{0};
  const auto node = start();
  EXPECT_EQ(vault.held_for, Said{kNone});
  const std::vector<SessionId> members = {node->attach(1), node->attach(2)};
  const GroupId group = form(*node, members);
  window(*node, members, group, "not kept", Placement::kHeap, 5000);
  node->round();
  EXPECT_EQ(vault.held_for, Said{kNone});
  window(*node, members, group, "short", Placement::kHeap, 5000, kShort);
  node->round();
  const WindowResult kept = window(*node, members, group, "long", Placement::kHeap, 5000, kLong);
  node->round();
  EXPECT_EQ(vault.held_for, (Said{kNone, kShort, kLong}));
  vault.held_for.clear();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(node->broker
                    .destroy_window(*node->broker.session(members[rank]), group, rank, kept.window,
                                    kept.generation)
                    .ok());
  }
  node->round();
  EXPECT_EQ(vault.held_for, Said{}) << "its memory is kept";
  store.failure = absl::UnavailableError("the disk");
  node->executor.advance(kLong);
  node->round();
  EXPECT_EQ(vault.held_for, Said{}) << "by the records it is kept still";
  store.failure = absl::OkStatus();
  node->round();
  EXPECT_EQ(vault.held_for, Said{kShort});
  start();
  EXPECT_EQ(vault.held_for, (Said{kShort, kShort}));
}

// Goal    a kept window outlives the daemon: one in use, one that waits for a process's end, and
//         one that nobody uses, which runs out at the same time as if nothing had been.
TEST_F(RecorderMemoryTest, KeptWindowsStay) {
  constexpr Milliseconds kKeep{10000};
  std::vector<SessionId> members;
  GroupId group{};
  WindowResult unused;
  std::vector<SlabId> slabs;
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 2; ++pid) members.push_back(node->attach(pid));
    group = form(*node, members);
    window(*node, members, group, "used", Placement::kHeap, 5000, kKeep);
    unused = window(*node, members, group, "unused", Placement::kHeap, 5000, kKeep);
    slabs = node->broker.groups().at(group)->slabs.at(unused.slab_index).ids;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(node->broker
                      .destroy_window(*node->broker.session(members[rank]), group, rank,
                                      unused.window, unused.generation)
                      .ok());
    }
    for (const SessionId id : members) node->broker.close_session(id);
    node->round();
  }
  EXPECT_EQ(store.count(RecordKind::kKeptWindow), 1u);
  EXPECT_EQ(store.count(RecordKind::kWindow), 1u) << "processes may still write";
  const auto before = store.records;
  {
    const auto node = start();
    EXPECT_EQ(store.records, before);
    const KeptWindow* kept = node->broker.kept_windows().find(unused.window);
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(encode(*kept), (before.at({RecordKind::kKeptWindow, record_key(unused.window)})));
    EXPECT_EQ(kept->slabs, slabs);
    EXPECT_EQ(node->broker.slabs().usage(0).kept_bytes, 64u * 1024);
    for (const SessionId id : members) node->broker.process_exited(id);
    node->executor.advance(kKeep / 2);
    node->round();
    EXPECT_EQ(store.count(RecordKind::kKeptWindow), 2u);
    EXPECT_EQ(store.count(RecordKind::kGroup), 0u);
  }
  const auto node = start();
  EXPECT_EQ(node->broker.kept_windows().all().size(), 2u);
  node->executor.advance(kKeep - Milliseconds(1));  // Its clock starts at zero, too.
  EXPECT_EQ(node->broker.kept_windows().all().size(), 2u);
  node->executor.advance(Milliseconds(1));
  node->round();
  EXPECT_EQ(store.count(RecordKind::kKeptWindow), 0u);
  EXPECT_EQ(store.count(RecordKind::kSlab), 0u);
  EXPECT_TRUE(vault.fds.empty());
}

// Goal    grants and attachments outlive the daemon: what is held for an attachment alone stays the
//         owner's, and is freed when it ends; its process is waited for.
// Method  a window is granted and attached to; the owner goes, its window runs out, and daemons
//         come and go at each step.
TEST_F(RecorderMemoryTest, GrantsAndAttachmentsStay) {
  constexpr Milliseconds kKeep{1000};
  std::vector<SessionId> members;
  SessionId other{};
  AttachmentId attachment{};
  std::string token;
  {
    const auto node = start();
    for (int64_t pid = 1; pid <= 2; ++pid) members.push_back(node->attach(pid));
    other = node->broker.open_session({2000, 2000, 3, false}, Node::memfd("process"))->session;
    const GroupId group = form(*node, members);
    const WindowResult made = window(*node, members, group, "w", Placement::kHeap, 5000, kKeep);
    const auto granted = node->broker.grant_window(
        *node->broker.session(members[0]),
        {group, 0, made.window, made.generation, "uid-2000", Access::kReadWrite});
    ASSERT_TRUE(granted.ok()) << granted.status();
    token = granted->token;
    attachment = (*node->broker.attach_window(*node->broker.session(other), token))->id;
    node->round();
  }
  auto before = store.records;
  EXPECT_EQ(store.count(RecordKind::kAttachment), 1u);
  {
    const auto node = start();
    EXPECT_EQ(store.records, before);
    const Attachment* restored = node->broker.attachments().find(attachment);
    ASSERT_NE(restored, nullptr);
    EXPECT_EQ(encode(*restored), (before.at({RecordKind::kAttachment, record_key(attachment)})));
    const Group& group = *node->broker.groups().begin()->second;
    const Window& window = group.windows.begin()->second;
    EXPECT_EQ(encode(group, window),
              (before.at({RecordKind::kWindow, record_key(group.id, window.id)})));
    EXPECT_EQ(node->broker.attachment_count(group, window), 1u);
    const auto again = node->broker.attach_window(*node->broker.session(other), token);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_GT((*again)->id, attachment);
    for (const SessionId id : members) node->broker.process_exited(id);
    node->executor.advance(kKeep);
    node->round();
    EXPECT_EQ(store.count(RecordKind::kKeptWindow), 0u);
    EXPECT_EQ(store.count(RecordKind::kGroup), 0u);
  }
  before = store.records;
  EXPECT_EQ(store.count(RecordKind::kSlab), 2u);
  const auto node = start();
  EXPECT_EQ(store.records, before);
  EXPECT_EQ(node->broker.slabs().usage(0).held_bytes, 64u * 1024);
  EXPECT_EQ(node->broker.slabs().bytes(Tenants().find({1000, 1000}), 0), 64u * 1024);
  node->broker.close_session(other);
  node->round();
  EXPECT_EQ(store.count(RecordKind::kSlab), 2u);
  node->broker.process_exited(other);
  node->round();
  EXPECT_EQ(store.count(RecordKind::kSlab), 0u);
  EXPECT_EQ(store.count(RecordKind::kAttachment), 0u);
  EXPECT_TRUE(vault.fds.empty());
}

// Goal    an attachment whose memory is gone stays one, without it; one of no session is a
//         contradiction.
TEST_F(RecorderMemoryTest, AttachmentsThatHaveLostTheirMemory) {
  const auto put = [&](AttachmentId id, SessionId session) {
    Attachment attachment;
    attachment.id = id;
    attachment.session = session;
    attachment.size_bytes = 1;
    attachment.slabs = {SlabId{77}};
    store.records[{RecordKind::kAttachment, record_key(id)}] = encode(attachment);
  };
  SessionId session{};
  {
    const auto node = start();
    session = node->attach(1);
    node->round();
  }
  put(AttachmentId{5}, session);
  {
    const auto node = start();
    EXPECT_EQ(node->broker.attachments().find(AttachmentId{5})->slabs,
              (std::vector<SlabId>{SlabId{}}));
    EXPECT_EQ(node->broker.export_attachment(*node->broker.session(session), AttachmentId{5})
                  .status()
                  .code(),
              absl::StatusCode::kAborted);
  }
  put(AttachmentId{6}, SessionId{99});
  Node node(store, vault, driver);
  EXPECT_EQ(node.start().code(), absl::StatusCode::kInternal);
}

// A tenant that takes the users 1000 and 1001.
BrokerOptions one_team() {
  Tenant team;
  team.name = "team";
  team.uids = {1000, 1001};
  BrokerOptions options = Fixture::small_options();
  options.tenants = Tenants({team}, {});
  return options;
}

// Of two users, each with a window "w" of a group "g" that nobody uses any more.
class KeptByTwoTest : public RecorderMemoryTest {
 protected:
  std::vector<SessionId> attach_two(Node& node, uint32_t uid) {
    std::vector<SessionId> members;
    for (int64_t pid = 1; pid <= 2; ++pid) {
      members.push_back(
          node.broker.open_session({uid, uid, pid + uid, false}, Node::memfd("p"))->session);
    }
    return members;
  }
  WindowResult use(Node& node, uint32_t uid, uint64_t size_bytes) {
    const std::vector<SessionId> members = attach_two(node, uid);
    const GroupId group = form(node, members);
    const WindowResult made =
        window(node, members, group, "w", Placement::kHeap, size_bytes, Milliseconds(1000));
    for (const SessionId id : members) node.broker.process_exited(id);
    return made;
  }
  void SetUp() override {
    const auto node = start();
    use(*node, 1000, 5000);
    use(*node, 1001, 6000);
    node->round();
    ASSERT_EQ(node->broker.kept_windows().all().size(), 2u);
    first = node->broker.kept_windows().all().begin()->second.slabs[1];
  }

  SlabId first{};  // Of the first user's.
};

// Goal    a kept window that has lost a part of its memory ends, and that is said.
TEST_F(KeptByTwoTest, WithoutItsMemory) {
  vault.fds.erase(vault_name(first));
  const auto node = start();
  EXPECT_EQ(node->losses.size(), 2u);  // The slab, and the window.
  ASSERT_EQ(node->broker.kept_windows().all().size(), 1u);
  EXPECT_EQ(store.count(RecordKind::kKeptWindow), 1u);
  EXPECT_EQ(store.count(RecordKind::kSlab), 2u);
  EXPECT_EQ(vault.fds.size(), 2u);
}

// Goal    a configuration that makes two tenants one loses nothing that they kept under one name:
//         the window that fits is found, and of those that do the one that was used last; one that
//         is not found stays, over another restart, too.
TEST_F(KeptByTwoTest, WhoseUsersAreOneTenantNow) {
  for (int restart = 0; restart < 2; ++restart) {
    const auto node = start(one_team());
    ASSERT_EQ(node->broker.kept_windows().all().size(), 2u);
    EXPECT_EQ(store.count(RecordKind::kSlab), 4u);
    EXPECT_EQ(vault.fds.size(), 4u);
  }
  const auto node = start(one_team());
  for (const uint64_t size : {5000u, 6000u, 5000u}) {
    EXPECT_TRUE(use(*node, 1000, size).found) << size;
    EXPECT_EQ(node->broker.kept_windows().all().size(), 2u);
  }
  const std::vector<SessionId> members = attach_two(*node, 1000);
  const GroupId group = form(*node, members);
  absl::Status status;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    WindowRequest request;
    request.group = group;
    request.rank = rank;
    request.name = "w";
    request.size_bytes = 7000;
    request.keep = Milliseconds(1000);
    node->broker.create_window(
        *node->broker.session(members[rank]), request,
        [&](absl::StatusOr<WindowResult> result) { status = result.status(); });
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(std::string(status.message()).find("is kept with 5000 bytes"), std::string::npos)
      << status;
  for (const SessionId id : members) node->broker.process_exited(id);
  node->executor.advance(Milliseconds(1000));
  EXPECT_TRUE(node->broker.kept_windows().all().empty());
  EXPECT_EQ(node->broker.slabs().size(), 0u);
}

// Goal    leases go on as they were: their bytes, what of them is used, whom they serve, and when
//         they end, no matter how long no daemon ran.
// Method  one that is used in part and one that is not; they end in 5 s and in 9 s.
TEST_F(RecorderMemoryTest, LeasesGoOn) {
  constexpr uint64_t kBytes = 8 << 20, kAll = 64 << 20;
  const uint64_t control = Fixture::small_options().control_bytes;
  std::vector<SessionId> members;
  Broker::NewLease used, idle;
  {
    const auto node = start();
    members.push_back(node->attach(1));
    used = lease(*node, {{"HOST-0"}, kBytes, 5000, "uid-1000", "/jobs"});
    idle = lease(*node, {{}, kBytes, 9000, "", ""});
    window(*node, members, form(*node, members, used.token), "w", Placement::kHeap, 1 << 20);
    node->round();
  }
  const auto before = store.records;
  EXPECT_EQ(store.count(RecordKind::kLease), 2u);
  {
    const auto node = start();
    EXPECT_EQ(store.records, before);
    for (const auto& [id, lease] : node->broker.leases().all()) {
      EXPECT_EQ(encode(lease, node->pool.gpus()),
                (before.at({RecordKind::kLease, record_key(id)})));
    }
    const MemoryLedger& ledger = node->broker.slabs().ledger();
    EXPECT_EQ(ledger.reservation(used.id)->used.at(0), control + (1 << 20));
    EXPECT_EQ(ledger.free_bytes(0), kAll - 2 * kBytes);
    EXPECT_EQ(ledger.free_bytes(1), kAll - kBytes);
    node->executor.advance(Milliseconds(4999));
    EXPECT_EQ(ledger.free_bytes(0), kAll - 2 * kBytes);
    node->executor.advance(Milliseconds(1));
    EXPECT_EQ(ledger.free_bytes(0), kAll - kBytes - control - (1 << 20));
    // Killed before this is recorded.
  }
  Node node(store, vault, driver);
  node.executor.advance(Milliseconds(6000));
  ASSERT_TRUE(node.start().ok());
  EXPECT_EQ(store.count(RecordKind::kLease), 1u);
  const MemoryLedger& ledger = node.broker.slabs().ledger();
  EXPECT_EQ(ledger.reservation(used.id), nullptr);
  EXPECT_EQ(ledger.free_bytes(0), kAll - kBytes - control - (1 << 20));
  node.executor.advance(Milliseconds(3000));
  for (const SessionId id : members) node.broker.process_exited(id);
  node.round();
  EXPECT_EQ(ledger.free_bytes(0), kAll);
  EXPECT_EQ(store.count(RecordKind::kLease), 0u);
  EXPECT_GT(number(lease(node, {{}, kBytes, 1000, "", ""}).id), number(idle.id));
}

}  // namespace
}  // namespace cco::memd
