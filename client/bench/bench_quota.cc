// cco-bench quota: a collective window of a tenant with quotas, beside the same of one without, on
// two daemons that run at the same time. It starts them itself, whatever runs.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "client/bench/private_daemon.h"

namespace cco::bench {
namespace {

constexpr uint64_t kWindowBytes = 64 << 10;
// A sample is that many, and there are so many samples at least: one call's time varies by more
// than what is looked for.
constexpr uint32_t kWindows = 20, kLeastSamples = 400;
constexpr double kTarget = 1.05;

// Every quota there is, of the tenant that this process belongs to, which is not the first.
std::string quotas_text() {
  std::string text;
  for (uint32_t i = 0; i < 16; ++i) {
    const std::string whom =
        i == 15 ? absl::StrCat("uid: ", ::geteuid()) : absl::StrCat("cgroup: '/elsewhere-", i, "'");
    absl::StrAppend(&text, "tenants { name: 't", i, "' ", whom, " quotas { ",
                    "bytes_per_gpu: 1073741824 groups: 100 windows: 2000 sessions: 100 } }\n");
  }
  return text;
}

struct Side {
  std::unique_ptr<PrivateDaemon> daemon;
  Client client;

  absl::Status start(const PrivateDaemon::Options& options) {
    CCO_ASSIGN_OR_RETURN(daemon, PrivateDaemon::start(options));
    return to_status(Client::create({daemon->socket().c_str(), 0}, &client), "attaching");
  }
};

// Per window; the time is that of the calls alone: what they made is given up afterwards.
absl::StatusOr<double> time_windows(Rank& rank) {
  std::vector<absl::StatusOr<Window>> windows;
  CCO_RETURN_IF_ERROR(rank.barrier());
  CCO_ASSIGN_OR_RETURN(const double elapsed_us, time_us([&] {
                         for (uint32_t i = 0; i < kWindows; ++i) {
                           windows.push_back(rank.create_window(kWindowBytes, "timing"));
                           CCO_RETURN_IF_ERROR(windows.back().status());
                         }
                         return absl::OkStatus();
                       }));
  return elapsed_us / kWindows;
}

absl::Status measure(Context& context, const Side& with, const Side& without, Rank::Plan plan) {
  plan.device = device_of(context.place, plan.size, plan.rank, context.gpus->gpus().size());
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Rank> limited,
                       Rank::join(with.client, *context.gpus, plan));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Rank> free,
                       Rank::join(without.client, *context.gpus, plan));
  Settings settings = context.settings;
  settings.repetitions = std::max(settings.repetitions, kLeastSamples);
  CCO_ASSIGN_OR_RETURN(const auto samples,
                       sample_in_turn(settings, {[&] { return time_windows(*limited); },
                                                 [&] { return time_windows(*free); }}));
  CCO_RETURN_IF_ERROR(limited->barrier());  // Nobody leaves while others still wait for it.
  CCO_RETURN_IF_ERROR(free->barrier());
  if (plan.rank != 0) return absl::OkStatus();
  const double ratio = context.results.add({"quota", "window, quotas", 0, plan.size, 0, 0},
                                           samples[0], "without", samples[1]);
  context.results.promise("window with quotas, of one without", 1 / ratio, Bound::kAtMost, kTarget,
                          "");
  return absl::OkStatus();
}

}  // namespace

absl::Status bench_quota(Context& context) {
  if (context.place.process_count > 1) {
    return absl::InvalidArgumentError("quota starts daemons of its own: run it without a launcher");
  }
  PrivateDaemon::Options options{context.settings.daemon, context.gpus->info().driver, "", false};
  Side with, without;
  CCO_RETURN_IF_ERROR(without.start(options));
  options.config = quotas_text();
  CCO_RETURN_IF_ERROR(with.start(options));
  Rank::Plan plan;
  plan.size = context.settings.ranks != 0 ? context.settings.ranks : context.is_host() ? 8 : 2;
  plan.group = "quota";
  return run_ranks(context.place, plan.size, [&](uint32_t rank) {
    Rank::Plan own = plan;
    own.rank = rank;
    return measure(context, with, without, own);
  });
}

}  // namespace cco::bench
