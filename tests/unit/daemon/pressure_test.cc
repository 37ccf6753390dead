// Who is told that memory is short, when, and what of it is recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kSlab = 1 << 20, kControl = 64 * 1024;
constexpr uint64_t kGpu = 10 * kSlab;
constexpr uint32_t kUser = 1000, kOther = 1001, kLimited = 3000;
constexpr Milliseconds kPause{10000};  // Between two records.

class PressureTest : public ::testing::Test {
 protected:
  static BrokerOptions options() {
    BrokerOptions options = Fixture::small_options();
    options.slab_bytes = kControl;  // As much as is asked for, and no more.
    options.limits.bytes_per_gpu = kGpu;
    options.memory_pressure_percent = 90;
    Tenant limited;
    limited.name = "limited";
    limited.uids = {kLimited};
    limited.quotas.bytes_per_gpu = 2 * kSlab;
    options.tenants = Tenants({limited}, {});
    return options;
  }
  // A group of one, on GPU 0.
  struct Member {
    SessionId session{};
    GroupId group{};
    FakeNoticeBoard::Page* page = nullptr;
    bool is_told() const { return (page->conditions & CCO_CONDITION_MEMORY_PRESSURE) != 0; }
  };
  Member form(uint32_t uid) {
    Member member;
    member.session = f.attach(uid);
    const auto joined = f.join(member.session, 0, 1, absl::StrCat("group ", ++count));
    EXPECT_TRUE(joined->ok()) << joined->status();
    member.group = (*joined)->group;
    member.page = f.notices.pages.back();
    f.executor.run_posted();
    return member;
  }
  Fixture::Answer<WindowResult> ask(const Member& member, uint64_t bytes, Milliseconds wait = {}) {
    WindowRequest request = f.window(member.group, 0, bytes, absl::StrCat("window ", ++count));
    request.wait_for_memory = wait;
    auto made = f.create(member.session, request);
    f.executor.run_posted();
    return made;
  }
  void leave(const Member& member) {
    ASSERT_TRUE(f.broker.leave(f.session(member.session), member.group, 0).ok());
    f.executor.run_posted();
  }
  // Of the journal since the last call.
  std::vector<std::string> recorded() {
    std::vector<std::string> found;
    for (const std::string& line : std::exchange(f.journal.lines, {})) {
      if (line.find("memory_pressure") != std::string::npos) found.push_back(line);
    }
    return found;
  }

  Fixture f{options()};
  int count = 0;
};

// Goal    all ranks of a GPU are told before anybody is refused or waits: from the moment that 90 %
//         of it are taken, by slabs or by a lease, until they are not any more. Others are not.
TEST_F(PressureTest, IsToldBeforeMemoryIsOut) {
  const Member bystander = form(kOther), holder = form(kUser);
  std::vector<SessionId> elsewhere;
  f.form(2, &elsewhere);
  const FakeNoticeBoard::Page& on_1 = *f.notices.pages.back();
  ASSERT_TRUE(ask(holder, 8 * kSlab)->ok());
  EXPECT_FALSE(bystander.is_told());
  const Member last = form(kUser);
  ASSERT_TRUE(ask(last, kSlab)->ok());
  for (const Member& member : {bystander, holder, last}) EXPECT_TRUE(member.is_told());
  EXPECT_EQ(on_1.conditions, 0u);
  EXPECT_TRUE(form(kOther).is_told()) << "who comes later, too";
  leave(last);
  EXPECT_FALSE(bystander.is_told());
  LeaseRequest lease;
  lease.gpu_uuids = {"HOST-0"};
  lease.bytes_per_gpu = kSlab;
  lease.ttl_ms = 1000;
  ASSERT_TRUE(f.broker.create_lease(f.session(f.attach(0)), lease).ok());
  f.executor.run_posted();
  EXPECT_TRUE(holder.is_told());
  f.executor.advance(Milliseconds(1000));
  EXPECT_FALSE(holder.is_told());
}

// Goal    the same for a tenant's quota, which concerns that tenant alone.
TEST_F(PressureTest, IsToldBeforeAQuotaIsUsed) {
  const Member other = form(kOther), first = form(kLimited), second = form(kLimited);
  ASSERT_TRUE(ask(first, kSlab)->ok());
  EXPECT_FALSE(first.is_told());
  const Member last = form(kLimited);
  ASSERT_TRUE(ask(last, kSlab / 2 + 2 * kControl)->ok());
  for (const Member& member : {first, second, last}) EXPECT_TRUE(member.is_told());
  EXPECT_FALSE(other.is_told());
  leave(last);
  EXPECT_FALSE(first.is_told());
  EXPECT_THAT(recorded(), ElementsAre(HasSubstr("memory_pressure gpu=HOST-0 tenant=limited "
                                                "bytes_used=1900544 bytes_quota=2097152"),
                                      "memory_pressure_over gpu=HOST-0 tenant=limited"));
}

// Goal    pressure that comes and goes does not fill the log, and what lasts is in it.
TEST_F(PressureTest, IsRecordedNowAndThen) {
  const Member holder = form(kUser);
  ASSERT_TRUE(ask(holder, 8 * kSlab)->ok());
  for (int i = 0; i < 100; ++i) {
    const Member other = form(kUser);
    ASSERT_TRUE(ask(other, kSlab)->ok());
    leave(other);
  }
  EXPECT_EQ(recorded().size(), 2u) << "the first time, and its end";
  EXPECT_EQ(f.executor.timer_count(), 0u);
  const Member other = form(kUser);
  ASSERT_TRUE(ask(other, kSlab)->ok());
  EXPECT_THAT(recorded(), IsEmpty());
  f.executor.advance(kPause - Milliseconds(1));
  EXPECT_THAT(recorded(), IsEmpty());
  f.executor.advance(Milliseconds(1));
  EXPECT_THAT(recorded(), ElementsAre(HasSubstr("memory_pressure gpu=HOST-0 bytes_asked=0")));
  leave(other);
  EXPECT_THAT(recorded(), ElementsAre("memory_pressure_over gpu=HOST-0"));
}

// Goal    a new lease does not take what others wait for; it is refused, with the reason.
TEST_F(PressureTest, NewLeasesStandBehindWhoWaits) {
  const Member holder = form(kUser), waiter = form(kUser);
  ASSERT_TRUE(ask(holder, 6 * kSlab)->ok());
  const auto window = ask(waiter, 4 * kSlab, Milliseconds(60000));
  LeaseRequest lease;
  lease.gpu_uuids = {"HOST-0"};
  lease.bytes_per_gpu = kSlab;
  lease.ttl_ms = 1000;
  const SessionId root = f.attach(0);
  const auto refused = f.broker.create_lease(f.session(root), lease);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr(absl::StrCat("for which others wait for ", 4 * kSlab)));
  leave(holder);
  EXPECT_TRUE(window->ok()) << window->status();
  EXPECT_TRUE(f.broker.create_lease(f.session(root), lease).ok());
}

}  // namespace
}  // namespace cco::memd
