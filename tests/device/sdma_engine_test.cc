#include "device/transport/sdma_engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cco/device/impl/sdma_packets.h"

namespace cco {
namespace {

using device::impl::SdmaUnit;

/// A queue filled by hand, and an engine behind it that may touch `memory` alone.
class Bench {
 public:
  explicit Bench(uint32_t packets = CCO_SDMA_PACKETS_GFX9, uint64_t seed = 0)
      : packets(packets),
        port_(open_host_port()),
        engine(
            packets, port_.get(),
            {{ring.data(), kRingBytes, &read_index, &write_index, &doorbell, "queue 0"},
             {other_ring.data(), kRingBytes, &other_read, &other_write, &other_write, "queue 1"}},
            [this](uint64_t address, uint64_t bytes) {
              const uint64_t offset = address - reinterpret_cast<uint64_t>(memory);
              return offset <= sizeof memory && bytes <= sizeof memory - offset;
            },
            SdmaSchedule{seed}) {}

  void put(const SdmaUnit& unit) { put(unit.dwords, 8); }
  void put(const uint32_t* dwords, size_t count) {
    for (size_t i = 0; i < count; ++i, write_index += 4) {
      ring[write_index % kRingBytes / 4] = dwords[i];
    }
  }
  void ring_doorbell() { doorbell = write_index; }
  void run() {
    for (int i = 0; i < 10000 && engine.step(); ++i) {
    }
  }
  /// Rings, runs, and returns why the engine stopped.
  std::string fault() {
    ring_doorbell();
    run();
    return std::string(engine.status().message());
  }
  uint64_t address(size_t index) const { return reinterpret_cast<uint64_t>(&memory[index]); }
  SdmaUnit copy(size_t to, size_t from, uint64_t bytes) const {
    return device::impl::sdma_copy(packets, address(to), address(from), bytes);
  }
  SdmaUnit add(size_t word, uint64_t delta) const {
    return device::impl::sdma_add(packets, address(word), delta);
  }
  SdmaUnit fence(size_t word, uint64_t value) const {
    return device::impl::sdma_fence(packets, address(word), value);
  }

  static constexpr uint64_t kRingBytes = 1024;
  const uint32_t packets;
  uint64_t memory[64] = {};
  std::vector<uint32_t> ring = std::vector<uint32_t>(kRingBytes / 4);
  std::vector<uint32_t> other_ring = std::vector<uint32_t>(kRingBytes / 4);
  alignas(64) uint64_t read_index = 0;
  uint64_t write_index = 0, doorbell = 0, other_read = 0, other_write = 0;

 private:
  const std::unique_ptr<MemoryPort> port_;

