// Forming groups: who gets in, who is refused, and what the refusal says.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/support/node_test.h"

namespace cco::test {
namespace {

class GroupTest : public NodeTest {
 protected:
  void SetUp() override { start(); }

  static cco_status join(const Client& client, Group::Options options, Group* group) {
    return Group::create(client, options, group);
  }
};

Group::Options named(const char* name, uint32_t rank, uint32_t size, uint32_t timeout_ms = 5000) {
  Group::Options options;
  options.name = name;
  options.rank = rank;
  options.size = size;
  options.timeout_ms = timeout_ms;
  return options;
}

// Goal    a rank that is taken is refused, in a group that forms and in one that runs, and the
//         group comes about all the same.
// Method  rank 0 twice, the second as soon as the daemon shows the first; then all ranks.
TEST_F(GroupTest, RankTwice) {
  const Client client = attach();
  std::vector<Group> groups(2);
  std::thread first(
      [&] { EXPECT_TRUE(succeeded(join(client, named("job", 0, 2, 20000), &groups[0]))); });
  EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.groups == 1; }));
  Group again;
  EXPECT_TRUE(refused(join(client, named("job", 0, 2), &again), CCO_ALREADY_EXISTS,
                      {"rank 0", "taken", "'job'"}));
  EXPECT_TRUE(succeeded(join(client, named("job", 1, 2, 20000), &groups[1])));
  first.join();
  EXPECT_TRUE(refused(join(client, named("job", 1, 2), &again), CCO_ALREADY_EXISTS,
                      {"rank 1", "is running"}));
  EXPECT_TRUE(succeeded(on_threads(2, [&](uint32_t rank) { return groups[rank].barrier(); })[0]));
}

// Goal    ranks agree to go on, or all hear from the one that can not, in the same order as
//         barriers.
// Method  three ranks; no problem, a problem of one longer than what counts, and a barrier.
TEST_F(GroupTest, Agree) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 3);
  const std::string reason = "no memory" + std::string(2000, '.');
  const auto agree = [&](const char* problem_of_rank_1) {
    return on_threads(3, [&](uint32_t rank) {
      return groups[rank].agree(rank == 1 ? problem_of_rank_1 : nullptr);
    });
  };
  EXPECT_TRUE(all_succeeded(agree(nullptr)));
  for (const Outcome& outcome : agree(reason.c_str())) {
    EXPECT_TRUE(refused(outcome, CCO_FAILED_PRECONDITION, {"rank 1 can not go on: no memory..."}));
    EXPECT_EQ(outcome.rank, 1);
  }
  EXPECT_TRUE(all_succeeded(agree("")));
  EXPECT_TRUE(all_succeeded(on_threads(3, [&](uint32_t rank) { return groups[rank].barrier(); })));
}

// Goal    ranks, sizes, names and slots out of range are refused at once, and named.
// Method  one call for each.
TEST_F(GroupTest, OutOfRange) {
  const Client client = attach();
  Group group;
  EXPECT_TRUE(
      refused(join(client, named("job", 2, 2), &group), CCO_INVALID_ARGUMENT, {"rank 2 of 2"}));
  EXPECT_TRUE(
      refused(join(client, named("job", 0, 0), &group), CCO_INVALID_ARGUMENT, {"rank 0 of 0"}));
  EXPECT_TRUE(
      refused(join(client, named("job", 0, 1025), &group), CCO_INVALID_ARGUMENT, {"1025", "1024"}));
  EXPECT_TRUE(refused(join(client, named("job", 0xfffffffe, 0xffffffff), &group),
                      CCO_INVALID_ARGUMENT, {"4294967294"}));
  EXPECT_TRUE(refused(join(client, named("job", 0, 257), &group), CCO_RESOURCE_EXHAUSTED,
                      {"257 ranks", "limits.ranks_per_group is 256"}));
  const std::string long_name(128, 'x');
  EXPECT_TRUE(refused(join(client, named(long_name.c_str(), 0, 1), &group), CCO_INVALID_ARGUMENT,
                      {"128 bytes", "127"}));
  EXPECT_TRUE(refused(join(client, named("", 0, 1), &group), CCO_INVALID_ARGUMENT, {"0 bytes"}));
  EXPECT_TRUE(refused(join(client, named(nullptr, 0, 1), &group), CCO_INVALID_ARGUMENT,
                      {"neither name nor unique_id"}));
  cco_unique_id id;
  ASSERT_EQ(cco_unique_id_create(&id), CCO_OK);
  Group::Options both = named("job", 0, 1);
  both.unique_id = &id;
  EXPECT_TRUE(refused(join(client, both, &group), CCO_INVALID_ARGUMENT, {"both name and"}));
  Group::Options slot = named("job", 0, 1);
  for (const uint64_t bytes : {uint64_t{1}, (uint64_t{4} << 30) - 1, (uint64_t{4} << 30) + 1}) {
    slot.slot_bytes = bytes;
    EXPECT_TRUE(refused(join(client, slot, &group), CCO_INVALID_ARGUMENT,
                        {std::to_string(bytes), "4 GiB"}));
  }
  slot.slot_bytes = uint64_t{1} << 63;
  EXPECT_TRUE(
      refused(join(client, slot, &group), CCO_INVALID_ARGUMENT, {std::to_string(slot.slot_bytes)}));
}

