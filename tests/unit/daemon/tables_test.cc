// The core's tables, each by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "daemon/core/heap.h"
#include "daemon/core/range_allocator.h"
#include "daemon/core/request_log.h"
#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::HasSubstr;

// Goal    ranges that are handed out never overlap, are aligned, and come back whole.
// Method  random operations against a map of bytes, seed printed.
TEST(RangeAllocator, AgreesWithAMapOfBytes) {
  constexpr uint64_t kBase = 512, kSize = 4096;
  RangeAllocator ranges(kBase, kSize);
  std::vector<bool> used(kSize, false);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  std::mt19937 random(7);
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const uint64_t size = 1 + random() % 300, alignment = uint64_t{1} << (random() % 9);
      const auto offset = ranges.allocate(size, alignment);
      if (!offset.has_value()) continue;
      ASSERT_EQ(*offset % alignment, 0u);
      ASSERT_TRUE(*offset >= kBase && *offset + size <= kBase + kSize);
      for (uint64_t i = 0; i < size; ++i) {
        ASSERT_FALSE(used[*offset - kBase + i]) << "seed 7, step " << step;
        used[*offset - kBase + i] = true;
      }
      live.emplace_back(*offset, size);
    } else if (!live.empty()) {
      const size_t victim = random() % live.size();
      const auto [offset, size] = live[victim];
      ranges.release(offset, size);
      std::fill_n(used.begin() + static_cast<long>(offset - kBase), size, false);
      live.erase(live.begin() + static_cast<long>(victim));
    }
    ASSERT_EQ(ranges.free_bytes(),
              static_cast<uint64_t>(std::count(used.begin(), used.end(), false)));
  }
  for (const auto& [offset, size] : live) ranges.release(offset, size);
  EXPECT_EQ(ranges.largest_free_bytes(), kSize) << "neighbours must have become one";
}

// Goal    sizes near 2^64 find no room instead of wrapping round.
TEST(RangeAllocator, HugeSizesDoNotWrap) {
  RangeAllocator ranges(0, uint64_t{1} << 42);
  EXPECT_FALSE(ranges.allocate(~uint64_t{0}, 256).has_value());
  EXPECT_FALSE(ranges.allocate((uint64_t{1} << 42) + 1, 1).has_value());
  EXPECT_TRUE(ranges.allocate(uint64_t{1} << 42, uint64_t{1} << 30).has_value());
}

TEST(RangeAllocatorDeathTest, DoubleReleaseIsABrokenPromise) {
  RangeAllocator ranges(0, 4096);
  const uint64_t offset = *ranges.allocate(64, 1);
  ranges.release(offset, 64);
  EXPECT_DEATH(ranges.release(offset, 64), "broken_invariant");
}

// Goal    the table of slab states is the one that slab_table.h prints.
TEST(SlabState, IsTheTableInTheHeader) {
  for (const bool is_kept : {false, true}) {
    for (const bool others : {false, true}) {
      EXPECT_EQ(slab_state(OwnerState::kLive, others, is_kept), SlabState::kLive);
      EXPECT_EQ(slab_state(OwnerState::kLost, others, is_kept), SlabState::kQuarantined);
    }
    EXPECT_EQ(slab_state(OwnerState::kGone, true, is_kept), SlabState::kHeld);
  }
  EXPECT_EQ(slab_state(OwnerState::kGone, false, false), SlabState::kFreed);
  EXPECT_EQ(slab_state(OwnerState::kGone, false, true), SlabState::kKept);
}

// Goal    a ticket works once, for its session, in its time.
TEST(ExportDesk, TicketsWorkOnceForTheirSessionInTime) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto ticket = [&] {
    return f.broker.export_slab(f.session(members[0]), group, 0, 0)->slabs[1].ticket;
  };
  ExportDesk& desk = f.broker.desk();
  const std::string replayed = ticket();
  EXPECT_EQ(desk.redeem(members[1], replayed).status().code(), absl::StatusCode::kNotFound)
      << "another session's";
  EXPECT_TRUE(desk.redeem(members[0], replayed).ok());
  EXPECT_EQ(desk.redeem(members[0], replayed).status().code(), absl::StatusCode::kNotFound)
      << "replay";
  const std::string late = ticket();
  f.executor.advance(desk.lifetime());
  EXPECT_THAT(std::string(desk.redeem(members[0], late).status().message()),
              HasSubstr("within 10000 ms"));
  EXPECT_EQ(desk.redeem(members[0], "nonsense").status().message(),
            desk.redeem(members[0], late).status().message())
      << "an answer must not tell what exists";
  EXPECT_EQ(desk.count(members[0]), 0u);
}