 public:
  SdmaEngine engine;
};

// Goal    packets do what they say, in order, and only those that were rung.
// Method  one of each kind; memory and read index before and after the doorbell.
TEST(SdmaEngine, PerformsWhatWasRung) {
  Bench bench;
  for (size_t i = 0; i < 8; ++i) bench.memory[i] = i + 100;
  bench.put(bench.copy(8, 0, 64));
  bench.put(bench.add(20, 5));
  bench.put(bench.add(20, ~uint64_t{0}));
  bench.put(bench.fence(21, 0x1234567890abcdef));
  bench.put(device::impl::sdma_nop());
  EXPECT_FALSE(bench.engine.step());
  EXPECT_EQ(bench.memory[8], 0u);
  bench.ring_doorbell();
  bench.run();
  EXPECT_EQ(std::memcmp(bench.memory, bench.memory + 8, 64), 0);
  EXPECT_EQ(bench.memory[16], 0u);
  EXPECT_EQ(bench.memory[20], 4u);
  EXPECT_EQ(bench.memory[21], 0x1234567890abcdefu);
  EXPECT_EQ(bench.memory[22], 0u);
  EXPECT_EQ(bench.read_index, 5 * 32u);
  EXPECT_TRUE(bench.engine.status().ok());
}

// Goal    a packet that is not sound, or names memory that it may not, stops its queue before it
//         has any effect, and is reported with its place; the other queue goes on.
// Method  one fault at a time behind a sound packet.
TEST(SdmaEngine, StopsAtWhatIsNotSound) {
  struct Case {
    const char* expected;
    void (*put)(Bench&);
  };
  const Case cases[] = {
      {"operation 2.0",
       [](Bench& bench) {
         SdmaUnit unit{};
         unit.dwords[0] = 2;
         bench.put(unit);
       }},
      {"COPY from",
       [](Bench& bench) {
         bench.put(device::impl::sdma_copy(bench.packets, bench.address(0), 0x1000, 8));
       }},
      {"COPY to", [](Bench& bench) { bench.put(bench.copy(63, 0, 9)); }},
      {"ATOMIC on", [](Bench& bench) { bench.put(bench.add(64, 1)); }},
      {"FENCE to", [](Bench& bench) { bench.put(bench.fence(64, 1)); }},
      {"COPY packet with header",
       [](Bench& bench) {
         bench.put(device::impl::sdma_copy(CCO_SDMA_PACKETS_GFX1250, bench.address(1),
                                           bench.address(0), 8));
       }},
      {"ATOMIC packet with 8 dwords, of which 3 lie",
       [](Bench& bench) { bench.put(bench.add(1, 1).dwords, 3); }},
      {"doorbell", [](Bench& bench) { bench.write_index += 2 * Bench::kRingBytes; }},
      {"doorbell", [](Bench& bench) { bench.write_index -= 32; }},
      {"doorbell", [](Bench& bench) { bench.write_index += 2; }},
  };
  for (const Case& fault : cases) {
    Bench bench;
    bench.put(bench.add(0, 1));
    bench.ring_doorbell();
    bench.run();
    fault.put(bench);
    const std::string message = bench.fault();
    EXPECT_NE(message.find(fault.expected), std::string::npos) << message;
    EXPECT_EQ(message.find("SDMA queue 0 stopped at 0x20: "), 0u) << message;
    EXPECT_EQ(bench.read_index, CCO_SDMA_STOPPED);
    EXPECT_EQ(bench.memory[0], 1u);
    for (size_t i = 1; i < 64; ++i) EXPECT_EQ(bench.memory[i], 0u) << fault.expected;
    std::memcpy(bench.other_ring.data(), bench.add(7, 3).dwords, 32);
    bench.other_write = 32;
    bench.run();
    EXPECT_EQ(bench.memory[7], 3u) << fault.expected;
  }
}

// Goal    a packet that lies across the end of the ring is refused, and one that ends there is not.
// Method  NOPs of one dword up to 4 dwords before the end.
TEST(SdmaEngine, NoPacketStraddlesTheEnd) {
  const uint32_t nop = 0;
  Bench bench;
  for (uint64_t i = 0; i < Bench::kRingBytes / 4 - 4; ++i) bench.put(&nop, 1);
  bench.ring_doorbell();
  bench.run();
  EXPECT_EQ(bench.read_index, Bench::kRingBytes - 16);
  bench.put(bench.fence(1, 9).dwords, 4);
  EXPECT_EQ(bench.fault(), "");
  EXPECT_EQ(bench.memory[1], 9u);
  for (uint64_t i = 0; i < Bench::kRingBytes / 4 - 4; ++i) bench.put(&nop, 1);
  bench.ring_doorbell();
  bench.run();
  bench.put(bench.add(1, 9));
  EXPECT_NE(bench.fault().find("ATOMIC packet with 8 dwords, of which 4 lie"), std::string::npos);
  EXPECT_EQ(bench.memory[1], 9u);
}

// Goal    the doorbell is believed only for what the write index covers.
// Method  a doorbell ahead of the write index.
TEST(SdmaEngine, DoorbellAndWriteIndexAgree) {
  Bench bench;
  bench.put(bench.add(0, 1));
  bench.doorbell = bench.write_index;
  bench.write_index = 0;
  bench.run();
  EXPECT_NE(bench.engine.status().message().find("doorbell 0x20 with read index 0"),
            std::string::npos);
  EXPECT_EQ(bench.memory[0], 0u);
}

// Goal    the dawdling schedule of gfx1250's form really overlaps: an ATOMIC that no NOP separates
//         from a copy may come first, one behind a NOP never does. (Else the tests that use it
//         would show nothing.)
// Method  the signal takes the place of what is copied, over many seeds.
TEST(SdmaEngine, CopiesOverlapUpToTheNextNop) {
  uint32_t early = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool with_nop : {false, true}) {
      Bench bench(CCO_SDMA_PACKETS_GFX1250, seed);
      // The atomic raises the source: what the copy brings says which was first.
      bench.put(bench.copy(1, 0, 8).dwords, with_nop ? 8 : 7);
      bench.put(bench.add(0, 1));
      EXPECT_EQ(bench.fault(), "");
      EXPECT_EQ(bench.memory[0], 1u);
      if (with_nop) {
        EXPECT_EQ(bench.memory[1], 0u);
      }
      early += with_nop ? 0 : bench.memory[1];
    }
  }
  EXPECT_EQ(early, 20u);
}

}  // namespace
}  // namespace cco
