// Memory that is short: who waits for it, in which order they get it, and who is told.
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
constexpr uint64_t kGpu = 8 * kSlab + 8 * kControl;  // Eight slabs, and control regions.
constexpr uint32_t kLow = 1000, kLowToo = 1001, kHigh = 2000, kLimited = 3000;
constexpr Milliseconds kWait{1000};

std::string text(const absl::Status& status) { return std::string(status.message()); }
using Window = Fixture::Answer<WindowResult>;
bool waits(const Window& window) { return window->status().code() == absl::StatusCode::kUnknown; }

class MemoryTest : public ::testing::Test {
 protected:
  static BrokerOptions options() {
    BrokerOptions options = Fixture::small_options();
    options.slab_bytes = kControl;  // As much as is asked for, and no more.
    options.limits.bytes_per_gpu = kGpu;
    Tenant high;
    high.name = "high";
    high.uids = {kHigh};
    high.priority = 5;
    Tenant limited;
    limited.name = "limited";
    limited.uids = {kLimited};
    limited.quotas.bytes_per_gpu = 4 * kSlab + 2 * kControl;
    options.tenants = Tenants({high, limited}, {});
    return options;
  }
  // A group of one, and its session.
  struct Member {
    SessionId session{};
    GroupId group{};
    FakeNoticeBoard::Page* page = nullptr;
  };
  Member form(uint32_t uid) {
    Member member;
    member.session = f.attach(uid);
    const auto joined = f.join(member.session, 0, 1, absl::StrCat("group ", ++count));
    EXPECT_TRUE(joined->ok()) << joined->status();
    member.group = (*joined)->group;
    member.page = f.notices.pages.back();
    return member;
  }
  Window ask(const Member& member, uint64_t bytes, Milliseconds wait = kWait) {
    WindowRequest request = f.window(member.group, 0, bytes, absl::StrCat("window ", ++count));
    request.wait_for_memory = wait;
    return f.create(member.session, request);
  }
  Member holder(uint32_t uid, uint64_t bytes) {
    const Member member = form(uid);
    const Window made = ask(member, bytes, Milliseconds(0));
    EXPECT_TRUE(made->ok()) << made->status();
    return member;
  }
  void leave(const Member& member) {
    ASSERT_TRUE(f.broker.leave(f.session(member.session), member.group, 0).ok());
    f.executor.run_posted();
  }
  uint64_t free_bytes() const { return f.broker.slabs().ledger().free_bytes(0); }

  Fixture f{options()};
  int count = 0;
};

// Goal    who waits gets memory as soon as others have given it back; meanwhile all who have some
//         on that GPU are told, and nobody else; one episode is recorded once.
TEST_F(MemoryTest, ComesWhenOthersLeave) {
  const Member first = holder(kLow, 4 * kSlab), second = holder(kHigh, 4 * kSlab);
  std::vector<SessionId> elsewhere;
  f.form(2, &elsewhere);
  FakeNoticeBoard::Page &on_0 = *f.notices.pages[2], &on_1 = *f.notices.pages[3];
  const Member waiter = form(kLow);
  f.journal.lines.clear();
  const Window window = ask(waiter, 2 * kSlab), another = ask(waiter, 2 * kSlab);
  EXPECT_TRUE(waits(window));
  for (const FakeNoticeBoard::Page* page : {first.page, second.page, waiter.page, &on_0}) {
    EXPECT_EQ(page->conditions, CCO_CONDITION_MEMORY_PRESSURE);
  }
  EXPECT_EQ(on_1.conditions, 0u);
  EXPECT_EQ(form(kLow).page->conditions, CCO_CONDITION_MEMORY_PRESSURE) << "who comes later, too";
  leave(first);
  EXPECT_TRUE(window->ok()) << window->status();
  EXPECT_TRUE(another->ok()) << another->status();
  EXPECT_EQ(second.page->conditions, 0u);
  EXPECT_EQ(on_0.conditions, 0u);
  EXPECT_EQ(waiter.page->conditions, 0u);
  f.journal.lines.erase(
      std::remove_if(f.journal.lines.begin(), f.journal.lines.end(),
                     [](const auto& line) { return line.find("pressure") == std::string::npos; }),
      f.journal.lines.end());
  EXPECT_THAT(f.journal.lines, ElementsAre(absl::StrCat("memory_pressure gpu=HOST-0 bytes_asked=",
                                                        2 * kSlab, " bytes_free=", 4 * kControl),
                                           "memory_pressure_over gpu=HOST-0"));
  EXPECT_EQ(f.executor.timer_count(), 0u);
}

