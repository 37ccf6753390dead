#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "emulated_node.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;

constexpr uint64_t kMargin = 32;  // Canaries on both sides of what a copy may touch.
constexpr char kCanary = '\x5a';

/// One member of a group that runs its members one after the other.
struct OneOf {
  uint32_t rank;
  uint32_t count;
  uint32_t thread_rank() const { return rank; }
  uint32_t size() const { return count; }
};

struct Interleaved {
  static void copy(OneOf one, void* to, const void* from, uint64_t bytes) {
    impl::copy_interleaved(one, to, from, bytes);
  }
};
struct Shares {
  static void copy(OneOf one, void* to, const void* from, uint64_t bytes) {
    impl::copy_shares(one, to, from, bytes);
  }
};

std::vector<char> numbered(size_t size) {
  std::vector<char> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

/// Whether `buffer` holds exactly `bytes` of `source` at `offset` and canaries elsewhere.
bool holds(const std::vector<char>& buffer, uint64_t offset, const char* source, uint64_t bytes) {
  static const std::vector<char> canaries(1 << 16, kCanary);
  const char* const data = buffer.data();
  return std::memcmp(data, canaries.data(), offset) == 0 &&
         std::memcmp(data + offset, source, bytes) == 0 &&
         std::memcmp(data + offset + bytes, canaries.data(), buffer.size() - offset - bytes) == 0;
}

template <typename Way>
class CopyLoop : public ::testing::Test {};
using Ways = ::testing::Types<Interleaved, Shares>;
TYPED_TEST_SUITE(CopyLoop, Ways);

// Goal    both copy loops move exactly the bytes asked for, at every alignment and length.
// Method  all alignments 0..16 of both sides, lengths 0..200 and some larger, groups of several
//         sizes whose members run in turn; canaries around the destination.
TYPED_TEST(CopyLoop, EveryAlignmentAndLength) {
  std::vector<uint64_t> lengths(201);
  std::iota(lengths.begin(), lengths.end(), 0);
  lengths.insert(lengths.end(), {1023, 4096, 5000});
  const std::vector<char> source = numbered(6000);
  for (const uint64_t length : lengths) {
    std::vector<char> destination(length + 16 + 2 * kMargin);
    for (uint64_t from = 0; from <= 16; ++from) {
      for (uint64_t to = 0; to <= 16; ++to) {
        const uint32_t size = 1 + (length + from * 3 + to) % 5 * 3;
        std::memset(destination.data(), kCanary, destination.size());
        for (uint32_t rank = 0; rank < size; ++rank) {
          TypeParam::copy(OneOf{rank, size}, destination.data() + kMargin + to,
                          source.data() + from, length);
        }
        ASSERT_TRUE(holds(destination, kMargin + to, source.data() + from, length))
            << "length " << length << " from " << from << " to " << to << " group of " << size;
      }
    }
  }
}

template <typename C>
class PutGet : public ::testing::Test {};
using Groups = ::testing::Types<ThreadCoop, WarpCoop, BlockCoop>;
TYPED_TEST_SUITE(PutGet, Groups);

constexpr uint64_t kSourceAt = 1 << 16;

/// What one case moves, and where.
struct Move {
  uint64_t from, to, bytes;
};
const Move kMoves[] = {{0, 0, 0},   {0, 0, 1},     {3, 5, 17},      {16, 32, 4096},
                       {1, 0, 200}, {8, 24, 1000}, {15, 15, 30001}, {0, 16, 1 << 15}};

// Goal    put and get, from raw memory and from a window, move exactly the right bytes between
//         ranks.
// Method  each form in a launch of its own, by the first group of a block; canaries in the window.
TYPED_TEST(PutGet, EveryForm) {
  for (const bool by_table : {false, true}) {
    EmulatedNode node({.ranks = 3, .window_bytes = 1 << 18, .by_table = by_table});
    const std::vector<char> source = numbered(1 << 16);
    const Window mine = node.window(1);
    for (const Move& move : kMoves) {
      for (int form = 0; form < 4; ++form) {
        const uint32_t reader = form < 2 ? 2 : 1;  // The rank whose window the bytes come to.
        std::memset(node.data(reader), kCanary, kSourceAt);
        std::memcpy(node.data(form < 2 ? 1 : 2) + kSourceAt, source.data(), source.size());
        std::vector<char> raw(1 << 16, kCanary);
        const char* const expected = source.data() + move.from;
        EmulatedNode::run_on(1, 1, 48, [&](uint32_t) {
          const TypeParam coop{};
          if (thread_index() != coop.thread_rank()) return;  // Only the block's first group.
          const Place from = at(mine, kSourceAt + move.from);
          if (form == 0) put(coop, 2, at(mine, move.to), expected, move.bytes);
          if (form == 1) put(coop, 2, at(mine, move.to), from, move.bytes);
          if (form == 2) get(coop, 2, from, at(mine, move.to), move.bytes);
          if (form == 3) get(coop, 2, from, raw.data() + move.to, move.bytes);
        });
        const std::vector<char> got =
            form == 3 ? raw : std::vector<char>(node.data(reader), node.data(reader) + kSourceAt);
        ASSERT_TRUE(holds(got, move.to, expected, move.bytes))
            << "form " << form << ", " << move.bytes << " bytes from " << move.from << " to "
            << move.to;
      }
    }
  }
}

// Goal    put_value() stores one value at a peer.
// Method  two widths next to each other.
TEST(PutValue, StoresOneValue) {
  EmulatedNode node({});
  put_value<uint64_t>(1, at(node.window(0), 8), 0x1122334455667788);
  put_value<uint32_t>(1, at(node.window(0), 16), 7);
  const auto* const words = reinterpret_cast<uint64_t*>(node.data(1));
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], 0x1122334455667788u);
  EXPECT_EQ(words[2], 7u);
}

// Goal    in checked builds a wrong range, rank or descriptor stops the kernel and says which
//         number.
// Method  one call per mistake, in a child each.
TEST(CopyDeathTest, WrongCallsStop) {
  EmulatedNode node({.ranks = 2, .window_bytes = 4096});
  const Window good = node.window(0);
  std::vector<char> raw(64);
  char* const byte = raw.data();
  const ThreadCoop one;
  EXPECT_DEATH(put(one, 1, at(good, 4096), byte, 1), "bytes from that offset.*: 1, limit 0");
  EXPECT_DEATH(put(one, 1, at(good, 4097), byte, 0), "offset outside the window: 4097, limit 4096");
  EXPECT_DEATH(put(one, 1, at(good, 8), byte, ~uint64_t{0}), "bytes from that offset");
  EXPECT_DEATH(get(one, 1, at(good, ~uint64_t{0}), byte, 2), "offset outside the window");
  EXPECT_DEATH(get(one, 2, at(good, 0), byte, 1), "LSA rank out of range: 2, limit 2");
  EXPECT_DEATH(put_value<uint64_t>(1, at(good, 4089), 0), "bytes from that offset.*: 8, limit 7");
  Window stale = good;
  stale.generation = 0;
  EXPECT_DEATH(local_ptr(stale), "never registered");
  Window foreign = good;
  foreign.abi_version = 99;
  EXPECT_DEATH(local_ptr(foreign),
               "another ABI version: 99, limit " + std::to_string(CCO_ABI_VERSION));
  put(one, 1, at(good, 4096), byte, 0);  // The end itself is no mistake.
}

}  // namespace
}  // namespace cco::device
