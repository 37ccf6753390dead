// Windows: sizes, places, contents, names, and what is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/support/node_test.h"

namespace cco::test {
namespace {

class WindowTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
};

// Goal    sizes and alignments that make no sense are refused, by name and number, and use nothing.
// Method  0, more than the slot, around 2^32 and 2^64, alignments that are no power of two.
TEST_F(WindowTest, SizesOutOfRange) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 1);
  const NodeLedger with_group = watch->now();
  Window window;
  EXPECT_TRUE(refused(Window::create(groups[0], "w", {.size_bytes = 0}, &window),
                      CCO_INVALID_ARGUMENT, {"size_bytes is 0"}));
  const uint64_t slot = uint64_t{4} << 30;
  for (const uint64_t size : {slot, slot + 1, uint64_t{1} << 63, UINT64_MAX - 255, UINT64_MAX}) {
    EXPECT_TRUE(refused(Window::create(groups[0], "w", {.size_bytes = size}, &window),
                        CCO_INVALID_ARGUMENT, {std::to_string(size), "slot"}));
  }
  for (const uint64_t alignment :
       {uint64_t{1}, uint64_t{128}, uint64_t{257}, uint64_t{1} << 31, UINT64_MAX}) {
    EXPECT_TRUE(refused(
        Window::create(groups[0], "w", {.size_bytes = 1, .alignment_bytes = alignment}, &window),
        CCO_INVALID_ARGUMENT, {"alignment", std::to_string(alignment)}));
  }
  const std::string long_name(128, 'n');
  EXPECT_TRUE(refused(Window::create(groups[0], long_name.c_str(), {.size_bytes = 1}, &window),
                      CCO_INVALID_ARGUMENT, {"128 bytes"}));
  EXPECT_TRUE(watch->settles_at(with_group));
}

// Goal    any size from 1 works, is aligned, and does not overlap another.
// Method  odd sizes around powers of two and the granularity, each written to its last byte; all
//         checked after all were written.
TEST_F(WindowTest, OddSizes) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 2);
  std::vector<std::vector<Window>> windows;
  const std::vector<uint64_t> sizes = {1,     255,     256,     257,     4095,    65535, 65536,
                                       65537, 2097275, 2267136, 4194303, 4194305, 7};
  for (size_t i = 0; i < sizes.size(); ++i) {
    windows.push_back(form_window(groups, nullptr, {.size_bytes = sizes[i]}));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      unsigned char* bytes = nullptr;
      ASSERT_TRUE(succeeded(windows[i][rank].get_address(rank, 0, &bytes)));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 256, 0u);
      std::memset(bytes, static_cast<int>(i * 2 + rank + 1), sizes[i]);
    }
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (const uint64_t at : {uint64_t{0}, sizes[i] / 2, sizes[i] - 1}) {
        unsigned char* byte = nullptr;
        ASSERT_TRUE(succeeded(windows[i][1 - rank].get_address(rank, at, &byte)));
        EXPECT_EQ(*byte, i * 2 + rank + 1) << "window of " << sizes[i] << " at " << at;
      }
      void* address = nullptr;
      EXPECT_TRUE(refused(windows[i][0].get_address(rank, sizes[i], &address), CCO_OUT_OF_RANGE,
                          {"offset " + std::to_string(sizes[i])}));
      EXPECT_EQ(address, nullptr);
    }
  }
  unsigned char* byte = nullptr;
  for (const uint64_t offset : {uint64_t{1} << 32, UINT64_MAX}) {
    EXPECT_TRUE(refused(windows[0][0].get_address(0, offset, &byte), CCO_OUT_OF_RANGE,
                        {std::to_string(offset)}));
  }
  EXPECT_TRUE(refused(windows[0][0].get_address(2, 0, &byte), CCO_OUT_OF_RANGE, {"LSA rank 2"}));
}