// Goal    ranks that disagree on the size or on slot_bytes all learn it, and who differs.
// Method  three ranks; one says something else.
TEST_F(GroupTest, RanksDisagree) {
  const Client client = attach();
  std::vector<Group> groups(2);
  std::thread first([&] {
    EXPECT_TRUE(refused(join(client, named("job", 0, 2, 20000), &groups[0]), CCO_INVALID_ARGUMENT,
                        {"rank 1 says it has 3 ranks", "rank 0 says 2"}));
  });
  EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.groups == 1; }));
  const Outcome other = outcome(join(client, named("job", 1, 3, 20000), &groups[1]));
  EXPECT_TRUE(refused(other, CCO_INVALID_ARGUMENT, {"rank 1 says it has 3 ranks"}));
  EXPECT_EQ(other.rank, 1);
  first.join();

  std::vector<Group> slots(3);
  for (const Outcome& result : on_threads(3, [&](uint32_t rank) {
         Group::Options options = named("slots", rank, 3, 20000);
         options.slot_bytes = (rank == 2 ? uint64_t{8} : uint64_t{4}) << 30;
         return join(client, options, &slots[rank]);
       })) {
    EXPECT_TRUE(
        refused(result, CCO_INVALID_ARGUMENT,
                {"rank 2 asks for slot_bytes 8589934592", "rank 0 for slot_bytes 4294967296"}));
    EXPECT_EQ(result.rank, 2);
  }
}

// Goal    a rank that never comes is named when the time that was asked for is over, not later, and
//         the others can go on waiting and succeed.
// Method  four ranks, rank 3 stays away for a second; best of three, since the machine may be busy.
TEST_F(GroupTest, RankNeverComes) {
  const Client client = attach();
  std::chrono::milliseconds best = std::chrono::hours(1);
  for (int attempt = 0; attempt < 3 && best > std::chrono::milliseconds(1200); ++attempt) {
    std::vector<Group> groups(4);
    std::vector<std::chrono::milliseconds> took(4);
    const std::vector<Outcome> results = on_threads(3, [&](uint32_t rank) {
      const Stopwatch time;
      const cco_status status = join(client, named("late", rank, 4, 1000), &groups[rank]);
      took[rank] = time.elapsed();
      return status;
    });
    std::chrono::milliseconds slowest{0};
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(results[rank].status, CCO_DEADLINE_EXCEEDED) << results[rank].message;
      EXPECT_NE(results[rank].message.find("1000 ms"), std::string::npos) << results[rank].message;
      EXPECT_GE(took[rank].count(), 999);
      slowest = std::max(slowest, took[rank]);
    }
    EXPECT_TRUE(refused(results[0], CCO_DEADLINE_EXCEEDED, {"'late'", "3", "not come"}));
    best = std::min(best, slowest);
  }
  EXPECT_LE(best, patient(std::chrono::milliseconds(1200)));

  std::vector<Group> groups(2);
  std::thread patient_rank(
      [&] { EXPECT_TRUE(succeeded(join(client, named("later", 1, 2, 20000), &groups[1]))); });
  EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.groups == 1; }));
  EXPECT_TRUE(succeeded(join(client, named("later", 0, 2, 20000), &groups[0])));
  patient_rank.join();
}

