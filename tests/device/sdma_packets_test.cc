#include "cco/device/impl/sdma_packets.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/transport/sdma_decoder.h"
#include "tests/support/golden.h"

namespace cco {
namespace {

using device::impl::SdmaUnit;
using Kind = SdmaPacket::Kind;
using testing::GoldenVector;

std::vector<uint32_t> dwords_of(const std::vector<uint8_t>& bytes) {
  std::vector<uint32_t> dwords(bytes.size() / 4);
  std::memcpy(dwords.data(), bytes.data(), dwords.size() * 4);
  return dwords;
}

/// The first `count` dwords of the units.
std::vector<uint32_t> joined(std::initializer_list<SdmaUnit> units, size_t count) {
  std::vector<uint32_t> dwords;
  for (const SdmaUnit& unit : units) {
    dwords.insert(dwords.end(), std::begin(unit.dwords), std::end(unit.dwords));
  }
  dwords.resize(count);
  return dwords;
}

/// What our writer makes of a vector's parameters; empty if it writes no such packet.
std::vector<uint32_t> encode(uint32_t packets, const GoldenVector& vector) {
  const auto copy = [&] {
    return device::impl::sdma_copy(packets, vector.number("dst"), vector.number("src"),
                                   vector.number("bytes"));
  };
  if (vector.layout == "sdma.copy") {
    return joined({copy()}, vector.has("nop_dwords") ? 8 : 7);
  }
  if (vector.layout == "sdma.put_signal") {
    return joined({copy(), device::impl::sdma_add(packets, vector.number("signal"), 1)}, 16);
  }
  if (vector.layout == "sdma.atomic") {
    return joined(
        {device::impl::sdma_add(packets, vector.number("address"), vector.number("data"))}, 8);
  }
  if (vector.layout == "sdma.fence") {
    return joined(
        {device::impl::sdma_fence(packets, vector.number("address"), vector.number("data"))}, 4);
  }
  return {};
}

void expect_decoded(uint32_t packets, const GoldenVector& vector,
                    const std::vector<uint32_t>& dwords) {
  const absl::StatusOr<SdmaPacket> packet = decode_sdma(packets, dwords);
  ASSERT_TRUE(packet.ok()) << vector.name << ": " << packet.status();
  if (vector.layout == "sdma.copy" || vector.layout == "sdma.put_signal") {
    EXPECT_EQ(packet->kind, Kind::kCopy) << vector.name;
    EXPECT_EQ(packet->destination, vector.number("dst")) << vector.name;
    EXPECT_EQ(packet->source, vector.number("src")) << vector.name;
    EXPECT_EQ(packet->value, vector.number("bytes")) << vector.name;
    EXPECT_EQ(packet->dwords, 7u) << vector.name;
  } else if (vector.layout == "sdma.nop") {
    EXPECT_EQ(packet->kind, Kind::kNop) << vector.name;
    EXPECT_EQ(packet->dwords, 1 + vector.number("skip_dwords")) << vector.name;
  } else {
    EXPECT_EQ(packet->kind, vector.layout == "sdma.atomic" ? Kind::kAdd : Kind::kFence);
    EXPECT_EQ(packet->destination, vector.number("address")) << vector.name;
    EXPECT_EQ(packet->value, vector.number("data")) << vector.name;
    EXPECT_EQ(packet->dwords, dwords.size()) << vector.name;
  }
}

// Goal    our packets are, byte for byte, those of independent encoders, and our decoder reads
//         them.
// Method  every golden vector: those that we write are encoded and decoded; all others are refused
//         by the decoder, by a message.
TEST(SdmaPackets, AgreeWithGoldenVectors) {
  uint32_t written = 0, refused = 0;
  const auto check = [&](uint32_t packets, const std::string& file) {
    for (const GoldenVector& vector : testing::read_golden(file)) {
      const std::vector<uint32_t> dwords = dwords_of(vector.bytes);
      const bool is_nop = vector.layout == "sdma.nop";
      const std::vector<uint32_t> ours = encode(packets, vector);
      if (ours.empty() && !is_nop) {
        EXPECT_FALSE(decode_sdma(packets, dwords).ok()) << vector.name;
        ++refused;
        continue;
      }
      if (!is_nop) {
        EXPECT_EQ(ours, dwords) << vector.name;
      }
      expect_decoded(packets, vector, dwords);
      ++written;
    }
  };
  check(CCO_SDMA_PACKETS_GFX9, "sdma_gfx9.txt");
  check(CCO_SDMA_PACKETS_GFX1250, "sdma_gfx1250.txt");
  EXPECT_EQ(written, 13u);
  EXPECT_EQ(refused, 10u);
}

// Goal    gfx1250's fence is the one that gfx10 and later take, with system scope added.
// Method  the vector of gfx10, and the scope's bits.
TEST(SdmaPackets, FenceOfGfx1250AddsTheScope) {
  const std::vector<GoldenVector> vectors = testing::read_golden("sdma_gfx10_up.txt");
  ASSERT_EQ(vectors.size(), 1u);
  std::vector<uint32_t> ours = encode(CCO_SDMA_PACKETS_GFX1250, vectors[0]);
  expect_decoded(CCO_SDMA_PACKETS_GFX1250, vectors[0], ours);
  EXPECT_EQ(ours[0] >> 24 & 3, 3u);
  ours[0] &= ~(3u << 24);
  EXPECT_EQ(ours, dwords_of(vectors[0].bytes));
}

// Goal    a fence unit is two packets that write the halves of a word, the low one first; a filler
//         is one NOP of a whole unit.
// Method  decode unit and remainder.
TEST(SdmaPackets, UnitsHoldWholePackets) {
  for (const uint32_t packets : {CCO_SDMA_PACKETS_GFX9, CCO_SDMA_PACKETS_GFX1250}) {
    const SdmaUnit fence = device::impl::sdma_fence(packets, 0x7000, 0x1122334455667788);
    const auto low = decode_sdma(packets, fence.dwords);
    const auto high = decode_sdma(packets, absl::MakeSpan(fence.dwords).subspan(4));
    ASSERT_TRUE(low.ok() && high.ok());
    EXPECT_EQ(low->destination, 0x7000u);
    EXPECT_EQ(low->value, 0x55667788u);
    EXPECT_EQ(high->destination, 0x7004u);
    EXPECT_EQ(high->value, 0x11223344u);
    const SdmaUnit nop = device::impl::sdma_nop();
    EXPECT_EQ(decode_sdma(packets, nop.dwords)->dwords, 8u);
  }
}

// Goal    a packet with any bit wrong that a real engine would act on otherwise is refused: of the
//         other generation's form, cut off by the end of the ring, with reserved bits set.
// Method  flip every bit of the fixed fields of each packet; shorten each by a dword.
TEST(SdmaPackets, StrictAboutEveryFixedBit) {
  struct Case {
    SdmaUnit unit;
    uint32_t length;
    std::vector<uint32_t> fixed_dwords;
  };
  for (const uint32_t packets : {CCO_SDMA_PACKETS_GFX9, CCO_SDMA_PACKETS_GFX1250}) {
    const Case cases[] = {{device::impl::sdma_copy(packets, 0x1000, 0x2000, 64), 7, {0, 2}},
                          {device::impl::sdma_add(packets, 0x1000, 1), 8, {0, 5, 6, 7}},
                          {device::impl::sdma_fence(packets, 0x1000, 1), 4, {0}}};
    for (const Case& original : cases) {
      const auto kind = decode_sdma(packets, original.unit.dwords)->kind;
      for (const uint32_t dword : original.fixed_dwords) {
        for (uint32_t bit = 0; bit < 32; ++bit) {
          SdmaUnit unit = original.unit;
          unit.dwords[dword] ^= 1u << bit;
          const auto packet = decode_sdma(packets, unit.dwords);
          EXPECT_TRUE(!packet.ok() || packet->kind != kind) << dword << "." << bit;
        }
      }
      EXPECT_FALSE(
          decode_sdma(packets, absl::MakeConstSpan(original.unit.dwords, original.length - 1))
              .ok());
      const uint32_t other = CCO_SDMA_PACKETS_GFX9 + CCO_SDMA_PACKETS_GFX1250 - packets;
      EXPECT_FALSE(decode_sdma(other, original.unit.dwords).ok());
    }
  }
  EXPECT_FALSE(decode_sdma(CCO_SDMA_PACKETS_GFX9, {}).ok());
  const SdmaUnit odd_add = device::impl::sdma_add(CCO_SDMA_PACKETS_GFX9, 0x1004, 1);
  EXPECT_FALSE(decode_sdma(CCO_SDMA_PACKETS_GFX9, odd_add.dwords).ok());
  const SdmaUnit odd_fence = device::impl::sdma_fence(CCO_SDMA_PACKETS_GFX9, 0x1002, 1);
  EXPECT_FALSE(decode_sdma(CCO_SDMA_PACKETS_GFX9, odd_fence.dwords).ok());
  const SdmaUnit long_copy = device::impl::sdma_copy(CCO_SDMA_PACKETS_GFX9, 0x1000, 0x2000,
                                                     device::impl::kSdmaLargestCopy + 1);
  EXPECT_FALSE(decode_sdma(CCO_SDMA_PACKETS_GFX9, long_copy.dwords).ok());
}

}  // namespace
}  // namespace cco