// Goal    ranks that disagree on size or alignment all learn it, and who; nothing is left of it.
// Method  sizes rising, falling, and one larger, and one alignment that differs.
TEST_F(WindowTest, RanksDisagree) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 3);
  const NodeLedger with_group = watch->now();
  const std::vector<std::vector<uint64_t>> patterns = {{1, 2, 3}, {3, 2, 1}, {8, 8, 9}};
  for (const std::vector<uint64_t>& sizes : patterns) {
    const int32_t first = sizes[0] == sizes[1] ? 2 : 1;
    for (const Outcome& result : on_threads(3, [&](uint32_t rank) {
           Window window;
           return Window::create(groups[rank], "w", {.size_bytes = sizes[rank] * 1024}, &window);
         })) {
      EXPECT_TRUE(refused(result, CCO_INVALID_ARGUMENT,
                          {"'w'", "rank " + std::to_string(first),
                           std::to_string(sizes[first] * 1024), "rank 0 for"}));
      EXPECT_EQ(result.rank, first);
    }
  }
  for (const Outcome& result : on_threads(3, [&](uint32_t rank) {
         Window window;
         return Window::create(groups[rank], nullptr,
                               {.size_bytes = 8, .alignment_bytes = rank == 2 ? 512u : 256u},
                               &window);
       })) {
    EXPECT_TRUE(refused(result, CCO_INVALID_ARGUMENT, {"rank 2", "alignment 512"}));
  }
  EXPECT_TRUE(watch->settles_at(with_group));
  form_window(groups, "w", {.size_bytes = 8});  // The group is none the worse.
}

// Goal    communicators that differ in what they hold are told apart, even at equal size.
// Method  counts that swap between ranks.
TEST_F(WindowTest, CommunicatorsDisagree) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 2);
  for (const Outcome& result : on_threads(2, [&](uint32_t rank) {
         Comm comm;
         return Comm::create(groups[rank], {.signal_count = 1 + rank, .barrier_count = 1}, &comm);
       })) {
    EXPECT_TRUE(refused(result, CCO_INVALID_ARGUMENT, {"rank 1"}));
  }
  Comm comm;
  EXPECT_TRUE(refused(Comm::create(groups[0], {.signal_count = 65537}, &comm), CCO_INVALID_ARGUMENT,
                      {"65537", "65536"}));
  EXPECT_TRUE(refused(Comm::create(groups[0], {.barrier_count = 4097}, &comm), CCO_INVALID_ARGUMENT,
                      {"4097", "4096"}));
}

// Goal    a window holds what an earlier one of its group left in its place, and else zero: so does
//         every window of another group, in its place as well.
// Method  fill a window, give it up, and look at the next there; at one beside it; and at another
//         group's, before and after the first group has ended.
TEST_F(WindowTest, ContentsOfANewWindow) {
  constexpr uint64_t kBytes = 1 << 20;
  const Client client = attach();
  // The value of all bytes; -1: they differ.
  const auto contents = [](const std::vector<Window>& windows, uint32_t rank) {
    unsigned char* bytes = nullptr;
    EXPECT_TRUE(succeeded(windows[1 - rank].get_address(rank, 0, &bytes)));
    return std::memcmp(bytes, bytes + 1, kBytes - 1) == 0 ? bytes[0] : -1;
  };
  std::vector<Group> groups = form_group(client, "job", 2);
  {
    const std::vector<Window> windows = form_window(groups, "first", {.size_bytes = kBytes});
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(contents(windows, rank), 0);
      unsigned char* bytes = nullptr;
      ASSERT_TRUE(succeeded(windows[rank].get_address(rank, 0, &bytes)));
      std::memset(bytes, 0xa5 + static_cast<int>(rank), kBytes);
    }
  }
  const std::vector<Window> second = form_window(groups, "second", {.size_bytes = kBytes});
  const std::vector<Window> beside = form_window(groups, "beside", {.size_bytes = kBytes});
  for (const char* name : {"meanwhile", "afterwards"}) {
    const std::vector<Group> others = form_group(client, name, 2);
    const std::vector<Window> window = form_window(others, "first", {.size_bytes = kBytes});
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(contents(window, rank), 0) << name;
      if (groups.empty()) continue;
      EXPECT_EQ(contents(second, rank), 0xa5 + static_cast<int>(rank));
      EXPECT_EQ(contents(beside, rank), 0);
    }
    groups.clear();
  }
}

// Goal    a destroyed window is refused everywhere; destroying it again does nothing, also not to
//         its successor in the same place.
// Method  make, destroy on both ranks, make another, destroy the first again, use the second.
TEST_F(WindowTest, AfterDestroy) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 2);
  cco_window* old[2] = {};
  const cco_window_options options{sizeof options, 0, 4096, 0, 0, 0, 0};
  ASSERT_TRUE(all_succeeded(on_threads(2, [&](uint32_t rank) {
    return cco_window_create(groups[rank].get(), "first", &options, &old[rank]);
  })));
  for (cco_window* window : old) cco_window_destroy(window);
  void* address = nullptr;
  EXPECT_TRUE(refused(cco_window_get_address(old[0], 0, 0, &address), CCO_INVALID_ARGUMENT,
                      {"window", "destroyed"}));
  const std::vector<Window> windows = form_window(groups, "second", {.size_bytes = 4096});
  for (cco_window* window : old) cco_window_destroy(window);
  EXPECT_EQ(watch->now().windows, 1u);
  EXPECT_TRUE(succeeded(windows[0].get_address(1, 0, &address)));
}