// Goal    offers and tickets are not each other, and both go with their session.
TEST(ExportDesk, OffersAreNoTickets) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(1, &members);
  ExportDesk& desk = f.broker.desk();
  const std::string offer = *desk.take_offer(members[0], UniqueFd());
  EXPECT_EQ(desk.redeem(members[0], offer).status().code(), absl::StatusCode::kNotFound);
  const std::string ticket =
      f.broker.export_slab(f.session(members[0]), group, 0, 0)->slabs[0].ticket;
  EXPECT_EQ(desk.claim_offer(members[0], ticket).status().code(), absl::StatusCode::kNotFound);
  f.broker.close_session(members[0]);
  EXPECT_EQ(desk.count(members[0]), 0u);
  EXPECT_EQ(f.executor.timer_count(), 0u);
}

// Goal    who has left a group cannot fetch its memory any more; its other ranks and groups can.
// Method  a process with two ranks in a group that a third keeps alive, and a group of its own.
TEST(ExportDesk, TicketsEndWithTheirRank) {
  Fixture f;
  const SessionId both = f.attach(), other = f.attach();
  f.join(both, 0, 3);
  f.join(both, 1, 3);
  const GroupId group = (*f.join(other, 2, 3))->group, own = (*f.join(both, 0, 1, "own"))->group;
  const auto tickets = [&](GroupId id, uint32_t rank) {
    return *f.broker.export_slab(f.session(both), id, rank, 0);
  };
  ExportDesk& desk = f.broker.desk();
  const Broker::SlabTickets first = tickets(group, 0), second = tickets(group, 1),
                            third = tickets(own, 0);
  const std::string offer = *desk.take_offer(both, UniqueFd());
  ASSERT_TRUE(f.broker.leave(f.session(both), group, 0).ok());
  EXPECT_EQ(desk.redeem(both, first.slabs[2].ticket).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(desk.redeem(both, first.notice).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(desk.redeem(both, second.slabs[2].ticket).ok());
  EXPECT_TRUE(desk.redeem(both, third.notice).ok());
  EXPECT_TRUE(desk.claim_offer(both, offer).ok());
}

// Goal    what was allocated can be taken anew, in any order, and only where it is free.
TEST(RangeAllocator, TakesAnewWhatWasAllocated) {
  RangeAllocator first(1000, 9000);
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const uint64_t size : {100, 2000, 7, 512}) {
    places.emplace_back(*first.allocate(size, 8), size);
  }
  RangeAllocator second(1000, 9000);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    EXPECT_TRUE(second.take(place->first, place->second));
    EXPECT_FALSE(second.take(place->first, place->second));
  }
  EXPECT_EQ(second.free_bytes(), first.free_bytes());
  EXPECT_EQ(second.largest_free_bytes(), first.largest_free_bytes());
  EXPECT_FALSE(second.take(999, 8));
  EXPECT_FALSE(second.take(9999, 2));
  EXPECT_FALSE(second.take(5000, 0));
  EXPECT_FALSE(second.take(5000, ~uint64_t{0}));
  EXPECT_TRUE(second.take(9999, 1));
}

