#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "emulated_node.h"
#include "module_launch.h"
#include "mori/cco/cco.hpp"

namespace cco::kernels {
const KernelModule& mori_kernel();
}

namespace {

using cco::device::HostLaunch;
using cco::testing::EmulatedNode;
using cco::testing::launch;
using mori::cco::ccoCoopThread;
using mori::cco::ccoDevComm;
using mori::cco::ccoLsaBarrierSession;
using mori::cco::ccoWindowDevice;
using mori::cco::ccoWindowTableNode;

ccoWindowDevice window_of(const EmulatedNode& node, uint32_t rank) {
  const cco_window_device native = node.window(rank);
  ccoWindowDevice window;
  std::memcpy(static_cast<void*>(&window), &native, sizeof window);
  return window;
}

// Goal    a kernel that addresses peers with winBase, stride4G, lsaRank and lsaSize moves the right
//         bytes to the right places.
// Method  four ranks; every chunk of every window is compared.
TEST(Mori, AddressArithmetic) {
  constexpr size_t kChunk = 777;
  EmulatedNode node({.ranks = 4});
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ccoDevComm comm = mori::cco::ccoDevCommFromNative(node.comm(rank));
    ccoWindowDevice window = window_of(node, rank);
    launch(cco::kernels::mori_kernel(), "store_to_peers", HostLaunch{2, 5, 0}, &comm, &window,
           kChunk);
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    for (size_t i = 0; i < 4 * kChunk; ++i) {
      ASSERT_EQ(node.data(rank)[i], static_cast<char>(i / kChunk * 31 + i % kChunk)) << i;
    }
    EXPECT_EQ(node.data(rank)[4 * kChunk], 0);
  }
}

// Goal    the LSA barrier session publishes every rank's stores, and its timed form returns 0.
// Method  three ranks of a larger world at once; each adds up what it received.
TEST(Mori, BarrierSession) {
  constexpr int kCount = 50;
  EmulatedNode node({.ranks = 3, .lsa_first = 6});
  std::vector<std::vector<unsigned>> out(3, std::vector<unsigned>(2, 99));
  std::vector<std::thread> streams;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    streams.emplace_back([&, rank] {
      ccoWindowDevice window = window_of(node, rank);
      launch(cco::kernels::mori_kernel(), "store_meet_sum", HostLaunch{1, 1, 0},
             mori::cco::ccoDevCommFromNative(node.comm(rank)), &window, kCount, out[rank].data());
    });
  }
  for (std::thread& stream : streams) stream.join();
  const unsigned expected = kCount * (6 + 7 + 8) + 3 * kCount * (kCount - 1) / 2;
  for (const auto& words : out) {
    EXPECT_EQ(words[0], expected);
    EXPECT_EQ(words[1], 0u);
  }
}

// Goal    a time-out returns 1 to every thread and can be waited out later by the same object.
// Method  one rank waits alone, then the other comes.
TEST(Mori, BarrierTimeOut) {
  EmulatedNode node({.ranks = 2});
  ccoDevComm first = mori::cco::ccoDevCommFromNative(node.comm(0));
  ccoDevComm second = mori::cco::ccoDevCommFromNative(node.comm(1));
  ccoCoopThread one;
  ccoLsaBarrierSession<ccoCoopThread> barrier(one, &first, ccoTeamLsa(first), first.lsaBarrier, 1);
  EXPECT_EQ(barrier.sync(one, 2000), 1);
  EXPECT_EQ(barrier.epoch, 0u);
  {
    ccoLsaBarrierSession<ccoCoopThread> other(one, &second, ccoTeamLsa(second), second.lsaBarrier,
                                              1);
    other.arrive(one);
  }
  EXPECT_EQ(barrier.wait(one, ~uint64_t{0}), 0);
  EXPECT_EQ(barrier.epoch, 1u);
}

// Goal    without a time-out a barrier still ends when the group is aborted.
// Method  abort while the peer is missing.
TEST(Mori, BarrierEndsOnAbort) {
  EmulatedNode node({.ranks = 2});
  node.abort(CCO_ABORT_PEER_LOST, 1);
  ccoDevComm comm = mori::cco::ccoDevCommFromNative(node.comm(0));
  ccoCoopThread one;
  ccoLsaBarrierSession<ccoCoopThread> barrier(one, &comm, ccoTeamLsa(comm), comm.lsaBarrier, 0);
  barrier.sync(one);
  EXPECT_EQ(barrier.epoch, 0u);
}

// Goal    team arithmetic over several nodes is MORI's.
// Method  12 ranks on 3 nodes, seen from rank 6 (node 1, LSA rank 2).
TEST(Mori, Teams) {
  ccoDevComm comm{};
  comm.worldSize = 12;
  comm.rank = 6;
  comm.lsaSize = 4;
  comm.lsaRank = 2;
  comm.myNodeStart = 4;
  EXPECT_EQ(ccoTeamRankToWorld(comm, ccoTeamWorld(comm), 11), 11);
  EXPECT_EQ(ccoTeamRankToWorld(comm, ccoTeamLsa(comm), 0), 4);
  EXPECT_EQ(ccoTeamCrossNode(comm).nRanks, 8);
  EXPECT_EQ(ccoTeamCrossNode(comm).rank, -1);
  EXPECT_EQ(ccoCrossNodeTeamRankToWorld(comm, 3), 3);
  EXPECT_EQ(ccoCrossNodeTeamRankToWorld(comm, 4), 8);
  EXPECT_EQ(ccoTeamRail(comm).nRanks, 2);
  EXPECT_EQ(ccoTeamRail(comm).stride, 4);
  EXPECT_EQ(ccoRailTeamRankToWorld(comm, 0), 2);
  EXPECT_EQ(ccoRailTeamRankToWorld(comm, 1), 10);
  EXPECT_EQ(ccoTeamRankToGdaRank(comm, ccoTeamWorld(comm), 9), 9);
  EXPECT_EQ(ccoTeamRankToGdaRank(comm, ccoTeamCrossNode(comm), 7), 11);
  EXPECT_EQ(ccoTeamRankToGdaRank(comm, ccoTeamRail(comm), 1), 10);
}

// Goal    findWindow() finds the window that holds an address, in any node of the list, or nothing.
// Method  two nodes; the first and last byte of a window, and the bytes around it.
TEST(Mori, FindWindow) {
  ccoWindowDevice window{};
  ccoWindowTableNode second{}, first{};
  first.next = &second;
  second.entries[31] = {0x1000, 0x100, &window};
  ccoDevComm comm{};
  comm.windowTable = &first;
  const auto find = [&](uintptr_t at) { return findWindow(&comm, reinterpret_cast<void*>(at)); };
  EXPECT_EQ(find(0x1000), &window);
  EXPECT_EQ(find(0x10ff), &window);
  EXPECT_EQ(find(0xfff), nullptr);
  EXPECT_EQ(find(0x1100), nullptr);
}

}  // namespace
