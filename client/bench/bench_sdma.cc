// cco-bench sdma: copies by a copy engine, beside a plain stream copy; a put with its signal from
// kernel to kernel, beside one by loads and stores; and how many messages an engine takes.
//
// What the times of copies contain: between two marks of one stream, a kernel that starts, posts
// `count` copies, sees that the last one has landed, and ends; the baseline has between the same
// marks as many copies of the stream, which the CPU has asked for. One copy at a time shows all
// that a kernel waits; several in flight show whether the engine keeps copies close together.
#include "absl/strings/str_cat.h"
#include "cco/device/abi_sdma.h"
#include "client/base/status_macros.h"
#include "client/bench/window_copy.h"
#include "device/kernels/kernels.h"

namespace cco::bench {
namespace {

constexpr uint64_t kDeadlineNs = 20'000'000'000;
constexpr double kCopyTarget = 0.97;
constexpr uint64_t kCopyTargetAt = 256 << 20;
constexpr uint64_t kInFlight = 4;
constexpr uint64_t kPingBytes = 4 << 10;
constexpr double kPingTargetUs = 12;
constexpr uint64_t kMessageBytes = 64;
constexpr uint32_t kQueue = 0;
constexpr uint32_t kSignal = 0;
constexpr uint32_t kGpuThreads = 32;

// Of one provider.
struct Sdma {
  std::string provider;  // As asked for; empty: the best.
  LaunchShape launch;
  uint64_t iterations;  // Of round trips and messages in a sample.
};

// Of `enqueue`, which launches one kernel with one result word.
absl::StatusOr<double> run_kernel(Rank& rank, const std::string& what,
                                  const std::function<absl::Status()>& enqueue) {
  rank.results().reset();
  CCO_ASSIGN_OR_RETURN(const double elapsed_us, stream_time_us(rank.stream(), enqueue));
  CCO_RETURN_IF_ERROR(rank.results().check(what));
  return elapsed_us;
}

// A launch posts all copies of a sample, and ends when they have landed.
Operation engine_operation(Rank& rank, const Sdma& sdma, const Copy& copy, GpuFunction function) {
  return [&rank, &sdma, copy, function]() -> absl::StatusOr<double> {
    CCO_ASSIGN_OR_RETURN(const double elapsed_us,
                         run_kernel(rank, absl::StrCat("sdma_", name_of(copy.direction)), [&] {
                           return launch(rank.stream(), function, sdma.launch, rank.comm(),
                                         copy.window, copy.peer, kQueue,
                                         uint32_t{copy.direction == Direction::kGet},
                                         copy.destination_offset, copy.source_offset, copy.bytes,
                                         copy.count, kDeadlineNs, rank.results().device_address());
                         }));
    return elapsed_us / static_cast<double>(copy.count);
  };
}

absl::StatusOr<std::vector<Contestant>> contestants_of(Rank& rank, const Sdma& sdma,
                                                       const Copy& copy) {
  CCO_ASSIGN_OR_RETURN(const GpuFunction function,
                       rank.context().load(kernels::sdma_bench(), "sdma_copy"));
  return std::vector<Contestant>{{"cco", engine_operation(rank, sdma, copy, function)},
                                 {"stream copy", stream_operation(rank, copy, [&rank, copy] {
                                    return rank.stream().copy(copy.destination, copy.source,
                                                              copy.bytes);
                                  })}};
}

absl::StatusOr<std::vector<double>> compare_with_stream(Context& context, Rank& rank,
                                                        const Sdma& sdma, const Copy& copy,
                                                        const std::string& variant) {
  CCO_ASSIGN_OR_RETURN(const std::vector<Contestant> contestants, contestants_of(rank, sdma, copy));
  const Subject subject{
      "sdma", variant, copy.bytes, rank.size(), sdma.launch.blocks, sdma.launch.threads};
  return compare(context, rank, copy, subject, contestants);
}

absl::Status measure_copies(Context& context, Rank& rank, const Sdma& sdma,
                            const std::string& provider, const Window& window) {
  const uint64_t max_bytes = max_bytes_of(context);
  for (const Direction direction : {Direction::kPut, Direction::kGet}) {
    for (uint64_t bytes = context.settings.min_bytes; bytes <= max_bytes; bytes *= 4) {
      CCO_ASSIGN_OR_RETURN(const Copy copy, make_copy(rank, window, direction, bytes, max_bytes));
      CCO_ASSIGN_OR_RETURN(const std::vector<double> ratios,
                           compare_with_stream(context, rank, sdma, copy,
                                               absl::StrCat(name_of(direction), ", ", provider)));
      if (bytes != kCopyTargetAt || context.is_host()) continue;
      const std::string name = absl::StrCat("sdma ", name_of(direction), " of 256 MiB by ",
                                            provider, ", of a stream copy");
      if (direction == Direction::kPut) {
        context.results.promise(name, ratios[0], Bound::kAtLeast, kCopyTarget, "");
      } else {
        context.results.note(name, ratios[0], "");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status measure_in_flight(Context& context, Rank& rank, const Sdma& sdma,
                               const std::string& provider, const Window& window) {
  const uint64_t bytes = max_bytes_of(context);
  CCO_ASSIGN_OR_RETURN(Copy copy, make_copy(rank, window, Direction::kPut, bytes, bytes));
  copy.count = kInFlight;
  CCO_ASSIGN_OR_RETURN(
      const std::vector<double> ratios,
      compare_with_stream(context, rank, sdma, copy,
                          absl::StrCat("each of ", kInFlight, " puts in flight, ", provider)));
  if (bytes != kCopyTargetAt || context.is_host()) return absl::OkStatus();
  context.results.note(absl::StrCat("sdma ", kInFlight, " puts of 256 MiB in flight by ", provider,
                                    ", of as many stream copies"),
                       ratios[0], "");
  return absl::OkStatus();
}

// On the first two ranks at once. `trips` counts them, and `channel` is the queue or the signal.
absl::StatusOr<Operation> ping_pong(Rank& rank, const Sdma& sdma, const std::string& kernel,
                                    uint32_t channel, const Window& window, uint64_t* trips) {
  CCO_ASSIGN_OR_RETURN(const GpuFunction function,
                       rank.context().load(kernels::sdma_bench(), kernel));
  CCO_ASSIGN_OR_RETURN(const cco_window_device device, Rank::descriptor(window));
  return Operation(
      [&rank, &sdma, kernel, channel, trips, function, device]() -> absl::StatusOr<double> {
        CCO_RETURN_IF_ERROR(rank.barrier());
        if (rank.rank() > 1) return 0.0;
        CCO_ASSIGN_OR_RETURN(const double elapsed_us, run_kernel(rank, kernel, [&] {
                               constexpr uint64_t kTo = kPingBytes, kFrom = 0;
                               return launch(rank.stream(), function, sdma.launch, rank.comm(),
                                             device, 1 - rank.rank(), channel, kTo, kFrom,
                                             kPingBytes, *trips, sdma.iterations, kDeadlineNs,
                                             rank.results().device_address());
                             }));
        *trips += sdma.iterations;
        return elapsed_us / static_cast<double>(sdma.iterations) / 2;  // One way.
      });
}

absl::Status measure_ping_pong(Context& context, Rank& rank, const Sdma& sdma,
                               const std::string& provider, const Window& window) {
  uint64_t engine_trips = 0;
  uint64_t lsa_trips = 0;
  CCO_ASSIGN_OR_RETURN(const Operation engine,
                       ping_pong(rank, sdma, "sdma_ping_pong", kQueue, window, &engine_trips));
  CCO_ASSIGN_OR_RETURN(const Operation lsa,
                       ping_pong(rank, sdma, "lsa_ping_pong", kSignal, window, &lsa_trips));
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context.settings, {engine, lsa}));
  if (rank.rank() != 0) return absl::OkStatus();
  const Subject subject{"sdma",
                        absl::StrCat("put and signal, one way, ", provider),
                        kPingBytes,
                        2,
                        sdma.launch.blocks,
                        sdma.launch.threads};
  const double ratio = context.results.add(subject, samples[0], "lsa put and signal", samples[1]);
  const double median_us = context.results.report().measurements().rbegin()->time().median();
  const std::string name = absl::StrCat("4 KiB put with signal by ", provider, ", one way");
  if (context.is_host()) {
    context.results.note(name, median_us, "us");
  } else {
    context.results.promise(name, median_us, Bound::kAtMost, kPingTargetUs, "us");
  }
  context.results.note(absl::StrCat(name, ", of an lsa put and signal"), ratio, "");
  return absl::OkStatus();
}

absl::Status measure_messages(Context& context, Rank& rank, const Sdma& sdma,
                              const std::string& provider, const Window& window) {
  CCO_ASSIGN_OR_RETURN(
      Copy copy, make_copy(rank, window, Direction::kPut, kMessageBytes, max_bytes_of(context)));
  copy.count = sdma.iterations;
  CCO_ASSIGN_OR_RETURN(const std::vector<Contestant> contestants, contestants_of(rank, sdma, copy));
  const Subject subject{"sdma",
                        absl::StrCat("messages, ", provider),
                        kMessageBytes,
                        rank.size(),
                        sdma.launch.blocks,
                        sdma.launch.threads};
  CCO_RETURN_IF_ERROR(compare(context, rank, copy, subject, contestants).status());
  const double median_us = context.results.report().measurements().rbegin()->time().median();
  context.results.note(absl::StrCat("sdma messages of 64 bytes by ", provider), 1e6 / median_us,
                       "/s");
  return absl::OkStatus();
}

// What was chosen.
absl::StatusOr<std::string> provider_of(Rank& rank, const Sdma& sdma) {
  if (!sdma.provider.empty()) return sdma.provider;
  cco_sdma_device device{};
  CCO_RETURN_IF_ERROR(rank.context().copy_to_host(&device, rank.comm().sdma, sizeof device));
  return device.provider == CCO_SDMA_COPY_ENGINE ? std::string("copy-engine")
                                                 : std::string("user-queue");
}

absl::Status measure(Context& context, Rank& rank, const Sdma& sdma) {
  if (rank.size() < 2) return absl::InvalidArgumentError("sdma needs two ranks: --ranks 2");
  CCO_ASSIGN_OR_RETURN(const std::string provider, provider_of(rank, sdma));
  CCO_ASSIGN_OR_RETURN(const Window window,
                       rank.create_window(2 * max_bytes_of(context), "copies"));
  if (rank.rank() == 0) {
    CCO_RETURN_IF_ERROR(measure_copies(context, rank, sdma, provider, window));
    CCO_RETURN_IF_ERROR(measure_in_flight(context, rank, sdma, provider, window));
    CCO_RETURN_IF_ERROR(measure_messages(context, rank, sdma, provider, window));
  }
  CCO_RETURN_IF_ERROR(rank.barrier());
  CCO_RETURN_IF_ERROR(measure_ping_pong(context, rank, sdma, provider, window));
  CCO_RETURN_IF_ERROR(rank.barrier());  // The last answer has come: the window may go.
  return rank.check_comm();
}

}  // namespace

absl::Status bench_sdma(Context& context) {
  const Settings& settings = context.settings;
  std::vector<std::string> providers{settings.sdma_provider};
  if (settings.sdma_provider.empty() && context.is_host()) providers = {"host", "copy-engine"};
  if (context.is_host()) {
    context.results.not_applicable("sdma put of 256 MiB, of a stream copy",
                                   "host threads have no copy engine");
  }
  for (const std::string& provider : providers) {
    Sdma sdma;
    sdma.provider = provider;
    sdma.launch.threads = settings.threads != 0 ? settings.threads
                          : context.is_host()   ? 1
                                                : kGpuThreads;
    sdma.iterations = settings.iterations != 0 ? settings.iterations : 1000;
    Rank::Plan plan;
    plan.comm.signal_count = 1;
    plan.comm.transports = CCO_TRANSPORT_SDMA;
    plan.comm.sdma_provider = provider.empty() ? nullptr : provider.c_str();
    CCO_RETURN_IF_ERROR(on_team(context, absl::StrCat("sdma", provider), pair_of(context), plan,
                                [&](Rank& rank) { return measure(context, rank, sdma); }));
  }
  return absl::OkStatus();
}

}  // namespace cco::bench
