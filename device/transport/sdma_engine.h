// A copy engine in software: reads rings of packets as AMD's do, and performs them.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "device/transport/memory_port.h"
#include "device/transport/sdma_decoder.h"

namespace cco {

/// One ring and its index words, at addresses of this CPU, in memory that kernels reach.
struct SdmaRing {
  const uint32_t* dwords = nullptr;
  uint64_t ring_bytes = 0;  ///< A power of two.
  uint64_t* read_index = nullptr;
  const uint64_t* write_index = nullptr;
  const uint64_t* doorbell = nullptr;
  std::string name;   ///< For messages: "queue 1 to LSA rank 2".
  uint32_t peer = 0;  ///< The same rank in the world.
};

/// What real engines may do and a plain one does not, chosen at random: packets in small portions,
/// queues in any order, the read index published late, and, in gfx1250's form, copies that are
/// performed in any order up to the next NOP.
struct SdmaSchedule {
  uint64_t seed = 0;  ///< 0: none of that.
};

/// Not thread safe, but for status(). A queue with a packet that is not sound stops for good, and
/// says so in its read index, where a real one hangs; the packet has no effect. The others go on.
class SdmaEngine {
 public:
  /// `may_touch`: whether packets may name a range.
  using MayTouch = std::function<bool(uint64_t address, uint64_t bytes)>;

  /// `packets`: CCO_SDMA_PACKETS_*. `port` outlives the engine.
  SdmaEngine(uint32_t packets, MemoryPort* port, std::vector<SdmaRing> rings, MayTouch may_touch,
             SdmaSchedule schedule = {});

  /// Performs what was rung, a bounded number of packets; returns whether there was anything to do.
  bool step();

  /// OK, or why the first queue that stopped did.
  absl::Status status() const;

 private:
  struct Queue {
    SdmaRing ring;
    uint64_t read = 0;       ///< Consumed.
    uint64_t published = 0;  ///< In read_index.
    bool is_stopped = false;
    std::vector<SdmaPacket> overlapping;  ///< Copies begun and not yet performed.
  };

  bool serve(Queue& queue);
  absl::Status check_doorbell(const Queue& queue, uint64_t write) const;
  absl::Status take_packet(Queue& queue, uint64_t write);
  absl::Status perform(Queue& queue, const SdmaPacket& packet);
  absl::Status check_range(const char* what, uint64_t address, uint64_t bytes) const;
  absl::Status store_half(uint64_t address, uint64_t value);
  absl::Status end_copies(Queue& queue);
  void publish(Queue& queue);
  void stop(Queue& queue, const absl::Status& why);
  bool is_random() const { return schedule_.seed != 0; }
  bool chance() { return is_random() && random_() % 2 == 0; }

  const uint32_t packets_;
  MemoryPort* const port_;
  std::vector<Queue> queues_;
  const MayTouch may_touch_;
  const SdmaSchedule schedule_;
  std::mt19937_64 random_;
  mutable std::mutex mutex_;
  absl::Status status_;  // Guarded by mutex_.
};

}  // namespace cco
