// Two ranks, the software NIC of the first, driven step by step, and a producer that writes raw
// queues: the tests' own reading of the formats, apart from what kernels use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/transport/soft_nic.h"

namespace cco::testing {

/// Adds up what a MemoryPort is asked for, and can be told to fail.
class RecordingPort final : public MemoryPort {
 public:
  struct Call {
    char kind;  ///< 'c'opy, 'w'rite, 'a'dd, 's'wap.
    uint64_t destination;
    uint64_t bytes;
    bool operator==(const Call& other) const {
      return kind == other.kind && destination == other.destination && bytes == other.bytes;
    }
  };

  RecordingPort();
  absl::Status copy(uint64_t destination, uint64_t source, uint64_t bytes) override;
  absl::Status read(absl::Span<uint8_t> into, uint64_t source) override;
  absl::Status write(uint64_t destination, absl::Span<const uint8_t> from) override;
  absl::StatusOr<uint64_t> fetch_add(uint64_t address, uint64_t delta) override;
  absl::StatusOr<uint64_t> compare_swap(uint64_t address, uint64_t expected,
                                        uint64_t desired) override;

  std::vector<Call> calls;
  absl::Status failure;  ///< What every call returns unless it is OK.

 private:
  absl::Status record(char kind, uint64_t destination, uint64_t bytes);
  std::unique_ptr<MemoryPort> host_;
};

class NicRig {
 public:
  struct Options {
    std::string format;  ///< "mlx5", "bnxt", "ionic".
    uint32_t operations = 16;
    uint32_t queue_count = 1;
    NicSchedule schedule = {};
    bool rings_last_entry = false;  ///< mlx5's other form of doorbell.
    uint32_t first_psn = 0;         ///< bnxt.
  };
  static constexpr uint64_t kWindowBytes = 65536;
  static constexpr uint64_t kWindow = 5;   ///< Generation; both ranks have it.
  static constexpr uint64_t kSignals = 6;  ///< Both ranks, a page each.
  static constexpr uint64_t kOwnOnly = 7;  ///< The peer's is not on this node.
  static constexpr uint32_t kRank = 0, kPeer = 1;

  explicit NicRig(const Options& options);
  NicRig(const NicRig&) = delete;

  NicOperation write(uint64_t local_offset, uint64_t remote_offset, uint64_t bytes) const;
  NicOperation read(uint64_t local_offset, uint64_t remote_offset, uint64_t bytes) const;
  NicOperation inline_write(uint64_t remote_offset, const std::vector<uint8_t>& data) const;
  /// On the peer's signals; the result goes to this rank's.
  NicOperation add(uint64_t remote_offset, uint64_t delta, uint64_t local_offset = 0) const;
  NicOperation nothing() const;  ///< A NOP, or a write of no bytes where there is none.

  /// Writes an entry; returns the number of units it takes.
  uint32_t post(const NicOperation& operation, uint32_t queue = 0);
  /// A byte of the entry that was posted last.
  uint8_t& byte(uint32_t at, uint32_t queue = 0);
  /// bnxt's entry beside it.
  uint8_t& msn_byte(uint32_t at, uint32_t queue = 0);
  void ring(uint32_t queue = 0);
  void set_doorbell(uint64_t value, uint32_t queue = 0);
  uint64_t doorbell_value(uint32_t queue = 0) const;
  void set_doorbell_record(uint32_t next, uint32_t queue = 0);
  /// Posts, rings, and steps until the NIC is idle.
  void run(const NicOperation& operation, uint32_t queue = 0);
  /// How many steps it took.
  uint32_t step_until_idle();

  struct Completion {
    uint64_t units = 0;  ///< Completed so far, counted as the producer counts.
    uint32_t syndrome = 0;
  };
  Completion look(uint32_t queue = 0) const;
  uint64_t posted_units(uint32_t queue = 0) const { return queues_[queue].next_units; }

  uint8_t* data(uint32_t rank) { return reinterpret_cast<uint8_t*>(data_[rank].data()); }
  uint64_t& signal(uint32_t rank, uint32_t index) { return signals_[rank][index]; }
  WindowRegistry& windows() { return windows_; }
  RecordingPort& port() { return port_; }
  SoftNic& nic() { return *nic_; }
  const NicFormat& format() const { return format_; }

 private:
  struct Queue {
    NicQueue nic;
    std::vector<uint64_t> sq, cq, msn;
    std::vector<uint32_t> record;
    uint64_t doorbell = 0;
    uint64_t next_units = 0;
    uint64_t last_units = 0;
    uint64_t operations = 0;
    uint32_t psn = 0;
  };

  std::vector<uint8_t> encode(const NicOperation& operation, const Queue& queue) const;
  void make_queue(uint32_t index);

  const Options options_;
  const NicFormat& format_;
  std::vector<uint64_t> data_[2], signals_[2];
  WindowRegistry windows_;
  RecordingPort port_;
  std::vector<Queue> queues_;
  std::unique_ptr<SoftNic> nic_;
};

}  // namespace cco::testing
