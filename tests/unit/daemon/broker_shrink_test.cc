// The live ranks of a group go on in a new one, with the same memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kKeptSlab = 64 * 1024;

std::string text(const absl::Status& status) { return std::string(status.message()); }

class ShrinkTest : public ::testing::Test {
 protected:
  using Answer = Fixture::Answer<ShrinkResult>;

  Answer shrink(uint32_t rank, Milliseconds timeout = {}) {
    auto answer = std::make_shared<absl::StatusOr<ShrinkResult>>();
    f.broker.shrink(f.session(members[rank]), {group, rank, timeout}, f.into(answer));
    return answer;
  }
  WindowResult make(const std::string& name, uint64_t size = 1000, Milliseconds keep = {}) {
    WindowRequest request = f.window(group, 0, size, name);
    request.keep = keep;
    const auto answers = f.create_all(members, request);
    EXPECT_TRUE(answers[0]->ok()) << answers[0]->status();
    return **answers[0];
  }
  const Group& group_of(const Answer& answer) {
    EXPECT_TRUE(answer->ok()) << answer->status();
    return *f.broker.groups().at((*answer)->joined.group);
  }
  const Group& old() { return *f.broker.groups().at(group); }
  // The members of the new group leave it.
  void leave_all(const Group& last) {
    const GroupId id = last.id;
    for (uint32_t rank = 0; f.broker.groups().count(id) != 0; ++rank) {
      const SessionId session = f.broker.groups().at(id)->ranks[rank].session;
      ASSERT_TRUE(f.broker.leave(f.session(session), id, rank).ok());
    }
  }
  static bool waits(const Answer& answer) {
    return answer->status().code() == absl::StatusCode::kUnknown;
  }

  Fixture f;
  std::vector<SessionId> members;
  GroupId group = f.form(4, &members);
};

// Goal    the survivors keep their order, slabs, offsets and named windows, and nothing else; what
//         they make next does not overlap it; at the end all memory comes back once.
TEST_F(ShrinkTest, SurvivorsKeepTheirMemory) {
  const WindowResult named = make("a");
  const WindowResult unnamed = make("");
  const WindowResult kept = make("k", 1000, Milliseconds(1000));
  const std::vector<SlabId> data = old().slabs.at(named.slab_index).ids;
  const std::vector<SlabId> kept_data = old().slabs.at(kept.slab_index).ids;
  f.broker.process_exited(members[1]);
  const Answer first = shrink(0), third = shrink(3);
  EXPECT_TRUE(waits(first) && waits(third));
  const Answer second = shrink(2);
  const Group& next = group_of(first);
  EXPECT_EQ(f.broker.groups().size(), 1u) << "nobody is left in the old one";
  EXPECT_GT(next.generation, (*first)->joined.generation - 1);
  EXPECT_EQ((*first)->rank, 0u);
  EXPECT_EQ((*second)->rank, 1u);
  EXPECT_EQ((*third)->rank, 2u);
  EXPECT_EQ((*third)->joined.gpu_uuids, (std::vector<std::string>{"HOST-0", "HOST-2", "HOST-3"}));
  EXPECT_EQ((*third)->joined.lsa_size, 3u);
  EXPECT_EQ(next.slabs.at(named.slab_index).ids, (std::vector<SlabId>{data[0], data[2], data[3]}));
  EXPECT_EQ(next.slabs.at(kept.slab_index).ids,
            (std::vector<SlabId>{kept_data[0], kept_data[2], kept_data[3]}));
  EXPECT_EQ(f.pool.live(), 9) << "three slabs for each";
  EXPECT_EQ(next.windows.size(), 2u);

  const std::vector<SessionId> survivors{members[0], members[2], members[3]};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Session& session = f.session(survivors[rank]);
    const auto opened = f.broker.open_window(session, next.id, rank, "a");
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->window.offset, named.offset);
    EXPECT_GT(opened->window.generation, unnamed.generation);
    EXPECT_EQ(opened->size_bytes, 1000u);
    EXPECT_EQ(f.broker.open_window(session, next.id, rank, "k")->keep, Milliseconds(1000));
    EXPECT_EQ(f.broker.open_window(session, next.id, rank, "z").status().code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(f.broker.open_window(session, group, rank, "a").status().code(),
              absl::StatusCode::kNotFound);
  }
  const auto more = f.create_all(survivors, f.window(next.id, 0, 1000, "more"));
  ASSERT_TRUE(more[0]->ok()) << more[0]->status();
  EXPECT_EQ((*more[0])->offset, unnamed.offset) << "its range is free";
  EXPECT_TRUE(f.barrier(survivors[0], next.id, 0, 0) != nullptr);
  leave_all(next);
  EXPECT_EQ(f.pool.live(), 3) << "the kept window";
  EXPECT_EQ(f.broker.slabs().usage(2).kept_bytes, kKeptSlab);
  f.executor.advance(Milliseconds(1000));
  EXPECT_EQ(f.pool.live(), 0);
}

// Goal    a time-out that falls between the last rank's end and what follows from it is a time-out.
TEST_F(ShrinkTest, TimesOutWhenAllHaveCome) {
  std::vector<Answer> answers;
  for (const uint32_t rank : {0, 1, 2}) answers.push_back(shrink(rank, Milliseconds(100)));
  ASSERT_TRUE(f.broker.leave(f.session(members[3]), group, 3).ok());
  f.executor.advance_late(Milliseconds(100));
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kDeadlineExceeded) << answer->status();
  }
  EXPECT_THAT(text(answers[0]->status()), HasSubstr("all ranks came"));
  EXPECT_THAT(text(answers[1]->status()), HasSubstr("rank 0 has not come"));
}

