// cco-bench tdm: copies through shared memory by a data mover, beside a bare loop that does nothing
// else, and beside loads and stores by as few blocks.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/bench/window_copy.h"
#include "device/kernels/kernels.h"
#include "device/kernels/tdm_bench.h"

namespace cco::bench {
namespace {

constexpr uint64_t kDeadlineNs = 20'000'000'000;
constexpr double kTarget = 0.97;
constexpr uint64_t kTargetAt = 256 << 20;
constexpr uint32_t kFewBlocks = 8;
constexpr uint32_t kManyBlocks = 96;
constexpr uint32_t kLsaThreads = 512;

struct TdmShape {
  LaunchShape launch;
  uint32_t stage_bytes;
};

// Where something moves beside the threads: bulk copies, tensor instructions.
bool has_mover(const GpuSet& gpus, int32_t device) {
  const std::string arch = gpus.gpus()[static_cast<size_t>(device)].arch;
  return absl::StartsWith(arch, "sm_") || arch == "gfx1250";
}

TdmShape shape_of(const Context& context, uint32_t blocks) {
  const bool mover = has_mover(*context.gpus, 0);
  TdmShape shape;
  // A grid of many blocks has enough under way with small stages, and is steadier over NVLink.
  shape.stage_bytes = !mover ? 4 << 10 : blocks < kManyBlocks ? 32 << 10 : 16 << 10;
  shape.launch.blocks = blocks;
  shape.launch.threads = context.settings.threads != 0 ? context.settings.threads
                         : context.is_host()           ? 1
                         : mover                       ? 32
                                                       : kLsaThreads;
  shape.launch.shared_bytes = kernels::tdm_shared_bytes(shape.stage_bytes);
  return shape;
}

// Each launch leaves a result per block.
Operation checked(Rank& rank, const char* kernel, Operation operation) {
  return [&rank, kernel, operation = std::move(operation)]() -> absl::StatusOr<double> {
    rank.results().reset();
    CCO_ASSIGN_OR_RETURN(const double elapsed_us, operation());
    CCO_RETURN_IF_ERROR(rank.results().check(kernel));
    return elapsed_us;
  };
}

absl::StatusOr<std::vector<Contestant>> contestants_of(Rank& rank, const Copy& copy,
                                                       const TdmShape& shape, bool with_lsa) {
  const bool puts = copy.direction == Direction::kPut;
  const char* const kernel = puts ? "tdm_put" : "tdm_get";
  CCO_ASSIGN_OR_RETURN(const GpuFunction ours, rank.context().load(kernels::tdm_bench(), kernel));
  CCO_ASSIGN_OR_RETURN(const GpuFunction bare,
                       rank.context().load(kernels::tdm_bench(), "bulk_copy_bare"));
  std::vector<Contestant> contestants{
      {"cco", checked(rank, kernel,
                      stream_operation(rank, copy,
                                       [&rank, copy, ours, shape] {
                                         return launch(rank.stream(), ours, shape.launch,
                                                       rank.comm(), copy.window, copy.peer,
                                                       copy.destination_offset, copy.source_offset,
                                                       copy.bytes, shape.launch.shared_bytes,
                                                       kDeadlineNs,
                                                       rank.results().device_address());
                                       }))},
      {"bare bulk copies", stream_operation(rank, copy, [&rank, copy, bare, shape] {
         return launch(rank.stream(), bare, shape.launch, copy.destination, copy.source, copy.bytes,
                       shape.stage_bytes);
       })}};
  if (!with_lsa) return contestants;
  CCO_ASSIGN_OR_RETURN(const GpuFunction lsa,
                       rank.context().load(kernels::bench(), puts ? "lsa_put" : "lsa_get"));
  const LaunchShape lsa_shape{shape.launch.blocks, kLsaThreads};
  contestants.push_back(
      {"lsa, as many blocks", stream_operation(rank, copy, [&rank, copy, lsa, lsa_shape] {
         return launch(rank.stream(), lsa, lsa_shape, copy.window, copy.peer,
                       copy.destination_offset, copy.source_offset, copy.bytes);
       })});
  return contestants;
}

void report(Context& context, const Copy& copy, const TdmShape& shape,
            const std::vector<double>& ratios) {
  const std::string what = absl::StrCat("tdm ", name_of(copy.direction), " of 256 MiB, ",
                                        shape.launch.blocks, " blocks");
  const bool promised = copy.direction == Direction::kPut && has_mover(*context.gpus, 0);
  const std::string to_bare = absl::StrCat(what, ", of bare bulk copies");
  if (promised) {
    context.results.promise(to_bare, ratios[0], Bound::kAtLeast, kTarget, "");
  } else {
    context.results.note(to_bare, ratios[0], "");
  }
  if (ratios.size() > 1) {
    context.results.note(absl::StrCat(what, ", of an lsa ", name_of(copy.direction)), ratios[1],
                         "");
  }
}

absl::Status measure(Context& context, Rank& rank, const Window& window, Direction direction,
                     const TdmShape& shape, bool with_lsa) {
  const uint64_t max_bytes = max_bytes_of(context);
  for (uint64_t bytes = context.settings.min_bytes; bytes <= max_bytes; bytes *= 4) {
    CCO_ASSIGN_OR_RETURN(const Copy copy, make_copy(rank, window, direction, bytes, max_bytes));
    CCO_ASSIGN_OR_RETURN(const std::vector<Contestant> contestants,
                         contestants_of(rank, copy, shape, with_lsa));
    const Subject subject{"tdm",
                          absl::StrCat(name_of(direction), ", blocks: ", shape.launch.blocks),
                          bytes,
                          rank.size(),
                          shape.launch.blocks,
                          shape.launch.threads};
    CCO_ASSIGN_OR_RETURN(const std::vector<double> ratios,
                         compare(context, rank, copy, subject, contestants));
    if (!context.is_host() && bytes == kTargetAt) report(context, copy, shape, ratios);
  }
  return absl::OkStatus();
}

absl::Status measure_blocks(Context& context, uint32_t blocks, bool with_lsa) {
  const TdmShape shape = shape_of(context, blocks);
  Rank::Plan plan;
  plan.result_count = blocks;
  return on_team(
      context, absl::StrCat("tdm-", blocks), pair_of(context), plan,
      [&](Rank& rank) -> absl::Status {
        CCO_ASSIGN_OR_RETURN(const Window window,
                             rank.create_window(2 * max_bytes_of(context), "copies"));
        if (rank.rank() == 0) {
          for (const Direction direction : {Direction::kPut, Direction::kGet}) {
            CCO_RETURN_IF_ERROR(measure(context, rank, window, direction, shape, with_lsa));
          }
        }
        return rank.barrier();
      });
}

}  // namespace

absl::Status bench_tdm(Context& context) {
  if (context.is_host()) {
    context.results.not_applicable("tdm put of 256 MiB, of bare bulk copies",
                                   "host threads have no data mover");
    return measure_blocks(context, 1, false);
  }
  const uint32_t ranks = pair_of(context);
  const int32_t own =  // A process opens no GPU but its ranks'.
      device_of(context.place, ranks, context.place.process * ranks, context.gpus->gpus().size());
  CCO_ASSIGN_OR_RETURN(GpuContext* const gpu, context.gpus->context(own));
  if (context.settings.blocks != 0) return measure_blocks(context, context.settings.blocks, true);
  CCO_RETURN_IF_ERROR(measure_blocks(context, gpu->multiprocessor_count(), false));
  return measure_blocks(context, kFewBlocks, true);
}

}  // namespace cco::bench
