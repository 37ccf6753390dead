#include "client/bench/bench.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::bench {
namespace {

// The longest that a rank waits at the barrier for the one that measures.
constexpr uint32_t kTeamTimeoutMs = 600000;

}  // namespace

absl::StatusOr<v1::GetNodeResponse> get_node(Context& context) {
  v1::GetNodeResponse node;
  CCO_RETURN_IF_ERROR(context.connection->call(
      &v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &node, context.connection->timeout()));
  return node;
}

uint32_t pair_of(const Context& context) {
  if (context.settings.ranks != 0) return context.settings.ranks;
  return context.place.process_count > 1 ? 1 : 2;
}

absl::Status on_team(Context& context, const std::string& name, uint32_t ranks,
                     const Rank::Plan& common, const std::function<absl::Status(Rank&)>& body) {
  return run_ranks(context.place, ranks, [&](uint32_t rank) -> absl::Status {
    Rank::Plan plan = common;
    plan.rank = rank;
    plan.size = context.place.process_count * ranks;
    plan.device = device_of(context.place, ranks, rank, context.gpus->gpus().size());
    plan.group = absl::StrCat(context.place.job, "-", name);
    plan.timeout_ms = kTeamTimeoutMs;
    CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Rank> joined,
                         Rank::join(context.client, *context.gpus, plan));
    absl::Status status = body(*joined);
    if (status.ok())
      status = joined->barrier();  // Nobody leaves while others still use its memory.
    if (!status.ok()) joined->call_off();
    return status;
  });
}

absl::StatusOr<std::vector<std::vector<double>>> sample_in_turn(
    const Settings& settings, const std::vector<Operation>& operations) {
  std::vector<std::vector<double>> samples(operations.size());
  for (uint32_t round = 0; round < settings.warm_up + settings.repetitions; ++round) {
    for (size_t i = 0; i < operations.size(); ++i) {
      const size_t which = round % 2 == 0 ? i : operations.size() - 1 - i;
      CCO_ASSIGN_OR_RETURN(const double elapsed_us, operations[which]());
      if (round >= settings.warm_up) samples[which].push_back(elapsed_us);
    }
  }
  return samples;
}

absl::StatusOr<double> time_us(const std::function<absl::Status()>& operation) {
  const auto start = std::chrono::steady_clock::now();
  CCO_RETURN_IF_ERROR(operation());
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

absl::StatusOr<double> stream_time_us(GpuStream& stream,
                                      const std::function<absl::Status()>& enqueue) {
  CCO_RETURN_IF_ERROR(stream.mark(0));
  CCO_RETURN_IF_ERROR(enqueue());
  CCO_RETURN_IF_ERROR(stream.mark(1));
  CCO_RETURN_IF_ERROR(stream.synchronize());
  return stream.elapsed_us();
}

}  // namespace cco::bench
