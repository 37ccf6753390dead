#include "cco/device/tdm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "device/kernels/tdm_bench.h"
#include "emulated_node.h"
#include "module_launch.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;
using testing::kLongNs;

constexpr char kCanary = '\x5a';
constexpr uint32_t kStageBytes = 128;  // The smallest: short ranges go round the ring.

/// What a launch would give a block.
class SharedMemory {
 public:
  explicit SharedMemory(uint32_t bytes) : words_((bytes + 15) / 16), bytes_(bytes) {}
  void* get() { return words_.data(); }
  uint32_t bytes() const { return bytes_; }

 private:
  std::vector<Vector16> words_;
  uint32_t bytes_;
};

std::vector<char> numbered(size_t size, int salt = 0) {
  std::vector<char> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251 + salt);
  return bytes;
}

/// Whether `buffer` holds exactly `bytes` of `source` at `offset` and canaries up to `size`.
bool holds(const char* buffer, uint64_t size, uint64_t offset, const char* source, uint64_t bytes) {
  for (uint64_t i = 0; i < size; ++i) {
    const bool inside = i >= offset && i - offset < bytes;
    if (buffer[i] != (inside ? source[i - offset] : kCanary)) return false;
  }
  return true;
}

/// A mover and a number of stages.
template <uint32_t kStages, template <uint32_t> class Mover>
struct Ring {
  template <typename C>
  using On = Tdm<C, kStages, Mover<kStages>>;
};
template <typename R>
class Rings : public ::testing::Test {};
using EveryRing =
    ::testing::Types<Ring<1, impl::TdmLate>, Ring<2, impl::TdmLate>, Ring<3, impl::TdmLate>,
                     Ring<4, impl::TdmLate>, Ring<5, impl::TdmLate>, Ring<6, impl::TdmLate>,
                     Ring<3, impl::TdmLoop>>;
TYPED_TEST_SUITE(Rings, EveryRing);

