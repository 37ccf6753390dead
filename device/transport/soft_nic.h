// A NIC in software: reads send queues, doorbell records and doorbells as hardware would, checks
// all of it, performs it on windows of this process, and reports completions.
#pragma once

#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "device/transport/memory_port.h"
#include "device/transport/nic_format.h"
#include "device/transport/nic_schedule.h"
#include "device/transport/window_registry.h"

namespace cco {

/// One rank's NIC. What a queue asks for can never touch memory outside the windows that its keys
/// name, nor stop the NIC: the operation fails, its queue goes to error, and what follows in it is
/// flushed.
class SoftNic {
 public:
  struct Options {
    const NicFormat* format = nullptr;
    uint32_t rank = 0;  ///< World rank, whose memory local keys mean.
    MemoryPort* memory = nullptr;
    const WindowRegistry* windows = nullptr;
    NicSchedule schedule;
  };
  /// What the options and the queues point to outlives the NIC.
  SoftNic(const Options& options, std::vector<NicQueue> queues);

  /// Does a bounded part of what is waiting; whether there was anything. Callers: one thread.
  bool step();
  /// OK, or the first error of any queue: queue pair, peer, index, reason, syndrome. Thread safe.
  absl::Status status() const;

 private:
  struct Queue : NicQueue {
    std::mt19937_64 random;
    uint64_t seen_doorbell = 0;
    uint64_t producer_units = 0;  ///< As announced.
    uint32_t doorbell_delay_steps = 0;
    uint32_t delay_steps = 0;
    bool is_doorbell_held = false;  ///< The chance was taken for the doorbell that is waiting.
    bool is_decided = false;        ///< The chance was taken for the operation that is next.
    bool is_failed = false;
    std::vector<NicOperation> late;  ///< Writes that have yet to land.
  };
  struct Failure {
    uint32_t syndrome = 0;
    absl::Status reason;
  };

  bool serve(Queue& queue, uint32_t portion);
  bool notices_doorbell(Queue& queue);
  bool is_held_up(Queue& queue);
  void perform_next(Queue& queue);
  void flush_next(Queue& queue);
  absl::StatusOr<NicOperation> decode_next(const Queue& queue) const;
  void fail(Queue& queue, const NicOperation& operation, uint32_t syndrome,
            const absl::Status& reason);
  void advance(Queue& queue, const NicOperation& operation);

  Failure perform(Queue& queue, const NicOperation& operation);
  Failure land_late_writes(Queue& queue);
  Failure move(Queue& queue, const NicOperation& operation);
  Failure update(Queue& queue, const NicOperation& operation);
  Failure find_local(const NicOperation& operation, uint64_t* address) const;
  Failure find_remote(const Queue& queue, const NicOperation& operation, uint64_t* address) const;
  Failure failure(NicFault fault, absl::Status reason) const;
  absl::Status copy(Queue& queue, uint64_t destination, uint64_t source, uint64_t bytes);
  absl::StatusOr<uint64_t> compare_swap(uint64_t address, const NicOperation& operation);
  bool chance(Queue& queue, uint32_t percent);

  const Options options_;
  const NicFormat& format_;
  std::vector<Queue> queues_;
  std::vector<uint32_t> turns_;  ///< Indices of queues, in the order of a step.
  std::mt19937_64 random_;
  uint64_t operations_ = 0;

  mutable std::mutex status_mutex_;
  absl::Status status_;
};

}  // namespace cco