// Goal    two threads may make named windows in different orders on different ranks.
// Method  rank 0 makes x then y, rank 1 y then x, with a thread for each call; many rounds.
TEST_F(WindowTest, DifferentOrderFromTwoThreads) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 2);
  for (int round = 0; round < 20; ++round) {
    std::vector<Window> windows(4);
    EXPECT_TRUE(all_succeeded(on_threads(4, [&](uint32_t call) {
      const uint32_t rank = call / 2;
      const bool is_x = (call % 2 == 0) == (rank == 0);
      return Window::create(groups[rank], is_x ? "x" : "y",
                            {.size_bytes = is_x ? 100u : 200u, .timeout_ms = 20000},
                            &windows[call]);
    })));
  }
}

// Goal    names belong to a group, and are free again when every rank has destroyed the window.
// Method  the same name in two groups; again in one while one rank still has it, and after.
TEST_F(WindowTest, NamesBelongToTheGroup) {
  const Client client = attach();
  const std::vector<Group> one = form_group(client, "one", 2);
  const std::vector<Group> two = form_group(client, "two", 2);
  std::vector<Window> first = form_window(one, "w", {.size_bytes = 10});
  const std::vector<Window> other = form_window(two, "w", {.size_bytes = 20});
  first[0] = Window();
  Window again;
  EXPECT_TRUE(refused(Window::create(one[0], "w", {.size_bytes = 10}, &again), CCO_ALREADY_EXISTS,
                      {"'w'", "every rank"}));
  first[1] = Window();
  const std::vector<Window> second = form_window(one, "w", {.size_bytes = 30});
}

// Goal    many windows in one slab are many places: none shows another's bytes, also in another
//         process.
// Method  two processes, 64 windows of odd sizes in one slab, each filled with its own pattern by
//         rank 0 and read by rank 1, the last byte of the last one included.
TEST_F(WindowTest, ManyWindowsInOneSlab) {
  run_ranks(
      2,
      [](Rank& rank) {
        constexpr size_t kCount = 64;
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        std::vector<Window> windows(kCount);
        const auto size = [](size_t i) { return 1000 + 37 * i; };
        for (size_t i = 0; i < kCount; ++i) {
          ASSERT_TRUE(
              succeeded(Window::create(group, nullptr, {.size_bytes = size(i)}, &windows[i])));
          unsigned char* mine = nullptr;
          ASSERT_TRUE(succeeded(windows[i].get_address(rank.rank, 0, &mine)));
          std::memset(mine, static_cast<int>(1 + i + 64 * rank.rank), size(i));
        }
        cco_group_info info{};
        ASSERT_TRUE(succeeded(group.get_info(&info)));
        EXPECT_EQ(info.slab_count, 2u);  // The control region and one more.
        ASSERT_TRUE(succeeded(group.barrier()));
        const uint32_t peer = 1 - rank.rank;
        for (size_t i = 0; i < kCount; ++i) {
          unsigned char* theirs = nullptr;
          ASSERT_TRUE(succeeded(windows[i].get_address(peer, 0, &theirs)));
          const std::vector<unsigned char> expected(size(i),
                                                    static_cast<unsigned char>(1 + i + 64 * peer));
          EXPECT_EQ(std::memcmp(theirs, expected.data(), size(i)), 0) << "window " << i;
        }
        ASSERT_TRUE(succeeded(group.barrier()));
      },
      ranks());
}

// Goal    offsets are the same on every rank, whatever each rank did before.
// Method  ranks with different histories in other groups; the offset in the slot is compared.
TEST_F(WindowTest, OffsetsAreSymmetric) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 3);
  std::vector<std::vector<Group>> own;
  std::vector<std::vector<Window>> history;
  for (uint32_t i = 0; i < 3; ++i) {
    own.push_back(form_group(client, ("own" + std::to_string(i)).c_str(), 1));
    for (uint32_t k = 0; k <= i; ++k) {
      history.push_back(form_window(own[i], nullptr, {.size_bytes = 100000 * (k + 1)}));
    }
  }
  const std::vector<Window> windows = form_window(groups, "w", {.size_bytes = 777});
  std::set<uint64_t> offsets;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    cco_group_info info{};
    cco_window_device device{};
    ASSERT_TRUE(succeeded(groups[rank].get_info(&info)));
    ASSERT_TRUE(succeeded(windows[rank].get_device(&device)));
    offsets.insert(device.win_base - info.flat_base);
    EXPECT_EQ(uint64_t{device.stride_4g} << 32, info.slot_bytes);
    const auto* table = reinterpret_cast<const uint64_t*>(device.peer_bases);
    for (uint32_t peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(table[peer], device.win_base + peer * info.slot_bytes);
    }
  }
  EXPECT_EQ(offsets.size(), 1u);
}