// Goal    put and get move exactly the bytes asked for at every length, through every depth of
//         ring, whether or not source and destination are aligned alike.
// Method  lengths 0..200 and some that go round the ring several times, odd offsets, one object for
//         all of them; canaries around the destination.
TYPED_TEST(Rings, EveryLength) {
  using Pipeline = typename TypeParam::template On<ThreadCoop>;
  constexpr uint64_t kHalf = 8192;
  EmulatedNode node({.ranks = 2, .window_bytes = 2 * kHalf});
  const Window mine = node.window(0);
  const std::vector<char> source = numbered(kHalf);
  const Deadline deadline = Deadline::after(node.comm(0), kLongNs);
  SharedMemory shared(Pipeline::shared_bytes(kStageBytes));
  Pipeline tdm(ThreadCoop{}, shared.get(), shared.bytes());
  ASSERT_EQ(tdm.stage_bytes(), kStageBytes);
  std::vector<uint64_t> lengths(201);
  std::iota(lengths.begin(), lengths.end(), 0);
  lengths.insert(lengths.end(), {255, 256, 257, 768, 1023, 4096, 5003});
  const uint64_t places[][2] = {{0, 0}, {3, 19}, {16, 32}, {15, 31}, {1, 0}, {8, 7}};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    std::memcpy(node.data(rank) + kHalf, source.data(), kHalf);
  }
  for (const uint64_t bytes : lengths) {
    for (const auto& [from, to] : places) {
      const Place there = at(mine, kHalf + from);
      for (int form = 0; form < 4; ++form) {
        const uint64_t seen = bytes + 128;
        std::vector<char> raw(seen, kCanary);
        const uint32_t reader = form < 2 ? 1 : 0;
        std::memset(node.data(reader), kCanary, seen);
        WaitResult result{};
        if (form == 0) result = tdm.put(1, at(mine, to), source.data() + from, bytes, deadline);
        if (form == 1) result = tdm.put(1, at(mine, to), there, bytes, deadline);
        if (form == 2) result = tdm.get(1, there, at(mine, to), bytes, deadline);
        if (form == 3) result = tdm.get(1, there, raw.data() + to, bytes, deadline);
        ASSERT_EQ(result.status, WaitStatus::kArrived);
        const char* const got = form == 3 ? raw.data() : node.data(reader);
        ASSERT_TRUE(holds(got, seen, to, source.data() + from, bytes))
            << "form " << form << ", " << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

template <typename C>
class Groups : public ::testing::Test {};
using EveryGroup = ::testing::Types<ThreadCoop, WarpCoop, BlockCoop>;
TYPED_TEST_SUITE(Groups, EveryGroup);

/// The shares of the litmus below: one per group, of which there are `kBlocks`, or twice as many
/// warps.
template <typename C>
TdmShare share_of() {
  const uint32_t per_block = std::is_same_v<C, BlockCoop> ? 1 : 2;
  return TdmShare{block_index() * per_block + (per_block == 1 ? 0 : thread_index() / warp_size()),
                  block_count() * per_block};
}

// Goal    what groups of several blocks put in shares is visible to every thread that waited for
//         all of their signals; likewise what they get after a signal.
// Method  two ranks put blocks of plain bytes to each other, each group signals its own share, and
//         every group of the receiver waits for all and reads all of it. Then each gets from the
//         peer what that has stored by ordinary stores and published, and reads its share. The
//         sanitizer and the late mover see what is not ordered.
TYPED_TEST(Groups, PutSignalWaitGet) {
  constexpr uint64_t kBytes = 1500, kRounds = 6;
  constexpr uint32_t kBlocks = 2, kThreads = 40;
  using Pipeline = Tdm<TypeParam, 3>;
  constexpr uint32_t kShared = Pipeline::shared_bytes(kStageBytes);
  EmulatedNode node({.ranks = 2, .window_bytes = 1 << 14});
  std::vector<SharedMemory> shared(2 * kBlocks * 2, SharedMemory(kShared));
  const std::vector<char> salts = numbered(kBytes + 2 * kRounds);  // Round and rank shift it.
  std::atomic<uint32_t> wrong{0};
  node.run(kBlocks, kThreads, [&](uint32_t rank) {
    const TypeParam coop{};
    const uint32_t lane = std::is_same_v<TypeParam, BlockCoop> ? 0 : thread_index() % warp_size();
    if (std::is_same_v<TypeParam, ThreadCoop> && lane != 0) return;  // One group per warp.
    const TdmShare share = share_of<TypeParam>();
    SharedMemory& memory = shared[rank * kBlocks * 2 + share.index];
    const DeviceComm comm = node.comm(rank);
    const Window window = node.window(rank);
    const Deadline deadline = Deadline::after(comm, kLongNs);
    const uint32_t peer = 1 - rank;
    Pipeline tdm(coop, memory.get(), memory.bytes());
    const auto expect = [&](WaitResult result) { wrong += result.status != WaitStatus::kArrived; };
    for (uint64_t round = 1; round <= kRounds; ++round) {
      expect(tdm.put(peer, at(window, 0), &salts[2 * round - 2 + rank], kBytes, deadline, share));
      signal_add(coop, comm, peer, 3, 1);
      expect(wait_at_least(coop, comm, 3, round * share.count, deadline));
      const char* const received = local_ptr<char>(window);
      for (uint64_t i = 0; i < kBytes; ++i) wrong += received[i] != salts[2 * round - 2 + peer + i];
      // Both ranks: publish by ordinary stores, fetch each other's.
      char* const mine = local_ptr<char>(window, 4096 + share.index * 512);
      for (uint64_t i = coop.thread_rank(); i < 512; i += coop.size()) {
        mine[i] = static_cast<char>(round * 3 + rank + i);
      }
      signal_add(coop, comm, peer, 4, 1);
      expect(wait_at_least(coop, comm, 4, round * share.count, deadline));
      const uint64_t fetch_at = 8192 + share.index * 512;
      expect(
          tdm.get(peer, at(window, 4096 + share.index * 512), at(window, fetch_at), 512, deadline));
      for (uint64_t i = 0; i < 512; ++i) {
        wrong += local_ptr<char>(window, fetch_at)[i] != static_cast<char>(round * 3 + peer + i);
      }
      signal_add(coop, comm, peer, 5, 1);  // Read; may be overwritten.
      expect(wait_at_least(coop, comm, 5, round * share.count, deadline));
    }
  });
  EXPECT_EQ(wrong, 0u);
}

/// Rows of `tile` from `from`, one behind the other.
std::vector<char> packed(const char* from, const TdmTile& tile) {
  std::vector<char> rows;
  for (uint32_t row = 0; row < tile.rows; ++row) {
    const char* const begin = from + row * tile.stride_bytes;
    rows.insert(rows.end(), begin, begin + tile.row_bytes);
  }
  return rows;
}

template <typename Mover>
class Movers : public ::testing::Test {};
using EveryMover = ::testing::Types<impl::TdmLate<4>, impl::TdmLoop<4>>;
TYPED_TEST_SUITE(Movers, EveryMover);

// Goal    a tile comes from a peer's window packed into shared memory, changed there by the group's
//         threads goes to another place, and nothing beside its rows is touched.
// Method  tiles of several shapes by a block; compare all of both windows.
TYPED_TEST(Movers, TilesThereAndBack) {
  using Pipeline = Tdm<BlockCoop, 4, TypeParam>;
  constexpr uint32_t kShared = Pipeline::shared_bytes(4096);
  constexpr uint64_t kFrom = 64, kTo = 16 * 1024;
  const std::vector<char> image = numbered(32 * 1024);
  for (const TdmTile& tile :
       {TdmTile{1, 16, 0}, TdmTile{2, 16, 16}, TdmTile{5, 48, 80}, TdmTile{16, 256, 1024},
        TdmTile{3, 1024, 1040}, TdmTile{0, 64, 64}, TdmTile{4, 0, 64}}) {
    EmulatedNode node({.ranks = 2, .window_bytes = image.size()});
    std::memcpy(node.data(1), image.data(), image.size());
    SharedMemory shared(kShared);
    std::atomic<uint32_t> wrong{0};
    EmulatedNode::run_on(0, 1, 5, [&](uint32_t) {
      const BlockCoop block;
      const Window window = node.window(0);
      const DeviceComm comm = node.comm(0);
      Pipeline tdm(block, shared.get(), shared.bytes());
      tdm.load_async(tdm.stage(2), 1, at(window, kFrom), tile);
      wrong +=
          tdm.template wait_loads<0>(Deadline::after(comm, kLongNs)).status != WaitStatus::kArrived;
      char* const held = static_cast<char*>(tdm.stage(2));
      const std::vector<char> rows = packed(&image[kFrom], tile);
      wrong += !std::equal(rows.begin(), rows.end(), held);
      block.sync();
      for (uint32_t i = block.thread_rank(); i < tile.rows * tile.row_bytes; i += block.size()) {
        held[i] = static_cast<char>(held[i] + 1);
      }
      tdm.store_async(1, at(window, kTo), held, tile);
      tdm.finish_stores();
    });
    EXPECT_EQ(wrong, 0u);
    std::vector<char> expected = image;
    for (uint32_t row = 0; row < tile.rows; ++row) {
      for (uint32_t i = 0; i < tile.row_bytes; ++i) {
        expected[kTo + row * tile.stride_bytes + i] =
            static_cast<char>(image[kFrom + row * tile.stride_bytes + i] + 1);
      }
    }
    EXPECT_EQ(std::memcmp(node.data(1), expected.data(), image.size()), 0)
        << tile.rows << " rows of " << tile.row_bytes;
  }
}

// Goal    wait<N> waits for the oldest copies: what they loaded is there, what they stored from may
//         be overwritten, and finish_stores() makes what was stored visible.
// Method  four loads one after the other, each checked as the count goes down; then each is stored
//         back and its shared memory overwritten as soon as that is allowed.
TYPED_TEST(Movers, WaitsForTheOldest) {
  using Pipeline = Tdm<ThreadCoop, 4, TypeParam>;
  EmulatedNode node({.ranks = 2, .window_bytes = 4096});
  const std::vector<char> source = numbered(512);
  std::memcpy(node.data(1), source.data(), source.size());
  const Window window = node.window(0);
  const Deadline deadline = Deadline::after(node.comm(0), kLongNs);
  SharedMemory shared(Pipeline::shared_bytes(kStageBytes));
  Pipeline tdm(ThreadCoop{}, shared.get(), shared.bytes());
  for (int again = 0; again < 3; ++again) {
    const auto arrived = [&](uint32_t stage) {
      return std::memcmp(tdm.stage(stage), &source[stage * 128], 128) == 0;
    };
    for (uint32_t i = 0; i < 4; ++i) tdm.load_async(tdm.stage(i), 1, at(window, i * 128), 128);
    ASSERT_EQ(tdm.template wait<3>(deadline).status, WaitStatus::kArrived);
    EXPECT_TRUE(arrived(0));
    ASSERT_EQ(tdm.template wait_loads<1>(deadline).status, WaitStatus::kArrived);
    EXPECT_TRUE(arrived(1) && arrived(2));
    ASSERT_EQ(tdm.template wait_loads<0>(deadline).status, WaitStatus::kArrived);
    EXPECT_TRUE(arrived(3));
    const uint64_t to = 1024;
    for (uint32_t i = 0; i < 4; ++i)
      tdm.store_async(1, at(window, to + i * 128), tdm.stage(i), 128);
    tdm.template wait_stores<2>();
    std::memset(tdm.stage(0), kCanary, 256);
    tdm.template wait_stores<0>();
    std::memset(tdm.stage(2), kCanary, 256);
    tdm.finish_stores();
    EXPECT_EQ(std::memcmp(node.data(1) + to, source.data(), 512), 0);
    std::memset(node.data(1) + to, 0, 512);
  }
}

// Goal    the host's mover shows what a kernel forgets: a load that was not waited for, shared
//         memory overwritten too early, stores that were not finished.
// Method  forget each once.
TEST(LateMover, ShowsWhatIsForgotten) {
  EmulatedNode node({.ranks = 2, .window_bytes = 4096});
  const std::vector<char> source = numbered(256);
  std::memcpy(node.data(1), source.data(), source.size());
  const Window window = node.window(0);
  SharedMemory shared(Tdm<ThreadCoop, 2>::shared_bytes(kStageBytes));
  {
    Tdm<ThreadCoop, 2> tdm(ThreadCoop{}, shared.get(), shared.bytes());
    tdm.load_async(tdm.stage(0), 1, at(window, 0), 128);
    EXPECT_NE(std::memcmp(tdm.stage(0), source.data(), 128), 0);
    std::memcpy(tdm.stage(1), source.data(), 128);
    tdm.store_async(1, at(window, 1024), tdm.stage(1), 128);
    std::memset(tdm.stage(1), kCanary, 128);
    tdm.wait_stores<0>();
    EXPECT_EQ(node.data(1)[1024], 0);
    tdm.finish_stores();
    EXPECT_EQ(node.data(1)[1024], kCanary);
    std::memcpy(tdm.stage(1), source.data(), 128);
    tdm.store_async(1, at(window, 2048), tdm.stage(1), 128);
  }
  EXPECT_EQ(std::memcmp(node.data(1) + 2048, source.data(), 128), 0);  // Begun is begun.
}

/// A mover whose loads stay away until they are let go.
template <uint32_t kSlots>
class Stuck : public impl::TdmLate<kSlots> {
 public:
  static inline std::atomic<bool> let_go{false};
  bool load_arrived(uint32_t slot, uint32_t phase, uint32_t newer_loads) {
    return let_go && impl::TdmLate<kSlots>::load_arrived(slot, phase, newer_loads);
  }
};

/// A put by a block through a mover that is stuck, and once more when it is not: every thread's
/// first and second result.
std::vector<WaitResult> put_twice(const EmulatedNode& node, const char* source, uint64_t bytes,
                                  uint64_t deadline_ns) {
  using Pipeline = Tdm<BlockCoop, 3, Stuck<3>>;
  constexpr uint32_t kThreads = 6;
  SharedMemory shared(Pipeline::shared_bytes(kStageBytes));
  std::vector<WaitResult> results(2 * kThreads);
  EmulatedNode::run_on(0, 1, kThreads, [&](uint32_t) {
    const BlockCoop block;
    const DeviceComm comm = node.comm(0);
    const Window window = node.window(0);
    if (block.is_leader()) Stuck<3>::let_go = false;
    Pipeline tdm(block, shared.get(), shared.bytes());
    WaitResult* const mine = &results[2 * thread_index()];
    mine[0] = tdm.put(1, at(window, 0), source, bytes, Deadline::after(comm, deadline_ns));
    if (block.is_leader()) Stuck<3>::let_go = true;
    mine[1] = tdm.put(1, at(window, 0), source, bytes, Deadline::after(comm, kLongNs));
  });
  return results;
}

// Goal    a put whose loads stay away ends at its deadline, not before, alike for all threads, and
//         may be made again.
// Method  a mover that is stuck; then let it go and compare.
TEST(Deadlines, PutTimesOutAndMayBeRepeated) {
  EmulatedNode node({.ranks = 2, .window_bytes = 8192});
  const std::vector<char> source = numbered(4000);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<WaitResult> results = put_twice(node, source.data(), 4000, 20'000'000);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
  for (size_t i = 0; i < results.size(); i += 2) {
    EXPECT_EQ(results[i].status, WaitStatus::kTimedOut);
    EXPECT_EQ(results[i].rank, kNoRank);
    EXPECT_EQ(results[i + 1].status, WaitStatus::kArrived);
  }
  EXPECT_EQ(std::memcmp(node.data(1), source.data(), source.size()), 0);
}

// Goal    a lost peer ends a put that has no deadline, and is named.
// Method  set the abort word while the mover is stuck.
TEST(Deadlines, LostPeerEndsAPut) {
  EmulatedNode node({.ranks = 2, .window_bytes = 8192, .lsa_first = 4});
  const std::vector<char> source = numbered(4000);
  std::thread daemon([&] { node.abort(CCO_ABORT_PEER_LOST, 5); });
  const std::vector<WaitResult> results = put_twice(node, source.data(), 4000, ~uint64_t{0});
  daemon.join();
  for (size_t i = 0; i < results.size(); i += 2) {
    EXPECT_EQ(results[i].status, WaitStatus::kPeerLost);
    EXPECT_EQ(results[i].rank, 5u);
  }
}

// Goal    in checked builds a wrong range, rank, alignment or number of loads stops the kernel and
//         says which number.
// Method  one call per mistake, in a child each.
TEST(TdmDeathTest, WrongCallsStop) {
  EmulatedNode node({.ranks = 2, .window_bytes = 4096});
  const Window good = node.window(0);
  const Deadline deadline = Deadline::after(node.comm(0), kLongNs);
  SharedMemory shared(Tdm<ThreadCoop, 2>::shared_bytes(kStageBytes));
  Tdm<ThreadCoop, 2> tdm(ThreadCoop{}, shared.get(), shared.bytes());
  char* const stage = static_cast<char*>(tdm.stage(0));
  EXPECT_DEATH(tdm.load_async(stage, 2, at(good, 0), 16), "LSA rank out of range: 2, limit 2");
  EXPECT_DEATH(tdm.load_async(stage, 1, at(good, 4096), 16),
               "bytes from that offset.*: 16, limit 0");
  EXPECT_DEATH(tdm.load_async(stage, 1, at(good, 0), TdmTile{3, 16, 2048}),
               "bytes from that offset.*: 4112, limit 4096");
  EXPECT_DEATH(tdm.load_async(stage + 8, 1, at(good, 0), 16), "shared memory not aligned");
  EXPECT_DEATH(tdm.load_async(stage, 1, at(good, 8), 16), "window not aligned");
  EXPECT_DEATH(tdm.store_async(1, at(good, 0), stage, 24), "length not aligned, bytes: 24");
  EXPECT_DEATH(tdm.store_async(1, at(good, 0), stage, TdmTile{2, 16, 24}), "stride not aligned");
  EXPECT_DEATH(tdm.put(1, at(good, 4000), stage, 97, deadline), "bytes from that offset.*: 97");
  EXPECT_DEATH(tdm.get(1, at(good, 4097), stage, 0, deadline), "offset outside the window");
  EXPECT_DEATH(tdm.put(1, at(good, 0), stage, 16, deadline, TdmShare{2, 2}), "share out of range");
  EXPECT_DEATH((Tdm<ThreadCoop, 2>(ThreadCoop{}, shared.get(), 255)), "too little shared memory");
  EXPECT_DEATH((Tdm<ThreadCoop, 2>(ThreadCoop{}, stage + 4, 4096)), "for TDM not aligned");
  const auto load_three = [&] {
    for (int i = 0; i < 3; ++i) tdm.load_async(stage, 1, at(good, 0), 16);
  };
  EXPECT_DEATH(load_three(), "as many are outstanding as may be: 2, limit 2");
}

// Goal    the kernels that are timed copy what they claim to, a share per block.
// Method  sizes that do not divide by blocks or stages; compare.
TEST(TdmBench, CopiesAreComplete) {
  const uint32_t shared_bytes = kernels::tdm_shared_bytes(256);
  for (const uint64_t bytes : {0, 16, 4096, 100000}) {
    EmulatedNode node({.ranks = 2, .window_bytes = 1 << 18});
    constexpr uint64_t kFrom = 1 << 17;
    const std::vector<char> source = numbered(bytes + 1);
    std::memcpy(node.data(0) + kFrom, source.data(), bytes);
    const HostLaunch shape{3, 5, shared_bytes};
    std::vector<uint64_t> results(3, 1);
    testing::launch(kernels::tdm_bench(), "tdm_put", shape, node.comm(0), node.window(0), 1u,
                    uint64_t{0}, kFrom, bytes, shared_bytes, kLongNs, results.data());
    EXPECT_EQ(results, std::vector<uint64_t>(3, 0));
    EXPECT_EQ(std::memcmp(node.data(1), source.data(), bytes), 0) << bytes;
    results.assign(3, 1);
    testing::launch(kernels::tdm_bench(), "tdm_get", shape, node.comm(0), node.window(0), 1u,
                    uint64_t{0}, uint64_t{0}, bytes, shared_bytes, kLongNs, results.data());
    EXPECT_EQ(results, std::vector<uint64_t>(3, 0));
    EXPECT_EQ(std::memcmp(node.data(0), source.data(), bytes), 0) << bytes;
    std::vector<char> bare(bytes + 1);
    testing::launch(kernels::tdm_bench(), "bulk_copy_bare", shape, static_cast<void*>(bare.data()),
                    static_cast<const void*>(node.data(0)), bytes, 256u);
    EXPECT_EQ(std::memcmp(bare.data(), node.data(0), bytes), 0) << bytes;
  }
}

}  // namespace
}  // namespace cco::device