// Goal    a barrier, too, names who is late, and can be entered again.
// Method  two of three ranks with a short time-out, then all three.
TEST_F(GroupTest, LateRankAtBarrier) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 3);
  std::thread waits_long([&] { EXPECT_TRUE(succeeded(groups[1].barrier(20000))); });
  const Outcome early = outcome(groups[0].barrier(300));
  EXPECT_TRUE(refused(early, CCO_DEADLINE_EXCEEDED, {"barrier #", "2", "300 ms"}));
  EXPECT_GE(early.rank, 1);
  EXPECT_TRUE(all_succeeded(
      on_threads(2, [&](uint32_t call) { return groups[call == 0 ? 0 : 2].barrier(20000); })));
  waits_long.join();
}

// Goal    GPUs are named by UUID or ordinal; what is not there is refused with what there is.
// Method  an ordinal and a UUID that do not exist.
TEST_F(GroupTest, GpuNotThere) {
  const Client client = attach();
  Group group;
  Group::Options options = named("job", 0, 1);
  options.device = 4;
  EXPECT_TRUE(refused(join(client, options, &group), CCO_NOT_FOUND, {"no device 4", "HOST-3"}));
  options.device = -3;
  EXPECT_TRUE(refused(join(client, options, &group), CCO_NOT_FOUND, {"no device -3"}));
  options.gpu_uuid = "HOST-9";
  EXPECT_TRUE(refused(join(client, options, &group), CCO_NOT_FOUND, {"'HOST-9'", "HOST-0"}));
  options.gpu_uuid = "HOST-2";
  EXPECT_TRUE(succeeded(join(client, options, &group)));
  cco_group_info info{};
  ASSERT_TRUE(succeeded(group.get_info(&info)));
  EXPECT_EQ(info.device, 2);
}

// Goal    the same GPU has one name, whatever order a process sees its GPUs in, and a wrong list is
//         refused.
// Method  rank 0 sees 0,1 and rank 1 sees 1,0; both bring their device 0: the daemon's books must
//         show one slab on each of two GPUs.
TEST_F(GroupTest, VisibleDevicesInDifferentOrder) {
  Ranks::Options options = ranks();
  options.environment_of = [](uint32_t rank) {
    return std::map<std::string, std::string>{
        {"CCO_HOST_VISIBLE_DEVICES", rank == 0 ? "2,1" : "1,2"}};
  };
  Ranks pair(
      2,
      [](Rank& rank) {
        const Client client = test::attach(rank);
        Group group;
        Group::Options options = named("job", rank.rank, 2);
        options.device = 0;
        EXPECT_TRUE(succeeded(Group::create(client, options, &group)));
        cco_gpu_info gpu{};
        EXPECT_TRUE(succeeded(client.get_gpu(0, &gpu)));
        rank.say(gpu.uuid);
        rank.hear();
      },
      options);
  EXPECT_EQ(pair.hear(0), "HOST-2");
  EXPECT_EQ(pair.hear(1), "HOST-1");
  const NodeLedger held = watch->now();
  EXPECT_EQ(held.gpus[0].slab_count, 0u);
  EXPECT_EQ(held.gpus[1].slab_count, 1u);
  EXPECT_EQ(held.gpus[2].slab_count, 1u);
  pair.tell_all("go");
  pair.expect_success();

  options.environment_of = nullptr;
  options.environment = {{"CCO_HOST_VISIBLE_DEVICES", "1,1"}};
  run_ranks(
      1,
      [](Rank& rank) {
        Client client;
        EXPECT_TRUE(refused(Client::create({rank.socket_path.c_str(), 0}, &client),
                            CCO_FAILED_PRECONDITION, {"HOST_VISIBLE_DEVICES", "twice"}));
      },
      options);
}

