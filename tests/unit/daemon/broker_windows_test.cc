#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text(const absl::Status& status) { return std::string(status.message()); }

UniqueFd sealed_memfd(uint64_t size_bytes) {
  UniqueFd fd(::memfd_create("external", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return fd;
}

// Goal    a window has one offset for all ranks, and many windows share a slab.
TEST(BrokerWindows, WindowsShareSlabs) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  std::set<uint64_t> offsets, generations;
  for (int i = 0; i < 64; ++i) {
    const auto answers = f.create_all(members, f.window(group, 0, 1000, absl::StrCat("w", i)));
    ASSERT_TRUE(answers[0]->ok() && answers[1]->ok()) << answers[0]->status();
    EXPECT_EQ((*answers[0])->offset, (*answers[1])->offset);
    EXPECT_EQ((*answers[0])->offset % kWindowAlignment, 0u);
    EXPECT_EQ((*answers[0])->slab_index, 1u);
    offsets.insert((*answers[0])->offset);
    generations.insert((*answers[0])->generation);
  }
  EXPECT_EQ(offsets.size(), 64u);
  EXPECT_EQ(generations.size(), 64u);
  EXPECT_EQ(f.pool.live(), 4) << "a control region and one slab for each rank";
}

// Goal    a window that does not fit gets a slab of its own; when memory is short, one no larger
//         than it must be.
TEST(BrokerWindows, HeapGrowsByWholeSlabs) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(1, &members);
  ASSERT_TRUE((*f.create(members[0], f.window(group, 0, 4096, "small"))).ok());
  const auto large = f.create(members[0], f.window(group, 0, 3 << 20, "large"));
  ASSERT_TRUE(large->ok());
  EXPECT_EQ((*large)->slab_index, 2u);
  EXPECT_EQ(f.broker.slabs().usage(0).bytes, (64u << 10) + (1u << 20) + (3u << 20));
  const auto rest = f.create(members[0], f.window(group, 0, (59 << 20) + (960 << 10), "rest"));
  ASSERT_TRUE(rest->ok()) << rest->status();
  const auto none = f.create(members[0], f.window(group, 0, 2 << 20, "none"));
  EXPECT_EQ(none->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(none->status()), AllOf(HasSubstr("HOST-0"), HasSubstr("free 0")));
}

// Goal    offsets are equal on all ranks whatever came and went before, and freed ranges are
//         reused.
// Method  random creations and destructions; every live window must be disjoint from the others.
TEST(BrokerWindows, RandomHistoriesKeepWindowsDisjoint) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  std::mt19937 random(20261129);
  std::map<std::string, std::pair<WindowResult, uint64_t>> live;
  for (int step = 0; step < 2000; ++step) {
    if (live.size() < 40 && random() % 2 == 0) {
      const uint64_t size = 1 + random() % 60000;
      const std::string name = absl::StrCat("w", step);
      const auto answers = f.create_all(members, f.window(group, 0, size, name));
      ASSERT_TRUE(answers[0]->ok()) << answers[0]->status();
      for (const auto& [other, entry] : live) {
        const auto& [result, other_size] = entry;
        ASSERT_TRUE(result.offset + other_size <= (*answers[0])->offset ||
                    (*answers[0])->offset + size <= result.offset)
            << "seed 20261129, step " << step << ": " << name << " overlaps " << other;
      }
      live.emplace(name, std::pair(**answers[0], size));
    } else if (!live.empty()) {
      auto victim = std::next(live.begin(), random() % live.size());
      const WindowResult& result = victim->second.first;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        ASSERT_TRUE(f.broker
                        .destroy_window(f.session(members[rank]), group, rank, result.window,
                                        result.generation)
                        .ok());
      }
      live.erase(victim);
    }
  }
  EXPECT_EQ(f.broker.window_count(), live.size());
  EXPECT_LE(f.broker.slabs().usage(0).slab_count, 8u) << "freed ranges must be reused";
}

