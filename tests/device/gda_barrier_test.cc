// Barriers by GDA signals, over each provider, on two nodes of one or two ranks.
#include <array>

#include "tests/device/gda_node.h"

namespace cco::testing {
namespace {

using device::at;
using device::BlockCoop;
using device::Deadline;
using device::Gda;
using device::GdaBarrier;
using device::GdaTeam;
using device::kNoRank;
using device::ThreadCoop;
using device::WaitResult;
using device::WaitStatus;
using device::WarpCoop;
using device::Window;
using device::WorldBarrier;

class Barriers : public GdaTest {
 protected:
  static EmulatedTransports::Options options(uint32_t connection = CCO_GDA_CONNECT_FULL) {
    EmulatedTransports::Options options = GdaTest::options();
    options.gda_plan.connection = connection;
    options.gda_plan.rail_barrier_count = 2;
    options.gda_plan.world_barrier_count = 2;
    options.gda_plan.world_barrier_first = 1;
    return options;
  }
};

void expect(const WaitResult& result, WaitStatus status, uint32_t rank, const char* what) {
  EXPECT_EQ(static_cast<int>(result.status), static_cast<int>(status)) << what;
  EXPECT_EQ(result.rank, rank) << what;
}

/// Rounds of a barrier on all ranks; `make(coop, gda)` builds it anew for each, `team(rank)` names
/// the set it joins, of `size` ranks. After each round all of the set must have come.
template <typename C, typename Make, typename Team>
uint32_t play_rounds(EmulatedTransports& all, uint32_t threads, Make make, Team team,
                     uint32_t size) {
  constexpr uint32_t kRounds = 12;
  std::array<std::array<std::atomic<uint32_t>, kRounds>, 4> came{};
  std::atomic<uint32_t> wrong{0};
  all.node().run(1, threads, [&](uint32_t rank) {
    const device::DeviceComm comm = all.comm(rank);
    const Gda gda(comm, 0);
    const Deadline deadline = Deadline::after(comm, kLongNs);
    const C coop{};
    for (uint32_t round = 0; round < kRounds; ++round) {
      std::atomic<uint32_t>& count = came[team(rank)][round];
      if (coop.is_leader()) ++count;
      auto barrier = make(coop, gda);
      wrong += !has_arrived(barrier.sync(deadline));
      wrong += count != size;
      wrong += barrier.epoch() == 0;
    }
  });
  return wrong;
}

// Goal    nobody leaves a barrier before all of its team have come, round after round.
// Method  a count of arrivals per round and team, read after each round: rails, all that are
//         connected, and the world, by each kind of group.
TEST_P(Barriers, NobodyLeavesEarly) {
  const uint32_t per_node = ranks() / 2;
  const auto rail_of = [&](uint32_t rank) { return rank % per_node; };
  const auto one_team = [](uint32_t) { return 0u; };
  const auto rail = [](auto coop, const Gda& gda) {
    return GdaBarrier<decltype(coop)>(coop, gda, 0);
  };
  const auto connected = [](auto coop, const Gda& gda) {
    return GdaBarrier<decltype(coop)>(coop, gda, 1, GdaTeam::kConnected);
  };
  const auto world = [](auto coop, const Gda& gda) {
    return WorldBarrier<decltype(coop)>(coop, gda, 1);
  };
  EmulatedTransports all(options());
  EXPECT_EQ(play_rounds<ThreadCoop>(all, 1, rail, rail_of, 2), 0u);
  EXPECT_EQ(play_rounds<WarpCoop>(all, 3, rail, rail_of, 2), 0u);
  EXPECT_EQ(play_rounds<WarpCoop>(all, 3, connected, one_team, ranks()), 0u);
  EXPECT_EQ(play_rounds<BlockCoop>(all, 3, connected, one_team, ranks()), 0u);
  EXPECT_EQ(play_rounds<ThreadCoop>(all, 1, world, one_team, ranks()), 0u);
  EXPECT_EQ(play_rounds<BlockCoop>(all, 3, world, one_team, ranks()), 0u);

  EmulatedTransports rails(options(CCO_GDA_CONNECT_RAIL));
  EXPECT_EQ(play_rounds<WarpCoop>(rails, 3, rail, rail_of, 2), 0u);
  EXPECT_EQ(play_rounds<WarpCoop>(rails, 3, connected, rail_of, 2), 0u);
  EXPECT_EQ(play_rounds<WarpCoop>(rails, 3, world, one_team, ranks()), 0u);
}

// Goal    what ranks have put before a barrier is there after it, on the same context.
// Method  every rank puts to its partner and meets it; then reads what came.
TEST_P(Barriers, PutsArePublished) {
  EmulatedTransports all(options());
  std::atomic<uint32_t> wrong{0};
  run(all, 1, 3, [&](uint32_t rank, const Gda& gda, const Window& window, Deadline deadline) {
    const BlockCoop coop;
    for (uint64_t round = 1; round <= 10; ++round) {
      wrong += !has_arrived(
          gda.put_value<uint64_t>(coop, partner(rank), at(window, 8), round, {deadline}));
      GdaBarrier<BlockCoop> barrier(coop, gda, 0);
      wrong += !has_arrived(barrier.sync(deadline));
      wrong += *device::local_ptr<uint64_t>(window, 8) != round;
      wrong += !has_arrived(barrier.sync(deadline));  // Read; may be overwritten.
    }
  });
  EXPECT_EQ(wrong, 0u);
}

// Goal    a barrier that times out names the lowest rank that is missing, and the same round goes
//         on later, also in another kernel.
// Method  all ranks but one come, time out, and come again with the last. The time-out is what
//         threads that share cores may take until they have all come.
TEST_P(Barriers, TimeOutNamesWhoIsMissing) {
  EmulatedTransports all(options());
  const uint32_t last = ranks() - 1;
  std::atomic<uint32_t> wrong{0};
  const auto sync_all = [&](const Gda& gda, uint64_t patience_ns, WaitStatus status,
                            uint32_t missing, uint32_t rail_missing) {
    const WarpCoop coop;
    const auto check = [&](const WaitResult& result, uint32_t rank) {
      wrong += result.status != status || result.rank != rank;
    };
    GdaBarrier<WarpCoop> connected(coop, gda, 1, GdaTeam::kConnected);
    check(connected.sync(Deadline::after(gda.comm(), patience_ns)), missing);
    WorldBarrier<WarpCoop> world(coop, gda, 0);
    check(world.sync(Deadline::after(gda.comm(), patience_ns)), rail_missing);
  };
  for (int round = 0; round < 2; ++round) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      run(all, 1, 3, [&](uint32_t rank, const Gda& gda, const Window&, Deadline) {
        if (rank == last) return;
        // On the last rank's node it is the LSA stage that is not passed, elsewhere the rail.
        const uint32_t rail_missing = device::in_lsa_team(gda.comm(), last) ? last : partner(rank);
        sync_all(gda, 300'000'000, WaitStatus::kTimedOut, last, rail_missing);
      });
    }
    run(all, 1, 3, [&](uint32_t, const Gda& gda, const Window&, Deadline) {
      sync_all(gda, kLongNs, WaitStatus::kArrived, kNoRank, kNoRank);
      GdaBarrier<WarpCoop> connected(WarpCoop{}, gda, 1, GdaTeam::kConnected);
      wrong += connected.epoch() != static_cast<uint64_t>(round) + 1;
    });
  }
  EXPECT_EQ(wrong, 0u);
}

