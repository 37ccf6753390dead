// cco-bench: how fast this node's heap is, beside what it could be.
#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "client/bench/private_daemon.h"
#include "client/ctl/origin.h"

namespace {

using cco::bench::Context;
using cco::bench::PrivateDaemon;
using cco::bench::Settings;

struct Benchmark {
  const char* name;
  const char* summary;
  absl::Status (*run)(Context& context);
};

constexpr Benchmark kBenchmarks[] = {
    {"attach", "many processes attach, form groups, make windows, and leave",
     cco::bench::bench_attach},
    {"window", "a collective window in a mapped slab, beside a bare call",
     cco::bench::bench_window},
    {"barrier", "the LSA barrier, beside release/acquire and relaxed flags",
     cco::bench::bench_barrier},
    {"put", "put between two ranks, beside memcpy or a bare copy kernel", cco::bench::bench_put},
    {"get", "get between two ranks, beside memcpy or a bare copy kernel", cco::bench::bench_get},
    {"signal", "signal and wait between two ranks, there and back", cco::bench::bench_signal},
    {"tdm", "copies by a data mover, beside a bare loop of bulk copies", cco::bench::bench_tdm},
    {"sdma", "copies by a copy engine, beside a stream copy; put and signal",
     cco::bench::bench_sdma},
    {"gda", "posts to NICs and to the proxy, beside bare stores and a flag ring",
     cco::bench::bench_gda},
    {"peer_loss", "a process is killed while another one's kernel waits for it",
     cco::bench::bench_peer_loss},
    {"restart", "the daemon is killed under many sessions and windows, and started again",
     cco::bench::bench_restart},
    {"quota", "a collective window of a tenant with quotas, beside one without",
     cco::bench::bench_quota},
    {"hostile", "calls while others do what they can to disturb, beside calls in peace",
     cco::bench::bench_hostile},
    {"mix", "one kernel that uses all transports at once, verified", cco::bench::bench_mix},
};

constexpr std::chrono::milliseconds kCallTimeout{30000};

void add_options(CLI::App& app, Settings* settings) {
  app.add_option("--socket", settings->socket,
                 "a running daemon's (default: $CCO_SOCKET, else "
                 "/run/cco/memd.sock, else a private daemon)");
  app.add_option("--daemon", settings->daemon, "start this cco-memd for the run");
  app.add_option("--driver", settings->driver, "of the private daemon")
      ->check(CLI::IsMember({"auto", "host", "cuda", "hip"}))
      ->capture_default_str();
  app.add_option("--json", settings->json, "write results to this file; - is standard output");
  app.add_option("--ranks,--ranks-per-process", settings->ranks,
                 "ranks in this process (default: 2; for windows on host 8; 1 under a launcher)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--warm-up", settings->warm_up, "samples thrown away")->capture_default_str();
  app.add_option("--repetitions", settings->repetitions, "samples kept")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--min-bytes", settings->min_bytes, "smallest copy, a multiple of 16")
      ->check(CLI::Range(uint64_t{16}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--max-bytes", settings->max_bytes, "largest copy (64 MiB on host, 256 on GPUs)")
      ->check(CLI::Range(uint64_t{16}, uint64_t{1} << 40));
  app.add_option("--blocks", settings->blocks, "of kernels")->check(CLI::Range(1, 65535));
  app.add_option("--threads", settings->threads, "per block")->check(CLI::Range(1, 1024));
  app.add_option("--iterations", settings->iterations, "of barriers and signals in a sample");
  app.add_option("--processes", settings->processes, "of attach (256 on host, 8 on GPUs)");
  app.add_option("--groups", settings->groups, "of attach (64 on host, 2 on GPUs)");
  app.add_option("--windows", settings->windows, "of attach, in all (4096 on host, 64 on GPUs)");
  app.add_option("--concurrency", settings->concurrency,
                 "processes attaching at once (default: one for each core)");
  app.add_option("--sdma-provider", settings->sdma_provider,
                 "user-queue, copy-engine or host (default: the best; on host all that run there)");
  app.add_option("--gda-provider", settings->gda_provider,
                 "proxy, mlx5, bnxt or ionic (default: each of them)");
}

// The daemon to measure: the one named, the one that runs, or one of our own.
absl::StatusOr<std::unique_ptr<PrivateDaemon>> find_daemon(Context* context) {
  const Settings& settings = context->settings;
  if (settings.daemon.empty()) {
    std::string path = settings.socket;
    if (path.empty()) {
      CCO_ASSIGN_OR_RETURN(path, cco::Connection::default_socket_path());
    }
    absl::StatusOr<std::unique_ptr<cco::Connection>> running =
        cco::Connection::open(path, kCallTimeout);
    if (running.ok()) {
      context->connection = *std::move(running);
      return nullptr;
    }
    if (!settings.socket.empty() || context->place.process_count > 1) return running.status();
    std::cerr << "cco-bench: no daemon on " << path << ": starting one for this run\n";
  }
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<PrivateDaemon> daemon,
                       PrivateDaemon::start({settings.daemon, settings.driver, "", false}));
  CCO_ASSIGN_OR_RETURN(context->connection, cco::Connection::open(daemon->socket(), kCallTimeout));
  return daemon;
}

absl::Status attach(Context* context, int argc, char** argv) {
  cco::Client::Options options;
  options.socket_path = context->connection->socket_path().c_str();
  CCO_RETURN_IF_ERROR(
      cco::to_status(cco::Client::create(options, &context->client), "attaching to cco-memd"));
  CCO_ASSIGN_OR_RETURN(context->gpus, cco::GpuSet::open(context->client));
  cco::bench::report::Origin* origin = context->results.report().mutable_origin();
  *origin = cco::this_program(argc, argv);
  origin->set_driver(context->gpus->info().driver);
  origin->set_driver_version(context->gpus->info().driver_version);
  for (const cco_gpu_info& gpu : context->gpus->gpus()) {
    origin->add_devices(absl::StrCat(gpu.name, " ", gpu.uuid));
  }
  return absl::OkStatus();
}

absl::Status run(const std::vector<const Benchmark*>& chosen, Context* context, int argc,
                 char** argv) {
  CCO_ASSIGN_OR_RETURN(context->place, cco::find_place("bench"));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<PrivateDaemon> daemon, find_daemon(context));
  CCO_RETURN_IF_ERROR(attach(context, argc, argv));
  const bool speaks = context->place.process == 0;
  const bool prints = speaks && context->settings.json != "-";
  const auto& origin = context->results.report().origin();
  if (prints) {
    std::cout << "cco-bench " << origin.version() << " (" << origin.commit() << "), driver "
              << origin.driver() << " (" << origin.driver_version() << "), " << origin.machine()
              << "\n\n";
  }
  absl::Status status;
  for (const Benchmark* benchmark : chosen) {
    status = benchmark->run(*context);
    if (!status.ok()) {
      status = absl::Status(status.code(), absl::StrCat(benchmark->name, ": ", status.message()));
      break;
    }
    if (prints) std::cout << context->results.table(benchmark->name) << std::flush;
  }
  if (prints) std::cout << context->results.figures() << std::flush;
  if (speaks && status.ok() && !context->settings.json.empty()) {
    status = context->results.write_json(context->settings.json);
  }
  // In this order: groups, then sessions, then the daemon.
  context->client = cco::Client();
  context->connection.reset();
  return status;
}

struct WorkerArguments {
  std::string group;
  uint32_t index = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("cco-bench: how fast this node's heap is, beside raw baselines of the same run",
               "cco-bench");
  Context context;
  add_options(app, &context.settings);
  app.require_subcommand(1);
  app.fallthrough();
  std::vector<std::pair<CLI::App*, const Benchmark*>> subcommands;
  for (const Benchmark& benchmark : kBenchmarks) {
    subcommands.emplace_back(app.add_subcommand(benchmark.name, benchmark.summary), &benchmark);
  }
  const CLI::App* all = app.add_subcommand("all", "all of these");
  WorkerArguments worker;
  CLI::App* worker_command = app.add_subcommand("attach-worker")->group("");
  worker_command->add_option("--index", worker.index);
  worker_command->add_option("--group", worker.group);
  CLI::App* victim_command = app.add_subcommand("peer-loss-victim")->group("");
  victim_command->add_option("--group", worker.group);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (worker_command->parsed()) {
    return cco::bench::attach_worker(context.settings.socket, worker.index, context.settings.ranks,
                                     context.settings.windows, worker.group);
  }
  if (victim_command->parsed()) {
    return cco::bench::peer_loss_victim(context.settings.socket, worker.group);
  }
  std::vector<const Benchmark*> chosen;
  for (const auto& [subcommand, benchmark] : subcommands) {
    if (subcommand->parsed() || all->parsed()) chosen.push_back(benchmark);
  }
  const absl::Status status = run(chosen, &context, argc, argv);
  if (status.ok()) return 0;
  std::cerr << "cco-bench: " << status.message() << " (" << absl::StatusCodeToString(status.code())
            << ")\n";
  return 1;
}