// Goal    what cannot be a window is refused at once, with the cause.
TEST(BrokerWindows, BadRequestsSayWhy) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  struct Case {
    std::function<void(WindowRequest&)> spoil;
    absl::StatusCode code;
    std::string says;
  };
  constexpr uint64_t k2To32 = uint64_t{1} << 32;
  const auto external = [](uint64_t allocation, uint64_t offset, uint64_t size) {
    return [=](WindowRequest& r) {
      r.placement = Placement::kExternal;
      r.allocation_bytes = allocation;
      r.allocation_offset = offset;
      r.size_bytes = size;
    };
  };
  const std::vector<Case> cases = {
      {[](auto& r) { r.size_bytes = 0; }, absl::StatusCode::kInvalidArgument, "size is 0"},
      {[](auto& r) { r.size_bytes = k2To32; }, absl::StatusCode::kInvalidArgument, "has room for"},
      {[](auto& r) { r.size_bytes = ~uint64_t{0}; }, absl::StatusCode::kInvalidArgument,
       "18446744073709551615"},
      {[](auto& r) { r.alignment = 3; }, absl::StatusCode::kInvalidArgument,
       "alignment_bytes is 3"},
      {[](auto& r) { r.alignment = 128; }, absl::StatusCode::kInvalidArgument,
       "power of two from 256"},
      {[](auto& r) { r.name = std::string(128, 'n'); }, absl::StatusCode::kInvalidArgument,
       "128 bytes"},
      {[](auto& r) { r.name = "w\n<4>event=audit"; }, absl::StatusCode::kInvalidArgument,
       "control character (10) at byte 1"},
      {[](auto& r) { r.rank = 1; }, absl::StatusCode::kNotFound, "not rank 1"},
      {[](auto& r) { r.rank = 7; }, absl::StatusCode::kNotFound, "not rank 7"},
      {[](auto& r) { r.group = GroupId{99}; }, absl::StatusCode::kNotFound, "group 99"},
      {external(1000, 0, 10), absl::StatusCode::kInvalidArgument, "multiple of the granularity"},
      {external(65536, 65536, 1), absl::StatusCode::kInvalidArgument, "does not lie inside"},
      {external(65536, 0, 65537), absl::StatusCode::kInvalidArgument, "does not lie inside"},
      {external(65536, ~uint64_t{0} - 15, 32), absl::StatusCode::kInvalidArgument,
       "does not lie inside"},
      {external(65536, k2To32, 32), absl::StatusCode::kInvalidArgument, "does not lie inside"},
      {external(65536, 8, 16), absl::StatusCode::kInvalidArgument, "multiple of 16"},
      {external(65536, 16, 16), absl::StatusCode::kNotFound, "no such offer"},
  };
  for (const Case& c : cases) {
    WindowRequest request = f.window(group, 0, 4096);
    c.spoil(request);
    const auto answer = f.create(members[0], request);
    EXPECT_EQ(answer->status().code(), c.code) << c.says;
    EXPECT_THAT(text(answer->status()), HasSubstr(c.says));
  }
  EXPECT_EQ(f.pool.live(), 2);
}

// Goal    ranks that disagree all get the same error, which names the first that differs; nothing
//         is placed.
TEST(BrokerWindows, DisagreementNamesTheFirstThatDiffers) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(3, &members);
  std::vector<Fixture::Answer<WindowResult>> answers;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    answers.push_back(f.create(members[rank], f.window(group, rank, rank == 1 ? 8192 : 4096)));
  }
  for (const auto& answer : answers) {
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank_of(answer->status()), 1u);
    EXPECT_THAT(text(answer->status()),
                AllOf(HasSubstr("rank 1 asks for 8192"), HasSubstr("rank 0 for 4096")));
  }
  EXPECT_EQ(f.broker.window_count(), 0u);
}