// Goal    an arrival that could not be told to all goes on where it stopped: nobody is told twice.
// Method  a queue to one peer that is full and not served; once it is, the round ends, and the next
//         rounds are not ahead.
TEST_P(Barriers, InterruptedArrivalGoesOn) {
  if (is_proxy()) return;  // One ring serves all peers.
  EmulatedTransports::Options small = options();
  small.gda_plan.queue_depth = 16;
  EmulatedTransports all(small);
  const uint32_t blocked = ranks() - 1;
  {
    const Deaf deaf(all, 0, blocked);
    run_on(all, 0, 3, [&](uint32_t, const Gda& gda, const Window& window, Deadline) {
      const WarpCoop coop;
      const auto soon = [&] { return Deadline::after(gda.comm(), 20'000'000); };
      while (has_arrived(gda.put_value<uint8_t>(coop, blocked, at(window, 0), 1, {soon()}))) {
      }
      for (int attempt = 0; attempt < 2; ++attempt) {
        GdaBarrier<WarpCoop> barrier(coop, gda, 0, GdaTeam::kConnected);
        expect(barrier.sync(soon()), WaitStatus::kTimedOut, blocked, "arrive");
      }
    });
  }
  auto& queue = queue_of(all, 0, blocked);
  const uint64_t rung = reinterpret_cast<cco_gda_queue_state*>(queue.state)->rung;
  if (provider() == "mlx5") device::impl::Mlx5::ring(queue, rung);
  if (provider() == "bnxt") device::impl::Bnxt::ring(queue, rung);
  if (provider() == "ionic") device::impl::Ionic::ring(queue, rung);
  const auto connected = [](auto coop, const Gda& gda) {
    return GdaBarrier<decltype(coop)>(coop, gda, 0, GdaTeam::kConnected);
  };
  std::atomic<uint32_t> wrong{0};
  run(all, 1, 3, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
    auto barrier = connected(WarpCoop{}, gda);  // Rank 0 has come to it already.
    wrong += !has_arrived(barrier.sync(deadline));
    wrong += barrier.epoch() != 1;
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(play_rounds<WarpCoop>(
                all, 3, connected, [](uint32_t) { return 0u; }, ranks()),
            0u);
}

// Goal    a lost peer ends a barrier and is named; indices out of range, ranks without GDA and
//         teams that are not connected are refused.
// Method  each of them.
TEST_P(Barriers, LostPeersAndRefusals) {
  EmulatedTransports all(options());
  run_on(all, 0, 3, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
    const WarpCoop coop;
    GdaBarrier<WarpCoop> beyond(coop, gda, 2);
    expect(beyond.sync(deadline), WaitStatus::kRefused, kNoRank, "rail");
    WorldBarrier<WarpCoop> world_beyond(coop, gda, 2);
    expect(world_beyond.sync(deadline), WaitStatus::kRefused, kNoRank, "world");
    device::DeviceComm without = gda.comm();
    without.gda = 0;
    const Gda none(without, 0);
    GdaBarrier<WarpCoop> no_gda(coop, none, 0);
    expect(no_gda.sync(deadline), WaitStatus::kRefused, kNoRank, "no GDA");
    if (device::thread_index() == 0) all.node().abort(CCO_ABORT_PEER_LOST, partner(0));
    GdaBarrier<WarpCoop> rail(coop, gda, 0);
    expect(rail.sync(deadline), WaitStatus::kPeerLost, partner(0), "rail");
    WorldBarrier<WarpCoop> world(coop, gda, 0);
    expect(world.sync(deadline), WaitStatus::kPeerLost, partner(0), "world");
  });
  if (is_proxy()) return;
  EmulatedTransports cut(options());
  queue_of(cut, 0, partner(0)).qpn = 0;
  run_on(cut, 0, 1, [&](uint32_t, const Gda& gda, const Window&, Deadline deadline) {
    GdaBarrier<ThreadCoop> rail(ThreadCoop{}, gda, 0);
    expect(rail.sync(deadline), WaitStatus::kRefused, partner(0), "not connected");
  });
}

INSTANTIATE_TEST_SUITE_P(, Barriers,
                         ::testing::Combine(::testing::Values("proxy", "mlx5", "bnxt", "ionic"),
                                            ::testing::Values(1u, 2u)),
                         name_of);

}  // namespace
}  // namespace cco::testing