// Goal    who waits on a GPU that is taken out of service is told at once.
TEST_F(MemoryTest, Drain) {
  holder(kHigh, 8 * kSlab);
  const Window window = ask(form(kLow), 2 * kSlab);
  EXPECT_TRUE(waits(window));
  ASSERT_TRUE(f.broker.drain(f.session(f.attach(0)), "HOST-0", Milliseconds(30000)).ok());
  EXPECT_EQ(window->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(text(window->status()), HasSubstr("HOST-0 is being drained"));
}

// Goal    nobody stands in the way of others for more than its quota.
TEST_F(MemoryTest, QuotaOfWhoWaits) {
  holder(kHigh, 8 * kSlab);
  const Member member = form(kLimited);
  const Window within = ask(member, 3 * kSlab), over = ask(member, 2 * kSlab);
  EXPECT_TRUE(waits(within));
  EXPECT_EQ(over->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(over->status()),
              AllOf(HasSubstr("its quotas.bytes_per_gpu"), HasSubstr("those waited for included")));
}

// Goal    who has waited in vain has had its turn: asking again does not put it before others.
// Method  one is served, so that it comes after one that never was and asks for too much, twice.
TEST_F(MemoryTest, TurnInVain) {
  const Member all = holder(kHigh, 6 * kSlab), some = holder(kHigh, kSlab);
  holder(kHigh, kSlab);
  const Member greedy = form(kLow), modest = form(kLowToo), other = form(kLowToo + 1);
  const Window first = ask(modest, kSlab), keeps_queue = ask(other, 3 * kSlab, 10 * kWait);
  leave(some);
  EXPECT_TRUE(first->ok()) << first->status();
  const Window vain = ask(greedy, 4 * kSlab), again = ask(greedy, 4 * kSlab, 10 * kWait);
  const Window second = ask(modest, kSlab, 10 * kWait);
  f.executor.advance(kWait);
  EXPECT_EQ(vain->status().code(), absl::StatusCode::kResourceExhausted);
  leave(all);
  EXPECT_TRUE(keeps_queue->ok()) << keeps_queue->status();
  EXPECT_TRUE(second->ok()) << second->status();
  EXPECT_TRUE(waits(again));
}

// Goal    a wait ends by its deadline, and says what was asked, what is free, its turn, and who has
//         how much: its own tenant's by process, of others a sum.
TEST_F(MemoryTest, Deadline) {
  const Member mine = holder(kLow, 2 * kSlab), theirs = holder(kHigh, 5 * kSlab);
  const Member waiter = form(kLow);
  const Window head = ask(form(kHigh), 3 * kSlab, Milliseconds(5000));
  const Window window = ask(waiter, 2 * kSlab);
  f.executor.advance(kWait - Milliseconds(1));
  EXPECT_TRUE(waits(window));
  f.executor.advance(Milliseconds(1));
  EXPECT_EQ(window->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(window->status()),
              AllOf(HasSubstr(absl::StrCat("slab of ", 2 * kSlab, " bytes on HOST-0: free ",
                                           free_bytes(), " of ", kGpu)),
                    HasSubstr(absl::StrCat("others wait before it for ", 3 * kSlab)),
                    HasSubstr("it was number 2 in turn"),
                    HasSubstr(absl::StrCat("'uid-1000' has ", 2 * kSlab + 2 * kControl,
                                           " (pid 101 ", 2 * kSlab + kControl, ", pid 103 ",
                                           kControl, "), others ", 5 * kSlab + 2 * kControl))));
  EXPECT_EQ(mine.page->conditions, CCO_CONDITION_MEMORY_PRESSURE) << "one still waits";
  f.executor.advance(Milliseconds(4000));
  EXPECT_EQ(head->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(theirs.page->conditions, 0u);
  EXPECT_EQ(f.executor.timer_count(), 0u);
  EXPECT_TRUE(ask(waiter, kSlab, Milliseconds(0))->ok()) << "nobody is before it any more";
}

// Goal    a tenant of higher priority is served first, whenever it came.
TEST_F(MemoryTest, PriorityFirst) {
  const Member first = holder(kLow, 4 * kSlab), second = holder(kLow, 4 * kSlab);
  const Member low = form(kLow), high = form(kHigh);
  const Window waits_long = ask(low, 4 * kSlab), preferred = ask(high, 4 * kSlab);
  leave(first);
  EXPECT_TRUE(preferred->ok()) << preferred->status();
  EXPECT_TRUE(waits(waits_long));
  leave(second);
  EXPECT_TRUE(waits_long->ok()) << waits_long->status();
}

// Goal    tenants of one priority take turns, however much one of them asks for; within a tenant
//         those who came first are first.
TEST_F(MemoryTest, TenantsTakeTurns) {
  std::vector<Member> holders;
  for (int i = 0; i < 4; ++i) holders.push_back(holder(kHigh, 2 * kSlab));
  const Member a = form(kLow), b = form(kLowToo);
  const std::vector<Window> windows{ask(a, 2 * kSlab), ask(a, 2 * kSlab), ask(a, 2 * kSlab),
                                    ask(b, 2 * kSlab)};
  std::vector<size_t> order;
  for (const Member& member : holders) {
    leave(member);
    for (size_t i = 0; i < windows.size(); ++i) {
      if (windows[i]->ok() && std::find(order.begin(), order.end(), i) == order.end()) {
        order.push_back(i);
      }
    }
  }
  EXPECT_THAT(order, ElementsAre(0, 3, 1, 2));
}

// Goal    a large request is not starved by small ones that would fit, wait or not; one of higher
//         priority goes first.
TEST_F(MemoryTest, NobodyOvertakes) {
  const Member first = holder(kLow, 6 * kSlab);
  const Member large = form(kLow), small = form(kLowToo), high = form(kHigh);
  const Window head = ask(large, 7 * kSlab), behind = ask(small, kSlab);
  EXPECT_TRUE(waits(behind));
  EXPECT_GT(free_bytes(), 2 * kSlab);
  EXPECT_THAT(text(ask(small, kSlab, Milliseconds(0))->status()),
              HasSubstr(absl::StrCat("others wait before it for ", 8 * kSlab)));
  EXPECT_TRUE(ask(high, kSlab, Milliseconds(0))->ok());
  leave(first);
  EXPECT_TRUE(head->ok()) << head->status();
  EXPECT_TRUE(waits(behind)) << "seven and one are there";
  leave(high);
  EXPECT_TRUE(behind->ok()) << behind->status();
}

// Goal    who waits for several GPUs holds back there what it has asked for, and no more.
// Method  one that waits for HOST-0 and HOST-1, as HOST-0 is full.
TEST_F(MemoryTest, SeveralGpus) {
  const Member first = holder(kLow, 6 * kSlab);
  std::vector<SessionId> pair;
  const GroupId group = f.form(2, &pair, "pair");
  WindowRequest request = f.window(group, 0, 4 * kSlab, "both");
  request.wait_for_memory = kWait;
  const auto both = f.create_all(pair, request);
  const SessionId other = f.attach(kLowToo);
  JoinRequest join;
  join.name = "other";
  join.size = 1;
  join.gpu_uuid = "HOST-1";
  const GroupId on_1 = (*f.join(other, join))->group;
  EXPECT_FALSE((*f.create(other, f.window(on_1, 0, 5 * kSlab, "too much"))).ok());
  EXPECT_TRUE((*f.create(other, f.window(on_1, 0, 4 * kSlab, "the rest"))).ok());
  leave(first);
  for (const Window& window : both) EXPECT_TRUE(window->ok()) << window->status();
}

// Goal    what can never be, and what a quota or a lease refuses, does not wait.
TEST_F(MemoryTest, NotEverythingWaits) {
  const Member member = form(kLow);
  EXPECT_THAT(text(ask(member, kGpu + 1)->status()), HasSubstr("Ask for less"));
  const auto lease =
      f.broker.create_lease(f.session(f.attach(0)), {{"HOST-0"}, kSlab, 3'600'000, "", ""});
  JoinRequest request;
  request.name = "leased";
  request.size = 1;
  request.gpu_uuid = "HOST-0";
  request.lease = lease->token;
  Member leased = member;
  leased.group = (*f.join(member.session, request))->group;
  EXPECT_THAT(text(ask(leased, kSlab)->status()), HasSubstr("lease 1"));
  const Window waiting = ask(member, kGpu - kSlab);
  EXPECT_TRUE(waits(waiting));
  EXPECT_TRUE(ask(leased, kSlab - kControl)->ok()) << "its bytes are nobody else's to wait for";
  EXPECT_EQ(f.broker.queue().count(0), 1u);
}

// Goal    memory that a lease gives back when it ends is handed on like any other.
TEST_F(MemoryTest, ComesFromAnEndedLease) {
  const SessionId root = f.attach(0);
  const auto lease =
      f.broker.create_lease(f.session(root), {{"HOST-0"}, 8 * kSlab, 3'600'000, "", ""});
  const Window window = ask(form(kLow), 4 * kSlab);
  EXPECT_TRUE(waits(window));
  ASSERT_TRUE(f.broker.end_lease(f.session(root), lease->id).ok());
  f.executor.run_posted();
  EXPECT_TRUE(window->ok()) << window->status();
}

// Goal    a group that ends waits no longer: those behind it go on.
TEST_F(MemoryTest, EndedGroupsDoNotWait) {
  enum { kAbort, kLeave, kDie, kMost };
  for (int end = kAbort; end < kMost; ++end) {
    SCOPED_TRACE(end);
    const Member first = holder(kLow, 6 * kSlab), large = form(kLow), small = form(kLowToo);
    const Window head = ask(large, 7 * kSlab), behind = ask(small, kSlab);
    EXPECT_TRUE(waits(behind));
    if (end == kAbort) {
      ASSERT_TRUE(f.broker.abort(f.session(large.session), large.group, 0).ok());
    } else if (end == kLeave) {
      ASSERT_TRUE(f.broker.leave(f.session(large.session), large.group, 0).ok());
    } else {
      f.broker.process_exited(large.session);
    }
    f.executor.run_posted();
    EXPECT_EQ(head->status().code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(behind->ok()) << behind->status();
    EXPECT_EQ(first.page->conditions, 0u);
    EXPECT_EQ(f.executor.timer_count(), 0u);
    leave(small);
    leave(first);
    if (end == kAbort) leave(large);
    EXPECT_EQ(free_bytes(), kGpu);
  }
}

// Goal    a driver without memory is asked again when some has come back to it, and now and then,
//         as others may have given some back; not all the time.
TEST_F(MemoryTest, DriverHasNone) {
  const Member first = holder(kLow, kSlab), waiter = form(kLow);
  f.pool.fail_call = f.pool.calls();
  const Window window = ask(waiter, kSlab, Milliseconds(5000));
  EXPECT_TRUE(waits(window));
  EXPECT_EQ(first.page->conditions, CCO_CONDITION_MEMORY_PRESSURE);
  const int calls = f.pool.calls();
  f.executor.run_posted();
  EXPECT_EQ(f.pool.calls(), calls);
  f.pool.fail_call = calls;
  f.executor.advance(Milliseconds(1000));
  EXPECT_EQ(f.pool.calls(), calls + 1);
  EXPECT_TRUE(waits(window));
  leave(first);
  EXPECT_TRUE(window->ok()) << window->status();
  f.pool.fail_call = f.pool.calls();
  const Window refused = ask(waiter, kSlab, Milliseconds(500));
  f.executor.advance(Milliseconds(500));
  EXPECT_THAT(text(refused->status()), HasSubstr("the driver gave less than that"));
  EXPECT_EQ(f.pool.live(), 2);
}

// Goal    all ranks are told the same, even if one of them has less time; and they must agree on
//         how long they wait.
TEST_F(MemoryTest, Ranks) {
  holder(kLow, 6 * kSlab);
  std::vector<SessionId> pair;
  const GroupId group = f.form(2, &pair, "pair");
  WindowRequest request = f.window(group, 0, 4 * kSlab, "both");
  request.wait_for_memory = kWait;
  request.timeout = Milliseconds(300);
  const Window first = f.create(pair[0], request);
  f.executor.advance(Milliseconds(200));
  request.rank = 1;
  request.timeout = Milliseconds(5000);
  const Window second = f.create(pair[1], request);
  f.executor.advance(Milliseconds(100));
  EXPECT_EQ(first->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(second->status(), first->status());
  EXPECT_EQ(f.broker.queue().count(0), 0u);
  request.name = "differ";
  const Window third = f.create(pair[1], request);
  request.rank = 0;
  request.wait_for_memory = Milliseconds(0);
  const Window fourth = f.create(pair[0], request);
  EXPECT_EQ(third->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(text(fourth->status()), HasSubstr("with wait_for_memory_ms 1000, rank 0 for"));
}

// Goal    whatever the order of a driver's answer, good or bad, the deadline and the group's end,
//         the call is answered once, and nothing is left.
TEST_F(MemoryTest, EveryOrderOfEvents) {
  for (const bool fails : {false, true}) {
    std::array<int, 3> order{0, 1, 2};
    do {
      SCOPED_TRACE(absl::StrCat(fails, order[0], order[1], order[2]));
      const Member first = holder(kLow, 8 * kSlab), waiter = form(kLow);
      const Window window = ask(waiter, 4 * kSlab);
      f.pool.stuck.insert(0);
      f.pool.fail_call = fails ? f.pool.calls() : -1;
      leave(first);
      EXPECT_TRUE(waits(window)) << "the driver is asked";
      for (const int event : order) {
        if (event == 0) {
          f.pool.stuck.clear();
          f.pool.answer();
          f.executor.run_posted();
        } else if (event == 1) {
          f.executor.advance(kWait);
        } else {
          leave(waiter);
        }
      }
      EXPECT_FALSE(waits(window));
      const auto answer = std::find(order.begin(), order.end(), 0);
      const auto end = std::find(order.begin(), order.end(), 2);
      EXPECT_EQ(window->ok(), !fails && answer < end);
      f.executor.advance(kWait);
      EXPECT_EQ(f.broker.queue().count(0), 0u);
      EXPECT_EQ(free_bytes(), kGpu);
      EXPECT_EQ(f.pool.live(), 0);
      EXPECT_EQ(f.executor.timer_count(), 0u);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

}  // namespace
}  // namespace cco::memd
