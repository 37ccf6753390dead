// cco-bench mix: one kernel that uses LSA, SDMA, TDM and GDA at once, a block for each, beside the
// four one after another. Every byte is checked, by the kernels and here.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "device/kernels/kernels.h"
#include "device/kernels/mix.h"
#include "device/transport/host_memory.h"

namespace cco::bench {
namespace {

constexpr uint64_t kDeadlineNs = 20'000'000'000;
constexpr uint64_t kHostPartBytes = 2 * kernels::kMixPartUnit;
constexpr uint64_t kGpuPartBytes = 1 << 20;
constexpr uint32_t kSignals = 4;
constexpr const char* kRoleNames[kernels::kMixRoles] = {"lsa", "sdma", "tdm", "gda"};

class MixBench {
 public:
  MixBench(Rank& rank, const Window& window, uint64_t part_bytes, uint32_t threads)
      : rank_(rank),
        window_(window),
        part_bytes_(part_bytes),
        shape_{kernels::kMixRoles, threads, kernels::mix_shared_bytes()} {}

  absl::Status prepare();
  /// On all ranks: a round of all roles by one kernel, or by one kernel each.
  absl::StatusOr<double> run(bool at_once);
  /// What the last round has left here.
  absl::Status verify() const;

 private:
  absl::Status launch_roles(uint32_t roles);
  absl::Status check(uint32_t roles) const;

  Rank& rank_;
  const Window& window_;
  const uint64_t part_bytes_;
  const LaunchShape shape_;
  cco_window_device device_{};
  GpuFunction function_;
  HostMemory wrong_;
  uint64_t round_ = 0;
};

absl::Status MixBench::prepare() {
  CCO_ASSIGN_OR_RETURN(device_, Rank::descriptor(window_));
  CCO_ASSIGN_OR_RETURN(function_, rank_.context().load(kernels::mix(), "mix_transports"));
  CCO_ASSIGN_OR_RETURN(
      wrong_, HostMemory::allocate(&rank_.context(), kernels::kMixRoles * sizeof(uint64_t)));
  return absl::OkStatus();
}

absl::Status MixBench::launch_roles(uint32_t roles) {
  rank_.results().reset();
  CCO_RETURN_IF_ERROR(launch(rank_.stream(), function_, shape_, rank_.comm(), device_, part_bytes_,
                             round_, roles, kDeadlineNs, wrong_.address(),
                             rank_.results().device_address()));
  CCO_RETURN_IF_ERROR(rank_.stream().synchronize());
  return check(roles);
}

absl::Status MixBench::check(uint32_t roles) const {
  CCO_RETURN_IF_ERROR(rank_.results().check("mix_transports (result: lsa, sdma, tdm, gda)"));
  const auto* const wrong = reinterpret_cast<const volatile uint64_t*>(wrong_.data());
  for (uint32_t role = 0; role < kernels::kMixRoles; ++role) {
    if ((roles >> role & 1) == 0 || wrong[role] == 0) continue;
    return absl::DataLossError(absl::StrFormat("round %d: word %d that came by %s is wrong", round_,
                                               wrong[role] - 1, kRoleNames[role]));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> MixBench::run(bool at_once) {
  CCO_RETURN_IF_ERROR(rank_.barrier());
  ++round_;
  return time_us([&]() -> absl::Status {
    if (at_once) return launch_roles(kernels::kMixAllRoles);
    for (uint32_t role = 0; role < kernels::kMixRoles; ++role) {
      CCO_RETURN_IF_ERROR(launch_roles(1u << role));
    }
    return absl::OkStatus();
  });
}

absl::Status MixBench::verify() const {
  CCO_RETURN_IF_ERROR(rank_.barrier());
  const uint32_t sender = (rank_.rank() + rank_.size() - 1) % rank_.size();
  std::vector<uint64_t> words(part_bytes_ / sizeof(uint64_t));
  for (uint32_t role = 0; role < kernels::kMixRoles; ++role) {
    CCO_ASSIGN_OR_RETURN(
        const uint64_t address,
        Rank::address(window_, rank_.rank(), kernels::mix_destination(role, part_bytes_)));
    CCO_RETURN_IF_ERROR(rank_.context().copy_to_host(words.data(), address, part_bytes_));
    for (uint64_t i = 0; i < words.size(); ++i) {
      if (words[i] == kernels::mix_word(sender, role, round_, i)) continue;
      return absl::DataLossError(
          absl::StrFormat("word %d that rank %d sent by %s is wrong", i, sender, kRoleNames[role]));
    }
  }
  return absl::OkStatus();
}

absl::Status measure(Context& context, Rank& rank, const std::string& providers) {
  if (rank.size() < 2) return absl::InvalidArgumentError("mix needs two ranks: --ranks 2");
  const uint64_t part_bytes = context.is_host() ? kHostPartBytes : kGpuPartBytes;
  const uint32_t threads = context.settings.threads != 0 ? context.settings.threads
                           : context.is_host()           ? 2
                                                         : 256;
  CCO_ASSIGN_OR_RETURN(const Window window,
                       rank.create_window(2 * kernels::kMixRoles * part_bytes, "all transports"));
  MixBench bench(rank, window, part_bytes, threads);
  CCO_RETURN_IF_ERROR(bench.prepare());
  CCO_ASSIGN_OR_RETURN(const auto samples,
                       sample_in_turn(context.settings, {[&] { return bench.run(true); },
                                                         [&] { return bench.run(false); }}));
  CCO_RETURN_IF_ERROR(bench.verify());
  CCO_RETURN_IF_ERROR(rank.check_comm());
  if (rank.rank() != 0) return absl::OkStatus();
  const Subject subject{"mix",       providers,          kernels::kMixRoles * part_bytes,
                        rank.size(), kernels::kMixRoles, threads};
  const double ratio = context.results.add(subject, samples[0], "one after another", samples[1]);
  context.results.note(
      absl::StrCat("mix of all transports (", providers, "), verified, of one after another"),
      ratio, "");
  return absl::OkStatus();
}

}  // namespace

absl::Status bench_mix(Context& context) {
  const Settings& settings = context.settings;
  // On host the software engines, and then what GPUs have.
  std::vector<std::pair<std::string, std::string>> pairs{{"", "proxy"}, {"", "mlx5"}};
  if (context.is_host()) pairs = {{"host", "mlx5"}, {"copy-engine", "proxy"}};
  if (!settings.sdma_provider.empty() || !settings.gda_provider.empty()) {
    pairs = {{settings.sdma_provider, settings.gda_provider}};
  }
  for (const auto& [sdma, gda] : pairs) {
    Rank::Plan plan;
    plan.comm.signal_count = kSignals;
    plan.comm.barrier_count = kernels::kMixRoles;
    plan.result_count = kernels::kMixRoles;
    plan.comm.transports = CCO_TRANSPORT_SDMA | CCO_TRANSPORT_GDA;
    plan.comm.sdma_provider = sdma.empty() ? nullptr : sdma.c_str();
    plan.comm.gda_provider = gda.empty() ? nullptr : gda.c_str();
    const std::string providers =
        absl::StrCat("sdma ", sdma.empty() ? "best" : sdma, ", gda ", gda.empty() ? "best" : gda);
    CCO_RETURN_IF_ERROR(on_team(context, absl::StrCat("mix-", sdma, "-", gda), pair_of(context),
                                plan,
                                [&](Rank& rank) { return measure(context, rank, providers); }));
  }
  return absl::OkStatus();
}

}  // namespace cco::bench
