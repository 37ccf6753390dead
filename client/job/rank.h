// One rank of a program that runs on a client: its group, GPU, stream and communicator together.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cco/client.hpp"
#include "client/job/rank_gpu.h"

namespace cco {

/// To be called right after the call that gave `status`: the text belongs to this thread's last
/// one.
absl::Status to_status(cco_status status, const std::string& what);

/// Where this process stands among those of its job.
struct Place {
  uint32_t process = 0;
  uint32_t process_count = 1;
  uint32_t local_process = 0;  ///< Of local_process_count on this node.
  uint32_t local_process_count = 1;
  std::string job;  ///< The same in all processes, and in no other job.
};

/// From the launcher's variables; without any, a job of one process.
absl::StatusOr<Place> find_place(const std::string& program);

/// Calls `body(rank)` for each of this process's `count` ranks, a thread each. Returns the first
/// failure, preferring those that are not an echo (ABORTED) of another's.
absl::Status run_ranks(const Place& place, uint32_t count,
                       const std::function<absl::Status(uint32_t rank)>& body);

/// The GPU of rank `rank`, one of `count` of this process, by the client's ordinal. The node's
/// processes share out its GPUs, and each process's ranks take turns on the process's own: kernels
/// of two processes on one GPU would wait for each other's time slices.
int32_t device_of(const Place& place, uint32_t count, uint32_t rank, size_t gpu_count);

class Rank {
 public:
  struct Plan {
    uint32_t rank = 0;
    uint32_t size = 1;
    int32_t device = 0;  ///< The client's ordinal.
    std::string group;
    Comm::Options comm{};         ///< Its timeout_ms is set from the next.
    uint32_t timeout_ms = 60000;  ///< Of collective calls.
    uint32_t lsa_size = 0;        ///< As Group::Options'.
    uint32_t result_count = 1;
  };

  /// Collective. On failure the group is called off, so that nobody waits for this rank.
  static absl::StatusOr<std::unique_ptr<Rank>> join(const Client& client, GpuSet& gpus,
                                                    const Plan& plan);

  uint32_t rank() const { return plan_.rank; }
  uint32_t size() const { return plan_.size; }
  const Group& group() const { return group_; }
  GpuContext& context() { return *context_; }
  GpuStream& stream() { return *stream_; }
  ResultWords& results() { return *results_; }
  const cco_device_comm& comm() const { return comm_device_; }
  /// Whether a transport has reported an error.
  absl::Status check_comm() const { return to_status(comm_.check(), "checking the communicator"); }

  /// Unnamed. Collective.
  absl::StatusOr<Window> create_window(uint64_t size_bytes, const std::string& what) const;
  static absl::StatusOr<cco_window_device> descriptor(const Window& window);
  /// Of an offset in a rank's copy, in this process.
  static absl::StatusOr<uint64_t> address(const Window& window, uint32_t rank, uint64_t offset);
  /// Of all ranks, on the host.
  absl::Status barrier() const;
  /// Ends everybody's waits, for good.
  void call_off() const { (void)group_.abort(); }

 private:
  explicit Rank(const Plan& plan) : plan_(plan) {}
  absl::Status set_up(const Client& client, GpuSet& gpus);

  const Plan plan_;
  GpuContext* context_ = nullptr;
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<ResultWords> results_;
  Group group_;
  Comm comm_;
  cco_device_comm comm_device_{};
};

}  // namespace cco
