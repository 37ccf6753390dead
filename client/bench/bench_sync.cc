// cco-bench barrier, signal: kernels that wait for one another, beside other ways to do it.
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "device/kernels/kernels.h"

namespace cco::bench {
namespace {

constexpr uint64_t kDeadlineNs = 20'000'000'000;

struct SyncShape {
  LaunchShape launch;
  uint64_t iterations;
};

SyncShape shape_of(const Context& context) {
  const Settings& settings = context.settings;
  SyncShape shape;
  shape.launch.blocks = settings.blocks != 0 ? settings.blocks : 1;
  shape.launch.threads = settings.threads != 0 ? settings.threads : context.is_host() ? 1 : 128;
  shape.iterations = settings.iterations != 0 ? settings.iterations
                     : context.is_host()      ? 1000
                                              : 10000;
  return shape;
}

// Launches on every rank at once; a sample is one iteration.
Operation all_ranks(Rank& rank, const SyncShape& shape, const std::string& what,
                    std::function<absl::Status()> enqueue) {
  return [&rank, shape, what, enqueue = std::move(enqueue)]() -> absl::StatusOr<double> {
    CCO_RETURN_IF_ERROR(rank.barrier());
    rank.results().reset();
    CCO_ASSIGN_OR_RETURN(const double elapsed_us, stream_time_us(rank.stream(), enqueue));
    CCO_RETURN_IF_ERROR(rank.results().check(what));
    return elapsed_us / static_cast<double>(shape.iterations);
  };
}

// The three barrier kernels have one signature; each has barriers of its own.
absl::StatusOr<Operation> barrier_operation(Rank& rank, const SyncShape& shape,
                                            const std::string& kernel, uint32_t which) {
  CCO_ASSIGN_OR_RETURN(const GpuFunction function, rank.context().load(kernels::bench(), kernel));
  const uint32_t index = which * shape.launch.blocks;
  return all_ranks(rank, shape, kernel, [&rank, shape, function, index] {
    return launch(rank.stream(), function, shape.launch, rank.comm(), index, shape.iterations,
                  kDeadlineNs, rank.results().device_address());
  });
}

absl::Status measure_barriers(Context& context, Rank& rank, const SyncShape& shape) {
  CCO_ASSIGN_OR_RETURN(const Operation ours, barrier_operation(rank, shape, "barrier", 0));
  CCO_ASSIGN_OR_RETURN(const Operation ordered,
                       barrier_operation(rank, shape, "barrier_release_acquire", 1));
  CCO_ASSIGN_OR_RETURN(const Operation relaxed, barrier_operation(rank, shape, "flags_relaxed", 2));
  CCO_ASSIGN_OR_RETURN(const auto samples,
                       sample_in_turn(context.settings, {ours, ordered, relaxed}));
  if (rank.rank() != 0) return absl::OkStatus();
  const Subject subject{"barrier",           "cco", 0, rank.size(), shape.launch.blocks,
                        shape.launch.threads};
  const double to_ordered =
      context.results.add(subject, samples[0], "store-release, load-acquire", samples[1]);
  const double to_relaxed = context.results.add(subject, samples[0], "relaxed flags", samples[2]);
  // On host both are the same instructions.
  const std::string name = "barrier, of a store-release/load-acquire loop";
  if (context.is_host()) {
    context.results.note(name, to_ordered, "");
  } else {
    context.results.promise(name, to_ordered, Bound::kAtLeast, 1.0, "");
  }
  context.results.note("barrier, of two relaxed flags (no order: a lower bound)", to_relaxed, "");
  return absl::OkStatus();
}

absl::Status measure_signals(Context& context, Rank& rank, const SyncShape& shape) {
  CCO_ASSIGN_OR_RETURN(const GpuFunction function,
                       rank.context().load(kernels::bench(), "ping_pong"));
  uint64_t trips = 0;  // So far, on both sides.
  const bool plays = rank.rank() < 2;
  const uint32_t peer = 1 - rank.rank();
  const Operation round_trips = [&]() -> absl::StatusOr<double> {
    CCO_RETURN_IF_ERROR(rank.barrier());
    if (!plays) return 0.0;
    rank.results().reset();
    CCO_ASSIGN_OR_RETURN(const double elapsed_us, stream_time_us(rank.stream(), [&] {
                           constexpr uint32_t kSignal = 0;
                           return launch(rank.stream(), function, {1, shape.launch.threads, 0},
                                         rank.comm(), peer, kSignal, trips, shape.iterations,
                                         kDeadlineNs, rank.results().device_address());
                         }));
    trips += shape.iterations;
    CCO_RETURN_IF_ERROR(rank.results().check("ping_pong"));
    return elapsed_us / static_cast<double>(shape.iterations);
  };
  CCO_ASSIGN_OR_RETURN(const Operation relaxed, barrier_operation(rank, shape, "flags_relaxed", 0));
  CCO_ASSIGN_OR_RETURN(const auto samples,
                       sample_in_turn(context.settings, {round_trips, relaxed}));
  if (rank.rank() != 0) return absl::OkStatus();
  // An exchange of flags is one way, of both at once; a round trip is two.
  std::vector<double> one_way = samples[0];
  for (double& sample : one_way) sample /= 2;
  const Subject subject{"signal", "round trip", 0, 2, 1, shape.launch.threads};
  context.results.add(subject, samples[0], "", {});
  Subject half = subject;
  half.variant = "one way";
  context.results.note("signal_add to wait_at_least, one way, of two relaxed flags",
                       context.results.add(half, one_way, "relaxed flags", samples[1]), "");
  return absl::OkStatus();
}

}  // namespace

absl::Status bench_barrier(Context& context) {
  const SyncShape shape = shape_of(context);
  const uint32_t blocks = shape.launch.blocks;
  Rank::Plan plan;
  plan.comm.barrier_count = 3 * blocks;
  plan.result_count = blocks;
  return on_team(context, "barrier", pair_of(context), plan,
                 [&](Rank& rank) { return measure_barriers(context, rank, shape); });
}

absl::Status bench_signal(Context& context) {
  SyncShape shape = shape_of(context);
  shape.launch.blocks = 1;
  Rank::Plan plan;
  plan.comm.signal_count = 1;
  plan.comm.barrier_count = 1;
  return on_team(context, "signal", pair_of(context), plan, [&](Rank& rank) -> absl::Status {
    if (rank.size() < 2) return absl::InvalidArgumentError("signals need two ranks: --ranks 2");
    return measure_signals(context, rank, shape);
  });
}

}  // namespace cco::bench