// Goal    a repeated request gets the first answer, joins a running one, and cannot ask for
//         something else.
TEST(RequestLog, RepeatsGetTheFirstAnswer) {
  RequestLog log(2);
  std::vector<std::string> answers;
  const auto waiter = [&](const Outcome& outcome) {
    answers.push_back(outcome.status.ok() ? outcome.response
                                          : std::string(outcome.status.message()));
  };
  EXPECT_TRUE(log.begin("a", "x", waiter));
  EXPECT_FALSE(log.begin("a", "x", waiter));
  EXPECT_TRUE(answers.empty());
  log.end("a", {absl::OkStatus(), "first"});
  EXPECT_EQ(answers, (std::vector<std::string>{"first", "first"}));
  EXPECT_FALSE(log.begin("a", "x", waiter));
  EXPECT_EQ(answers.back(), "first");
  EXPECT_FALSE(log.begin("a", "y", waiter));
  EXPECT_THAT(answers.back(), HasSubstr("another call"));
  for (const char* id : {"b", "c"}) {
    EXPECT_TRUE(log.begin(id, "x", waiter));
    const bool is_full = std::string(id) == "c";
    EXPECT_EQ(log.end(id, {absl::OkStatus(), id}),
              is_full ? std::optional<std::string>("a") : std::nullopt);
  }
  EXPECT_TRUE(log.begin("a", "y", waiter))
      << "the oldest answer is forgotten, so that the log is bounded";
}

// Goal    of as many calls as may run, no answer is forgotten: all may end at once, before their
//         clients have read one.
// Method  sessions under limits of which now one, now the other is larger, and the defaults; so
//         many calls begin as may run, all end, and all are asked for again.
TEST(RequestLog, RemembersAsManyAsMayRun) {
  for (const auto& [requests, calls] : {std::pair(2, 7), std::pair(7, 2), std::pair(0, 0)}) {
    BrokerOptions options = Fixture::small_options();
    if (requests != 0) options.limits.requests_per_session = static_cast<uint32_t>(requests);
    if (calls != 0) options.limits.calls_per_session = static_cast<uint32_t>(calls);
    Fixture f(options);
    RequestLog& log = *f.session(f.attach()).requests;
    std::vector<std::string> ids;
    for (uint32_t i = 0; i < options.limits.calls_per_session; ++i) {
      ids.push_back(absl::StrCat("call-", i));
      EXPECT_TRUE(log.begin(ids.back(), "x", [](const Outcome&) {}));
    }
    for (const std::string& id : ids) EXPECT_EQ(log.end(id, {}), std::nullopt);
    for (const std::string& id : ids) {
      EXPECT_FALSE(log.begin(id, "x", [](const Outcome&) {})) << id << " is carried out again";
    }
  }
}

// Goal    a call that was turned away for the moment can be repeated with its id.
TEST(RequestLog, UnavailableIsNoOutcome) {
  RequestLog log(2);
  std::vector<absl::StatusCode> answers;
  const auto waiter = [&](const Outcome& outcome) { answers.push_back(outcome.status.code()); };
  EXPECT_TRUE(log.begin("a", "x", waiter));
  EXPECT_EQ(log.end("a", {absl::UnavailableError("stopping"), ""}), std::nullopt);
  EXPECT_EQ(log.find("a"), nullptr);
  EXPECT_TRUE(log.begin("a", "x", waiter));
  log.end("a", {absl::OkStatus(), ""});
  EXPECT_EQ(answers,
            (std::vector<absl::StatusCode>{absl::StatusCode::kUnavailable, absl::StatusCode::kOk}));
}

// Goal    a token is good for the process it was given to and for nobody else.
TEST(SessionTable, TokenAndConnectionMustAgree) {
  Fixture f;
  const SessionId id = f.attach(1000);
  const Session& session = f.session(id);
  EXPECT_TRUE(f.broker.authenticate(session.token, session.who).ok());
  Identity other = session.who;
  other.pid += 1;
  EXPECT_EQ(f.broker.authenticate(session.token, other).status().code(),
            absl::StatusCode::kUnauthenticated);
  other = session.who;
  other.uid += 1;
  EXPECT_EQ(f.broker.authenticate(session.token, other).status().code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(f.broker.authenticate("", session.who).status().code(),
            absl::StatusCode::kUnauthenticated);
  const std::string token = session.token;
  const Identity who = session.who;
  f.broker.close_session(id);
  EXPECT_EQ(f.broker.authenticate(token, who).status().code(), absl::StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace cco::memd
