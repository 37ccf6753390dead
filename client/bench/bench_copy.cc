// cco-bench put, get: between two ranks, beside a bare copy of the same bytes.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cco/device.hpp"
#include "client/base/status_macros.h"
#include "client/bench/window_copy.h"
#include "device/kernels/kernels.h"

namespace cco::bench {
namespace {

// The best that this project promises, and from which size.
constexpr double kHostTarget = 0.9;
constexpr uint64_t kHostTargetFrom = 64 << 10;
constexpr double kGpuTarget = 0.98;
constexpr uint64_t kGpuTargetAt = 256 << 20;

// Keeps the compiler from doing a loop's copies once.
void forget_memory() { asm volatile("" ::: "memory"); }

void copy_on_host(const Copy& copy) {
  const device::Place source = device::at(copy.window, copy.source_offset);
  const device::Place destination = device::at(copy.window, copy.destination_offset);
  if (copy.direction == Direction::kPut) {
    device::put(device::ThreadCoop{}, copy.peer, destination, source, copy.bytes);
  } else {
    device::get(device::ThreadCoop{}, copy.peer, source, destination, copy.bytes);
  }
}

template <typename Once>
Operation host_operation(const Copy& copy, Once once) {
  return [copy, once]() -> absl::StatusOr<double> {
    CCO_ASSIGN_OR_RETURN(const double elapsed_us, time_us([&] {
                           for (uint64_t i = 0; i < copy.count; ++i) {
                             once(copy);
                             forget_memory();
                           }
                           return absl::OkStatus();
                         }));
    return elapsed_us / static_cast<double>(copy.count);
  };
}

std::vector<Contestant> host_contestants(const Copy& copy) {
  return {{"cco", host_operation(copy, copy_on_host)},
          {"memcpy", host_operation(copy, [](const Copy& bare) {
             std::memcpy(reinterpret_cast<void*>(bare.destination),
                         reinterpret_cast<const void*>(bare.source), bare.bytes);
           })}};
}

absl::StatusOr<std::vector<Contestant>> gpu_contestants(Rank& rank, const Copy& copy,
                                                        LaunchShape shape) {
  const bool puts = copy.direction == Direction::kPut;
  CCO_ASSIGN_OR_RETURN(const GpuFunction ours,
                       rank.context().load(kernels::bench(), puts ? "lsa_put" : "lsa_get"));
  CCO_ASSIGN_OR_RETURN(const GpuFunction bare, rank.context().load(kernels::bench(), "copy_bare"));
  return std::vector<Contestant>{
      {"cco", stream_operation(rank, copy,
                               [&rank, copy, ours, shape] {
                                 return launch(rank.stream(), ours, shape, copy.window, copy.peer,
                                               copy.destination_offset, copy.source_offset,
                                               copy.bytes);
                               })},
      {"bare kernel", stream_operation(rank, copy,
                                       [&rank, copy, bare, shape] {
                                         return launch(rank.stream(), bare, shape, copy.destination,
                                                       copy.source, copy.bytes);
                                       })},
      {"stream copy", stream_operation(rank, copy, [&rank, copy] {
         return rank.stream().copy(copy.destination, copy.source, copy.bytes);
       })}};
}

LaunchShape shape_of(const Context& context, Rank& rank) {
  LaunchShape shape;
  const Settings& settings = context.settings;
  shape.blocks = settings.blocks != 0 ? settings.blocks : 2 * rank.context().multiprocessor_count();
  shape.threads = settings.threads != 0 ? settings.threads : 512;
  return shape;
}

// Returns the median ratio to the first baseline.
absl::StatusOr<double> measure(Context& context, Rank& rank, const Copy& copy) {
  std::vector<Contestant> contestants;
  Subject subject{name_of(copy.direction), "cco", copy.bytes, rank.size(), 1, 1};
  if (context.is_host()) {
    contestants = host_contestants(copy);
  } else {
    const LaunchShape shape = shape_of(context, rank);
    subject.blocks = shape.blocks;
    subject.threads = shape.threads;
    CCO_ASSIGN_OR_RETURN(contestants, gpu_contestants(rank, copy, shape));
  }
  CCO_ASSIGN_OR_RETURN(const std::vector<double> ratios,
                       compare(context, rank, copy, subject, contestants));
  return ratios[0];
}

absl::Status measure_all(Context& context, Rank& rank, Direction direction, uint64_t max_bytes,
                         const Window& window) {
  double worst_on_host = 1e9;
  for (uint64_t bytes = context.settings.min_bytes; bytes <= max_bytes; bytes *= 4) {
    CCO_ASSIGN_OR_RETURN(const Copy copy, make_copy(rank, window, direction, bytes, max_bytes));
    CCO_ASSIGN_OR_RETURN(const double ratio, measure(context, rank, copy));
    if (bytes >= kHostTargetFrom) worst_on_host = std::min(worst_on_host, ratio);
    if (!context.is_host() && bytes == kGpuTargetAt) {
      context.results.promise(
          absl::StrCat(name_of(direction), " of 256 MiB, of a bare copy kernel"), ratio,
          Bound::kAtLeast, kGpuTarget, "");
    }
  }
  if (context.is_host() && max_bytes >= kHostTargetFrom) {
    const std::string name =
        absl::StrCat(name_of(direction), " from 64 KiB, worst size, of memcpy");
    // Only put is promised.
    if (direction == Direction::kPut) {
      context.results.promise(name, worst_on_host, Bound::kAtLeast, kHostTarget, "");
    } else {
      context.results.note(name, worst_on_host, "");
    }
  }
  return absl::OkStatus();
}

absl::Status bench_direction(Context& context, Direction direction) {
  const uint64_t max_bytes = max_bytes_of(context);
  return on_team(
      context, name_of(direction), pair_of(context), {}, [&](Rank& rank) -> absl::Status {
        CCO_ASSIGN_OR_RETURN(const Window window, rank.create_window(2 * max_bytes, "copies"));
        if (rank.rank() == 0) {
          CCO_RETURN_IF_ERROR(measure_all(context, rank, direction, max_bytes, window));
        }
        return rank.barrier();
      });
}

}  // namespace

absl::Status bench_put(Context& context) { return bench_direction(context, Direction::kPut); }
absl::Status bench_get(Context& context) { return bench_direction(context, Direction::kGet); }

}  // namespace cco::bench