// Goal    matching is by name, so that ranks may create windows in different orders.
TEST(BrokerWindows, OrderDoesNotMatterByName) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto x0 = f.create(members[0], f.window(group, 0, 100, "x"));
  const auto y1 = f.create(members[1], f.window(group, 1, 200, "y"));
  const auto y0 = f.create(members[0], f.window(group, 0, 200, "y"));
  const auto x1 = f.create(members[1], f.window(group, 1, 100, "x"));
  ASSERT_TRUE(x0->ok() && x1->ok() && y0->ok() && y1->ok());
  EXPECT_EQ((*x0)->window, (*x1)->window);
  EXPECT_NE((*x0)->window, (*y0)->window);
  EXPECT_EQ(f.create(members[0], f.window(group, 0, 100, "x"))->status().code(),
            absl::StatusCode::kAlreadyExists);
}

// Goal    destroying is local and happens once; the range is reused when all have done it, and an
//         old handle is refused.
TEST(BrokerWindows, DestroyIsLocalAndOnce) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const WindowResult first = **f.create_all(members, f.window(group, 0, 4096))[0];
  const auto destroy = [&](uint32_t rank, WindowId id, uint64_t generation) {
    return f.broker.destroy_window(f.session(members[rank]), group, rank, id, generation);
  };
  EXPECT_EQ(destroy(0, first.window, first.generation + 1).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(destroy(0, first.window, first.generation).ok());
  EXPECT_THAT(text(destroy(0, first.window, first.generation)), HasSubstr("before"));
  EXPECT_EQ(f.create(members[0], f.window(group, 0, 4096))->status().code(),
            absl::StatusCode::kAlreadyExists)
      << "rank 1 still uses it";
  EXPECT_TRUE(destroy(1, first.window, first.generation).ok());
  EXPECT_EQ(destroy(1, first.window, first.generation).code(), absl::StatusCode::kNotFound);
  const WindowResult second = **f.create_all(members, f.window(group, 0, 4096))[0];
  EXPECT_EQ(second.offset, first.offset);
  EXPECT_NE(second.generation, first.generation);
}

// Goal    failure of any allocation while the heap grows leaves nothing behind, and the next
//         attempt works.
TEST(BrokerWindows, FailedGrowthLeavesNothing) {
  for (int fail = 2; fail < 4; ++fail) {
    Fixture f;
    std::vector<SessionId> members;
    const GroupId group = f.form(2, &members);
    f.pool.fail_call = fail;
    // As large as a slab: there is no smaller one to fall back to.
    const auto answers = f.create_all(members, f.window(group, 0, 1 << 20));
    for (const auto& answer : answers)
      EXPECT_EQ(answer->status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(f.pool.live(), 2);
    f.pool.fail_call = -1;
    const auto again = f.create_all(members, f.window(group, 0, 1 << 20));
    ASSERT_TRUE(again[1]->ok()) << again[1]->status();
    EXPECT_EQ((*again[1])->offset, 64u * 1024)
        << "the address space of the failed attempt is free again";
  }
}

// Goal    a rank lost while memory is being found fails the window for all and frees what arrives
//         late.
TEST(BrokerWindows, LossDuringGrowth) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  f.pool.stuck = {1};
  const auto answers = f.create_all(members, f.window(group, 0, 4096));
  f.broker.close_session(members[1]);
  EXPECT_EQ(answers[0]->status().code(), absl::StatusCode::kAborted);
  f.broker.process_exited(members[1]);
  ASSERT_TRUE(f.broker.leave(f.session(members[0]), group, 0).ok());
  EXPECT_TRUE(f.broker.groups().empty());
  f.pool.stuck = {};
  f.pool.answer();
  EXPECT_EQ(f.pool.live(), 0);
}