// Goal    while a lost rank's process lives, and may write into the survivors' memory, they wait;
//         once it has exited its own memory is freed, and theirs is nobody else's.
TEST_F(ShrinkTest, TheLostMayWriteUntilTheyExit) {
  make("a");
  make("k", 1000, Milliseconds(1000));
  f.broker.close_session(members[1]);
  const std::vector<Answer> answers{shrink(0), shrink(2), shrink(3)};
  EXPECT_TRUE(waits(answers[0]));
  EXPECT_EQ(f.broker.slabs().usage(1).quarantined_bytes, (64u << 10) + (1u << 20) + kKeptSlab);
  f.broker.process_exited(members[1]);
  f.executor.run_posted();
  const Group& next = group_of(answers[0]);
  EXPECT_EQ(f.broker.groups().size(), 1u);
  EXPECT_EQ(f.broker.slabs().usage(1).bytes, 0u);
  for (const int gpu : {0, 2, 3}) EXPECT_EQ(f.broker.slabs().usage(gpu).held_bytes, 0u);
  EXPECT_TRUE(f.broker.kept_windows().all().empty()) << "the survivors use it";
  leave_all(next);
}

// Goal    a rank that is lost, or leaves, before or while it waits is not waited for.
TEST_F(ShrinkTest, TheLostAreNotWaitedFor) {
  const Answer first = shrink(0), second = shrink(1);
  f.broker.process_exited(members[1]);
  f.executor.run_posted();
  EXPECT_EQ(second->status().code(), absl::StatusCode::kAborted);
  const Answer third = shrink(2);
  EXPECT_TRUE(waits(first) && waits(third));
  ASSERT_TRUE(f.broker.leave(f.session(members[3]), group, 3).ok());
  f.executor.run_posted();
  EXPECT_EQ(group_of(first).size(), 2u);
  EXPECT_EQ((*third)->rank, 1u);
}

// Goal    a rank that is lost while memory is allocated ends the call on all, and leaves nothing;
//         the same call works afterwards.
TEST_F(ShrinkTest, LostWhileMemoryIsAllocated) {
  f.broker.process_exited(members[3]);
  f.pool.stuck.insert(0);
  const std::vector<Answer> answers{shrink(0), shrink(1), shrink(2)};
  EXPECT_EQ((*shrink(0)).status().code(), absl::StatusCode::kAlreadyExists);
  f.broker.process_exited(members[2]);
  EXPECT_EQ(answers[2]->status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(waits(answers[0]));
  f.pool.stuck.clear();
  f.pool.answer();
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(answers[rank]->status().code(), absl::StatusCode::kAborted);
    EXPECT_THAT(text(answers[rank]->status()), HasSubstr("try again"));
  }
  EXPECT_EQ(f.pool.live(), 4) << "control regions, two of them held";
  const Answer again[] = {shrink(0), shrink(1)};
  EXPECT_EQ(group_of(again[0]).size(), 2u);
  EXPECT_EQ(f.pool.live(), 2);
}

// Goal    an allocation that fails changes nothing.
TEST_F(ShrinkTest, NoMemory) {
  f.broker.process_exited(members[3]);
  f.pool.fail_call = 5;
  const std::vector<Answer> answers{shrink(0), shrink(1), shrink(2)};
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(f.pool.live(), 4);
  const std::vector<Answer> again{shrink(0), shrink(1), shrink(2)};
  EXPECT_EQ(group_of(again[0]).size(), 3u);
}

// Goal    with nobody lost it is the same group again; who does not come is named.
TEST_F(ShrinkTest, NobodyIsLost) {
  const WindowResult named = make("a");
  const Answer late = shrink(0, Milliseconds(10));
  f.executor.advance(Milliseconds(10));
  EXPECT_EQ(late->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(text(late->status()), AllOf(HasSubstr("shrinking group"), HasSubstr("ranks 1,2,3")));
  const auto waits_for_window = f.create(members[0], f.window(group, 0, 8, "never"));
  const std::vector<Answer> answers{shrink(0), shrink(1), shrink(2), shrink(3)};
  EXPECT_THAT(text(waits_for_window->status()), HasSubstr("goes on as group"));
  const Group& next = group_of(answers[3]);
  EXPECT_EQ(next.size(), 4u);
  EXPECT_EQ(next.windows.begin()->second.place.offset, named.offset);
  EXPECT_EQ(f.broker.groups().size(), 1u);
  leave_all(next);
  EXPECT_EQ(f.pool.live(), 0);
}

// Goal    teams that are still of one size stay teams; else the ranks of the node are one.
TEST_F(ShrinkTest, Teams) {
  for (const auto& [lost, expected] : std::vector<std::pair<std::vector<uint32_t>, uint32_t>>{
           {{1}, 3}, {{0, 2}, 1}, {{2, 3}, 2}}) {
    members.clear();
    std::vector<Fixture::Answer<JoinResult>> joined;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      JoinRequest request;
      request.name = "teams";
      request.rank = rank;
      request.size = 4;
      request.lsa_size = 2;
      request.gpu_uuid = absl::StrCat("HOST-", rank);
      members.push_back(f.attach());
      joined.push_back(f.join(members.back(), request));
    }
    group = (*joined[0])->group;
    for (const uint32_t rank : lost) f.broker.process_exited(members[rank]);
    Answer last;
    for (const Rank& rank : std::vector<Rank>(old().ranks)) {
      if (rank.state == MemberState::kLive) {
        last = shrink(static_cast<uint32_t>(
            std::find(members.begin(), members.end(), rank.session) - members.begin()));
      }
    }
    EXPECT_EQ(group_of(last).lsa_size, expected);
    leave_all(group_of(last));
  }
}

}  // namespace
}  // namespace cco::memd
