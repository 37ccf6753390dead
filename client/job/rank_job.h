// One rank of the main job: exchanges, routes, verifies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/job/rank.h"

namespace cco::job {

struct JobOptions {
  uint64_t chunk_bytes = 0;
  uint32_t rounds = 1;
  uint32_t threads = 1;          ///< Per block; one block for each peer.
  uint32_t timeout_ms = 60000;   ///< Of collective calls and of kernels' waits.
  bool plain = false;            ///< Puts without device waits; host barriers instead.
  bool gpus_take_turns = false;  ///< A GPU runs one process's kernels at a time.
  std::vector<uint64_t> tokens;  ///< Of all ranks.
};

/// What ranks tell each other, through a window.
struct RankSummary {
  uint64_t pid;
  uint64_t gpu;  ///< Hash of its UUID.
  uint64_t verified_bytes;
  uint64_t tokens;
  double exchange_us;  ///< Median of the rounds.
  double routing_us;
};

/// What Rank::Plan needs for it.
Rank::Plan plan_of(uint32_t rank, uint32_t size, const JobOptions& options);

class RankJob {
 public:
  /// `gpu_uuid` tells ranks that share a GPU. Both references outlive the job.
  RankJob(Rank& rank, const std::string& gpu_uuid, const JobOptions& options);

  /// Collective. On failure it calls the group off, so that nobody waits for this rank. DATA_LOSS:
  /// something else arrived than was sent.
  absl::Status run();

  /// By rank, after run().
  const std::vector<RankSummary>& summaries() const { return summaries_; }

 private:
  absl::Status run_all();
  absl::Status load_kernels();
  absl::Status exchange();
  absl::Status send_by_kernel(const Window& window, uint64_t round, double* elapsed_us);
  absl::Status put_plainly(const Window& window, uint64_t round, double* elapsed_us);
  absl::Status verify_exchange(const Window& window, uint64_t round);
  absl::Status route();
  absl::Status route_once(const Window& window, uint64_t round, double* elapsed_us);
  absl::Status share_summaries(const Window& window, uint64_t slot);

  uint64_t tokens_max() const;
  absl::Span<const uint64_t> my_tokens() const;
  uint64_t source_offset() const;
  uint64_t deadline_ns() const { return uint64_t{options_.timeout_ms} * 1000000; }

  Rank& rank_;
  const JobOptions& options_;
  GpuFunction exchange_;
  GpuFunction route_;
  GpuFunction combine_;
  GpuFunction put_;
  RankSummary summary_{};
  std::vector<RankSummary> summaries_;
};

/// A text about ranks of `summaries` that need not run at the same time, or "".
std::string shared_gpu_warning(const std::vector<RankSummary>& summaries);

}  // namespace cco::job