// Goal    external memory is placed so that windows lie at one offset if they can, and side by side
//         if they cannot.
TEST(BrokerWindows, ExternalMemoryIsPlacedAtOneOffsetIfPossible) {
  constexpr uint64_t kGranule = 64 * 1024;
  for (const bool aligned : {true, false}) {
    Fixture f;
    std::vector<SessionId> members;
    const GroupId group = f.form(2, &members);
    std::vector<Fixture::Answer<WindowResult>> answers;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      WindowRequest request = f.window(group, rank, 1000);
      request.placement = Placement::kExternal;
      request.allocation_bytes = (rank + 2) * kGranule;
      request.allocation_offset = rank * kGranule + (aligned || rank == 0 ? 256 : 512);
      request.offer =
          *f.broker.desk().take_offer(members[rank], sealed_memfd(request.allocation_bytes));
      answers.push_back(f.create(members[rank], request));
    }
    ASSERT_TRUE(answers[0]->ok()) << answers[0]->status();
    const WindowResult& result = **answers[0];
    EXPECT_EQ(result.peer_offsets[0] == result.peer_offsets[1], aligned);
    const auto tickets = f.broker.export_slab(f.session(members[0]), group, 0, result.slab_index);
    ASSERT_TRUE(tickets.ok());
    EXPECT_TRUE(tickets->notice.empty());
    const auto& slabs = tickets->slabs;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(slabs[rank].offset % kGranule, 0u);
      EXPECT_EQ(slabs[rank].size_bytes, (rank + 2) * kGranule);
      EXPECT_EQ(result.peer_offsets[rank] - slabs[rank].offset,
                rank * kGranule + (aligned || rank == 0 ? 256 : 512));
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(f.broker
                      .destroy_window(f.session(members[rank]), group, rank, result.window,
                                      result.generation)
                      .ok());
    }
    EXPECT_EQ(f.pool.live(), 2) << "the daemon lets go of external memory with its last user";
  }
}

// Goal    a full control region refuses by numbers and leaves no half-made window.
TEST(BrokerWindows, FullControlRegionRefuses) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(1, &members);
  WindowRequest request = f.window(group, 0, 47 * 1024, "");
  request.placement = Placement::kControl;
  ASSERT_TRUE((*f.create(members[0], request)).ok());
  absl::Status status;
  uint32_t made = 0;
  while (status.ok() && made < 100) {
    status = f.create(members[0], f.window(group, 0, 256, absl::StrCat("w", made)))->status();
    if (status.ok()) ++made;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(text(status), AllOf(HasSubstr("control region"), HasSubstr("control_bytes")));
  EXPECT_EQ(f.broker.window_count(), made + 1);
}

// Goal    limits name themselves.
TEST(BrokerWindows, LimitsNameThemselves) {
  BrokerOptions options = Fixture::small_options();
  options.limits.windows_per_group = 1;
  options.limits.slabs_per_group = 2;
  options.limits.tickets_per_session = 2;
  options.limits.sessions = 2;
  options.limits.sessions_per_tenant = 1;
  options.limits.groups = 1;
  Fixture f(options);
  std::vector<SessionId> members;
  const GroupId group = f.form(1, &members);
  EXPECT_THAT(text(f.broker.open_session({1000, 1000, 7, false}, UniqueFd()).status()),
              HasSubstr("limits.sessions_per_tenant is 1"));
  f.attach(1001);
  EXPECT_THAT(text(f.broker.open_session({1002, 1002, 8, false}, UniqueFd()).status()),
              HasSubstr("limits.sessions is 2"));
  EXPECT_THAT(text(f.join(members[0], 0, 1, "other")->status()), HasSubstr("limits.groups is 1"));
  ASSERT_TRUE((*f.create(members[0], f.window(group, 0, 256, "a"))).ok());
  EXPECT_THAT(text(f.create(members[0], f.window(group, 0, 256, "b"))->status()),
              HasSubstr("limits.windows_per_group is 1"));
  ASSERT_TRUE(f.broker.export_slab(f.session(members[0]), group, 0, 0)
                  .ok());  // With one for the notice page.
  EXPECT_THAT(text(f.broker.export_slab(f.session(members[0]), group, 0, 0).status()),
              HasSubstr("limits.tickets_per_session is 2"));
}

}  // namespace
}  // namespace cco::memd
