// cco-bench put, get: between two ranks, beside a bare copy of the same bytes.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cco/device.hpp"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "client/ctl/table.h"
#include "device/kernels/kernels.h"

namespace cco::bench {
namespace {

enum class Direction { kPut, kGet };

// Of small sizes a sample holds several copies.
constexpr uint64_t kSampleBytes = 32 << 20;
constexpr uint64_t kMaxCopies = 1000;

// The best that this project promises, and from which size.
constexpr double kHostTarget = 0.9;
constexpr uint64_t kHostTargetFrom = 64 << 10;
constexpr double kGpuTarget = 0.98;
constexpr uint64_t kGpuTargetAt = 256 << 20;

struct Copy {
  Direction direction;
  cco_window_device window;
  uint32_t peer;
  uint64_t source_offset;
  uint64_t destination_offset;
  uint64_t source;  // The same two places as addresses.
  uint64_t destination;
  uint64_t bytes;
  uint64_t count;  // In a sample.
};

const char* name_of(Direction direction) { return direction == Direction::kPut ? "put" : "get"; }

// The lower half of the window is read, the upper half written.
absl::StatusOr<Copy> make_copy(const Rank& rank, const Window& window, Direction direction,
                               uint64_t bytes, uint64_t max_bytes) {
  Copy copy{};
  copy.direction = direction;
  copy.peer = (rank.rank() + 1) % rank.size();
  copy.destination_offset = max_bytes;
  copy.bytes = bytes;
  copy.count = std::clamp<uint64_t>(kSampleBytes / bytes, 1, kMaxCopies);
  CCO_ASSIGN_OR_RETURN(copy.window, Rank::descriptor(window));
  const bool puts = direction == Direction::kPut;
  CCO_ASSIGN_OR_RETURN(copy.source,
                       Rank::address(window, puts ? rank.rank() : copy.peer, copy.source_offset));
  CCO_ASSIGN_OR_RETURN(copy.destination, Rank::address(window, puts ? copy.peer : rank.rank(),
                                                       copy.destination_offset));
  return copy;
}

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

struct Contestant {
  std::string name;
  Operation operation;
};

std::vector<Contestant> host_contestants(const Copy& copy) {
  return {{"cco", host_operation(copy, copy_on_host)},
          {"memcpy", host_operation(copy, [](const Copy& bare) {
             std::memcpy(reinterpret_cast<void*>(bare.destination),
                         reinterpret_cast<const void*>(bare.source), bare.bytes);
           })}};
}

Operation stream_operation(Rank& rank, const Copy& copy,
                           const std::function<absl::Status()>& once) {
  return [&rank, copy, once]() -> absl::StatusOr<double> {
    CCO_ASSIGN_OR_RETURN(const double elapsed_us,
                         stream_time_us(rank.stream(), [&]() -> absl::Status {
                           for (uint64_t i = 0; i < copy.count; ++i) CCO_RETURN_IF_ERROR(once());
                           return absl::OkStatus();
                         }));
    return elapsed_us / static_cast<double>(copy.count);
  };
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

// A fast copy of the wrong bytes would be worth nothing.
absl::Status verify(Rank& rank, const Copy& copy, const Operation& operation) {
  std::vector<uint64_t> sent(copy.bytes / sizeof(uint64_t));
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = (copy.bytes + i) * 0x9e3779b97f4a7c15;
  std::vector<uint64_t> arrived(sent.size());
  GpuContext& context = rank.context();
  CCO_RETURN_IF_ERROR(context.fill_zero(copy.destination, copy.bytes));
  CCO_RETURN_IF_ERROR(context.copy_to_device(copy.source, sent.data(), copy.bytes));
  CCO_RETURN_IF_ERROR(operation().status());
  CCO_RETURN_IF_ERROR(context.copy_to_host(arrived.data(), copy.destination, copy.bytes));
  if (sent == arrived) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(name_of(copy.direction), " of ", copy.bytes,
                                          " bytes delivered other bytes than were sent"));
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
  CCO_RETURN_IF_ERROR(verify(rank, copy, contestants[0].operation));
  std::vector<Operation> operations;
  for (const Contestant& contestant : contestants) operations.push_back(contestant.operation);
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context.settings, operations));
  double first_ratio = 0;
  for (size_t i = 1; i < contestants.size(); ++i) {
    const double ratio = context.results.add(subject, samples[0], contestants[i].name, samples[i]);
    if (i == 1) first_ratio = ratio;
  }
  return first_ratio;
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
  const uint64_t max_bytes = context.settings.max_bytes != 0 ? context.settings.max_bytes
                             : context.is_host()             ? 64 << 20
                                                             : 256 << 20;
  const uint32_t ranks = context.settings.ranks != 0       ? context.settings.ranks
                         : context.place.process_count > 1 ? 1
                                                           : 2;
  return on_team(context, name_of(direction), ranks, 0, 0, 1, [&](Rank& rank) -> absl::Status {
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
