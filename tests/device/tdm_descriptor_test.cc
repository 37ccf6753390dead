#include "cco/device/impl/tdm_descriptor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/golden.h"

namespace cco::device::impl {
namespace {

using testing::GoldenVector;

template <typename Group>
std::vector<uint8_t> bytes_of(const Group& group) {
  std::vector<uint8_t> bytes(sizeof(group.dword));
  std::memcpy(bytes.data(), group.dword, bytes.size());
  return bytes;
}

TdmShape shape_from(const GoldenVector& vector) {
  const auto word = [&](const char* key) { return static_cast<uint32_t>(vector.number(key, 0)); };
  return TdmShape{word("element_log2"),
                  {word("dim0"), word("dim1")},
                  {word("tile0"), word("tile1"), word("tile2")},
                  {vector.number("stride0", 0), vector.number("stride1", 0)},
                  word("pad") != 0,
                  word("pad_interval"),
                  word("pad_amount")};
}

// Goal    descriptors are the hardware's, bit by bit, also where fields cross dwords.
// Method  every descriptor among the golden vectors; the others are encodings of instructions.
TEST(TdmDescriptor, MatchesTheGoldenVectors) {
  int compared = 0;
  for (const GoldenVector& vector : testing::read_golden("tdm_gfx1250.txt")) {
    if (vector.layout == "tdm.group0") {
      EXPECT_EQ(bytes_of(encode_tdm_group0(vector.number("count") != 0,
                                           static_cast<uint32_t>(vector.number("lds")),
                                           vector.number("global"))),
                vector.bytes)
          << vector.name;
    } else if (vector.layout == "tdm.group1") {
      EXPECT_EQ(bytes_of(encode_tdm_group1(shape_from(vector))), vector.bytes) << vector.name;
    } else {
      continue;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

/// Bits first..first+count of a group.
template <typename Group>
uint64_t field(const Group& group, uint32_t first, uint32_t count) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < count; ++i) {
    value |= uint64_t{group.dword[(first + i) / 32] >> (first + i) % 32 & 1} << i;
  }
  return value;
}

// Goal    a tile becomes a tensor that ends where the tile ends, in 4-byte elements; one row has
//         one dimension; the largest sizes fit their fields.
// Method  read the fields back at their places in the documented table.
TEST(TdmDescriptor, SaysWhatTheTileSays) {
  for (const TdmTile& tile : {TdmTile{1, 16, 0}, TdmTile{1, kTdmMaxRowBytes, 0}, TdmTile{2, 32, 48},
                              TdmTile{65535, kTdmMaxRowBytes, uint64_t{1} << 48}}) {
    const TdmGroup1 group = encode_tdm_group1(shape_of(tile));
    const bool flat = tile.rows == 1;
    EXPECT_EQ(field(group, 0, 16), 0u) << "not multicast";
    EXPECT_EQ(4u, 1u << field(group, 16, 2)) << "element";
    EXPECT_EQ(field(group, 18, 30), 0u) << "no barrier, no padding";
    EXPECT_EQ(4 * field(group, 48, 32), tile.row_bytes);
    EXPECT_EQ(4 * field(group, 112, 16), tile.row_bytes);
    EXPECT_EQ(field(group, 80, 32), flat ? 0 : tile.rows);
    EXPECT_EQ(field(group, 128, 16), flat ? 0 : tile.rows);
    EXPECT_EQ(field(group, 144, 16), 0u) << "no third dimension";
    EXPECT_EQ(4 * field(group, 160, 48), flat ? 0 : tile.stride_bytes);
    EXPECT_EQ(field(group, 208, 48), 0u);
  }
}

// Goal    addresses and the type of a transfer are where they belong; what is not enabled is off.
// Method  read the fields back.
TEST(TdmDescriptor, SaysWhere) {
  const uint64_t highest = (uint64_t{1} << 57) - 16;
  for (const bool enabled : {false, true}) {
    const TdmGroup0 group = encode_tdm_group0(enabled, 0x4fff0, highest);
    EXPECT_EQ(field(group, 0, 2), enabled ? 1u : 0u);
    EXPECT_EQ(field(group, 2, 30), 0u);
    EXPECT_EQ(field(group, 32, 32), 0x4fff0u);
    EXPECT_EQ(field(group, 64, 57), highest);
    EXPECT_EQ(field(group, 121, 5), 0u);
    EXPECT_EQ(field(group, 126, 2), 2u);
  }
}

}  // namespace
}  // namespace cco::device::impl