// Goal    the caller's order of ranks is kept: a peer's index is its rank, whatever its device.
// Method  ranks on devices 0,3,1,2 write their own name; everybody reads everybody's.
TEST_F(GroupTest, OrderOfRanksIsKept) {
  run_ranks(
      4,
      [](Rank& rank) {
        static constexpr int kDevices[] = {0, 3, 1, 2};
        const Client client = test::attach(rank);
        Group group;
        Group::Options options = named("job", rank.rank, 4, 20000);
        options.device = kDevices[rank.rank];
        ASSERT_TRUE(succeeded(Group::create(client, options, &group)));
        Window window;
        ASSERT_TRUE(succeeded(Window::create(group, "names", {.size_bytes = 64}, &window)));
        uint64_t* mine = nullptr;
        ASSERT_TRUE(succeeded(window.get_address(rank.rank, 0, &mine)));
        *mine = 1000 + rank.rank;
        ASSERT_TRUE(succeeded(group.barrier()));
        for (uint32_t peer = 0; peer < 4; ++peer) {
          uint64_t* theirs = nullptr;
          ASSERT_TRUE(succeeded(window.get_address(peer, 0, &theirs)));
          EXPECT_EQ(*theirs, 1000 + peer);
        }
        ASSERT_TRUE(succeeded(group.barrier()));
      },
      ranks());
}

// Goal    groups meet by unique id, and a name that looks like one is something else.
// Method  one rank by a unique id, one by a name with the same bytes: neither finds the other.
TEST_F(GroupTest, UniqueIdIsNoName) {
  const Client client = attach();
  cco_unique_id id{};
  for (size_t i = 0; i < sizeof id.bytes; ++i) id.bytes[i] = 'a';
  std::vector<Group> by_id(2);
  EXPECT_TRUE(all_succeeded(on_threads(2, [&](uint32_t rank) {
    Group::Options options = named(nullptr, rank, 2, 20000);
    options.unique_id = &id;
    return join(client, options, &by_id[rank]);
  })));
  Group again;
  Group::Options options = named(nullptr, 0, 1);
  options.unique_id = &id;
  EXPECT_TRUE(refused(join(client, options, &again), CCO_ALREADY_EXISTS, {"unique id"}));
  by_id.clear();
  const std::string name = "#" + std::string(126, 'a');
  Group named_group;
  EXPECT_TRUE(succeeded(join(client, named(name.c_str(), 0, 1), &named_group)));
}

// Goal    calls on one group do not disturb another's, in whatever order members make them.
// Method  windows on {0,1}, then on all three, then on {1,2}, with several interleavings.
TEST_F(GroupTest, SubgroupsInAnyOrder) {
  const Client client = attach();
  const std::vector<Group> pair01 = form_group(client, "01", 2);
  const std::vector<Group> world = form_group(client, "012", 3);
  const std::vector<Group> pair12 = form_group(client, "12", 2);
  const auto make = [](const Group& group) {
    Window window;
    return Window::create(group, nullptr, {.size_bytes = 4096, .timeout_ms = 20000}, &window);
  };
  for (int round = 0; round < 3; ++round) {
    const std::vector<Outcome> results = on_threads(7, [&](uint32_t call) {
      switch ((call + static_cast<uint32_t>(round) * 3) % 7) {
        case 0:
          return make(pair01[0]);
        case 1:
          return make(pair01[1]);
        case 2:
          return make(world[0]);
        case 3:
          return make(world[1]);
        case 4:
          return make(world[2]);
        case 5:
          return make(pair12[0]);
        default:
          return make(pair12[1]);
      }
    });
    EXPECT_TRUE(all_succeeded(results));
  }
}

// Goal    many groups made at once by several processes all come about.
// Method  four processes form 12 groups each, from 12 threads, in different orders, four times
//         over, with a window and a communicator in each.
TEST_F(GroupTest, ManyAtOnce) {
  run_ranks(
      4,
      [](Rank& rank) {
        const Client client = test::attach(rank, 20000);
        for (int round = 0; round < 4; ++round) {
          EXPECT_TRUE(all_succeeded(on_threads(12, [&](uint32_t thread) {
            const uint32_t index = (thread * 5 + rank.rank) % 12;
            const std::string name =
                "group " + std::to_string(index) + " round " + std::to_string(round);
            Group group;
            cco_status status =
                Group::create(client, named(name.c_str(), rank.rank, 4, 60000), &group);
            if (status != CCO_OK) return status;
            Comm comm;
            status = Comm::create(group, {.signal_count = 4, .barrier_count = 1}, &comm);
            if (status != CCO_OK) return status;
            Window window;
            status = Window::create(group, "data", {.size_bytes = 1000}, &window);
            if (status != CCO_OK) return status;
            return group.barrier();
          })));
        }
      },
      ranks());
}

}  // namespace
}  // namespace cco::test
