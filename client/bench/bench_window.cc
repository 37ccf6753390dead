// cco-bench window: a collective window in a slab that is mapped, beside a bare call to the daemon.
#include "client/base/status_macros.h"
#include "client/bench/bench.h"

namespace cco::bench {
namespace {

constexpr uint64_t kWindowBytes = 64 << 10;
constexpr double kGpuTargetUs = 400;
constexpr double kHostTargetCalls = 15;

absl::Status measure(Context& context, Rank& rank) {
  CCO_ASSIGN_OR_RETURN(const Window first, rank.create_window(kWindowBytes, "mapping a slab"));
  const Operation create = [&]() -> absl::StatusOr<double> {
    CCO_RETURN_IF_ERROR(rank.barrier());
    absl::StatusOr<Window> window;  // Given up after the clock has stopped.
    return time_us([&] {
      window = rank.create_window(kWindowBytes, "timing");
      return window.status();
    });
  };
  const Operation call = [&]() -> absl::StatusOr<double> {
    if (rank.rank() != 0) return 0.0;
    return time_us([&] { return get_node(context).status(); });
  };
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context.settings, {create, call}));
  if (rank.rank() != 0) return absl::OkStatus();
  const Subject subject{"window", "create", 0, rank.size(), 0, 0};
  const double ratio = context.results.add(subject, samples[0], "GetNode", samples[1]);
  const auto& measured = *context.results.report().measurements().rbegin();
  if (context.is_host()) {
    context.results.promise("window, in bare calls on the same socket", 1 / ratio, Bound::kAtMost,
                            kHostTargetCalls, "");
  } else {
    context.results.promise("window in a mapped slab", measured.time().median(), Bound::kAtMost,
                            kGpuTargetUs, "us");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status bench_window(Context& context) {
  const uint32_t ranks = context.settings.ranks != 0       ? context.settings.ranks
                         : context.place.process_count > 1 ? 1
                         : context.is_host()               ? 8
                                                           : 2;
  return on_team(context, "window", ranks, {}, [&](Rank& rank) { return measure(context, rank); });
}

}  // namespace cco::bench
