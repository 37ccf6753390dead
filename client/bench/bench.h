// What the benchmarks share: settings, the ranks they run on, and how samples are taken.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench/results.h"
#include "client/job/rank.h"
#include "client/src/connection.h"

namespace cco::bench {

struct Settings {
  std::string socket;           ///< Of a running daemon; empty: see main.cc.
  std::string daemon;           ///< Program to start as a private daemon.
  std::string driver = "auto";  ///< Of the private daemon.
  std::string json;             ///< File to write, "-": standard output.
  uint32_t ranks = 0;           ///< In this process; 0: the benchmark's own default.
  uint32_t warm_up = 3;         ///< Samples thrown away.
  uint32_t repetitions = 20;    ///< Samples kept.
  uint64_t min_bytes = 4096;
  uint64_t max_bytes = 0;  ///< 0: 64 MiB on host, 256 MiB on GPUs.
  uint32_t blocks = 0;     ///< 0: two for each multiprocessor; one for barriers and signals.
  uint32_t threads = 0;    ///< 0: 512 on GPUs, 128 for barriers and signals; 1 on host.
  uint32_t iterations =
      0;                   ///< Of barriers and signals in a sample; 0: 10000 on GPUs, 1000 on host.
  uint32_t processes = 0;  ///< Of `attach`; 0: 256 on host, 8 on GPUs; groups and windows likewise.
  uint32_t groups = 0;
  uint32_t windows = 0;
  uint32_t concurrency = 0;   ///< Attaching at once; 0: one for each core.
  std::string sdma_provider;  ///< Empty: those that the benchmark takes by itself.
  std::string gda_provider;
};

/// All that a benchmark needs, for the whole run.
struct Context {
  Settings settings;
  Place place;
  std::unique_ptr<Connection> connection;  ///< Beside the client: for bare calls and GetNode.
  Client client;
  std::unique_ptr<GpuSet> gpus;
  Results results;

  bool is_host() const { return gpus->is_host(); }
};

absl::Status bench_attach(Context& context);
absl::Status bench_window(Context& context);
absl::Status bench_barrier(Context& context);
absl::Status bench_put(Context& context);
absl::Status bench_get(Context& context);
absl::Status bench_signal(Context& context);
absl::Status bench_peer_loss(Context& context);
absl::Status bench_tdm(Context& context);
absl::Status bench_sdma(Context& context);
absl::Status bench_gda(Context& context);
absl::Status bench_restart(Context& context);
absl::Status bench_quota(Context& context);
absl::Status bench_hostile(Context& context);
absl::Status bench_mix(Context& context);

/// A process of bench_attach; talks to it on its standard input.
int attach_worker(const std::string& socket, uint32_t index, uint32_t ranks, uint32_t windows,
                  const std::string& group);

/// The process of bench_peer_loss that is killed.
int peer_loss_victim(const std::string& socket, const std::string& group);

absl::StatusOr<v1::GetNodeResponse> get_node(Context& context);

/// Joins a group of `ranks` ranks in this process (times the launcher's processes) and runs `body`
/// on each. A copy of `plan` is filled in: who, where, which group. Ranks that do not measure may
/// wait in barriers meanwhile.
absl::Status on_team(Context& context, const std::string& name, uint32_t ranks,
                     const Rank::Plan& plan, const std::function<absl::Status(Rank&)>& body);

/// Ranks in this process for what goes between two.
uint32_t pair_of(const Context& context);

/// One sample, in microseconds per operation.
using Operation = std::function<absl::StatusOr<double>()>;

/// Takes a sample of each operation in turn, again and again, so that all meet the same machine; in
/// every other round backwards. Returns the samples of each, without those of the warm-up.
absl::StatusOr<std::vector<std::vector<double>>> sample_in_turn(
    const Settings& settings, const std::vector<Operation>& operations);

/// Of `operation` on this thread's clock.
absl::StatusOr<double> time_us(const std::function<absl::Status()>& operation);

/// Of what `enqueue` puts into the stream, on the stream's clock.
absl::StatusOr<double> stream_time_us(GpuStream& stream,
                                      const std::function<absl::Status()>& enqueue);

}  // namespace cco::bench