// Goal    signals are zero when the communicator is there, also where others counted before, and a
//         signal sent at once is not lost.
// Method  make a communicator, raise all its signals everywhere, destroy it, make the next in the
//         same place; every rank adds to its peers as soon as it has it, and nothing is missing.
TEST_F(WindowTest, SignalsStartAtZero) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 2);
  for (int round = 0; round < 20; ++round) {
    std::vector<Comm> comms(2);
    ASSERT_TRUE(all_succeeded(on_threads(2, [&](uint32_t rank) {
      const cco_status status =
          Comm::create(groups[rank], {.signal_count = 16, .barrier_count = 1}, &comms[rank]);
      if (status != CCO_OK) return status;
      cco_device_comm device{};
      EXPECT_TRUE(succeeded(comms[rank].get_device(&device)));
      const auto* bases = reinterpret_cast<const uint64_t*>(device.control.peer_bases);
      for (uint32_t signal = 0; signal < 16; ++signal) {
        __atomic_fetch_add(
            reinterpret_cast<uint64_t*>(bases[1 - rank] + device.signal_offset) + signal, 1,
            __ATOMIC_RELEASE);
      }
      return groups[rank].barrier();
    })));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      cco_device_comm device{};
      ASSERT_TRUE(succeeded(comms[rank].get_device(&device)));
      const auto* bases = reinterpret_cast<const uint64_t*>(device.control.peer_bases);
      const auto* mine = reinterpret_cast<uint64_t*>(bases[rank] + device.signal_offset);
      for (uint32_t signal = 0; signal < 16; ++signal) EXPECT_EQ(mine[signal], 1u);
    }
  }
}

// Goal    a heap that is full says what was asked and what is there, takes nothing, and serves
//         again once something is freed.
// Method  a GPU of 16 MiB; windows until it is full; an exact fit after one is destroyed.
TEST_F(WindowTest, MemoryExhausted) {
  watch.reset();
  start_with("host { device_count: 1 bytes_per_device: 16777216 } slab_bytes: 1048576");
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 1);
  const NodeLedger with_group = watch->now();
  Window window;
  EXPECT_TRUE(refused(Window::create(groups[0], "w", {.size_bytes = 16 << 20}, &window),
                      CCO_RESOURCE_EXHAUSTED, {"16777216", "HOST-0", "free", "15728640"}));
  EXPECT_TRUE(watch->settles_at(with_group));
  std::vector<Window> windows;
  Outcome last;
  while (windows.size() < 100) {
    last = outcome(Window::create(groups[0], nullptr, {.size_bytes = 1 << 20}, &window));
    if (last.status != CCO_OK) break;
    windows.push_back(std::move(window));
    window = Window();
  }
  EXPECT_TRUE(refused(last, CCO_RESOURCE_EXHAUSTED, {"1048576", "HOST-0", "free 0"}));
  EXPECT_EQ(windows.size(), 15u);
  windows.pop_back();
  EXPECT_TRUE(succeeded(Window::create(groups[0], nullptr, {.size_bytes = 1 << 20}, &window)));
  Group more;
  EXPECT_TRUE(refused(Group::create(client, {.rank = 0, .size = 1, .name = "more"}, &more),
                      CCO_RESOURCE_EXHAUSTED, {"HOST-0"}));
}

// Goal    a full control region says so, with its numbers and what may be raised.
// Method  communicators with the most signals until it is full.
TEST_F(WindowTest, ControlRegionExhausted) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 1);
  std::vector<Comm> comms;
  Outcome last;
  while (comms.size() < 10) {
    Comm comm;
    last = outcome(Comm::create(groups[0], {.signal_count = 65536}, &comm));
    if (last.status != CCO_OK) break;
    comms.push_back(std::move(comm));
  }
  EXPECT_TRUE(refused(last, CCO_RESOURCE_EXHAUSTED,
                      {"control region", "largest free range", "of 1048576", "control_bytes"}));
  EXPECT_EQ(comms.size(), 1u);
}

}  // namespace
}  // namespace cco::test
