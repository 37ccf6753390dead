// cco-main-job: ranks store into each other's windows, and every byte that arrives is checked.
#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/ctl/json.h"
#include "client/ctl/origin.h"
#include "client/ctl/table.h"
#include "client/job/rank_job.h"
#include "client/job/text.h"

namespace cco::job {
namespace {

namespace report = ::cco::report::v1;

struct Arguments {
  std::string socket;
  std::string text;
  JobOptions job;
  uint32_t ranks_per_process = 1;
  bool json = false;
};

// What the two kinds of devices can chew in a few seconds.
void set_defaults(const GpuSet& gpus, JobOptions* options) {
  if (options->chunk_bytes == 0) options->chunk_bytes = gpus.is_host() ? 1 << 20 : 64 << 20;
  if (options->threads == 0) options->threads = gpus.is_host() ? 4 : 512;
  options->gpus_take_turns = !gpus.is_host();
}

struct Totals {
  uint64_t verified_bytes = 0;
  uint64_t tokens = 0;
  double exchange_us = 0;
  double routing_us = 0;
};

// Of all ranks: sums, and the slowest.
Totals add_up(const std::vector<RankSummary>& ranks) {
  Totals totals;
  for (const RankSummary& rank : ranks) {
    totals.verified_bytes += rank.verified_bytes;
    totals.tokens += rank.tokens;
    totals.exchange_us = std::max(totals.exchange_us, rank.exchange_us);
    totals.routing_us = std::max(totals.routing_us, rank.routing_us);
  }
  return totals;
}

absl::Status print_report(const Arguments& arguments, const Place& place, const GpuSet& gpus,
                          const report::Origin& origin, const std::vector<RankSummary>& ranks) {
  const JobOptions& job = arguments.job;
  const Totals totals = add_up(ranks);
  const double received = static_cast<double>(ranks.size() * job.chunk_bytes);
  const double gb_per_s = totals.exchange_us > 0 ? received / totals.exchange_us / 1000 : 0;
  if (arguments.json) {
    report::MainJob out;
    *out.mutable_origin() = origin;
    out.set_ranks(static_cast<uint32_t>(ranks.size()));
    out.set_processes(place.process_count);
    out.set_threads_per_block(job.threads);
    out.set_chunk_bytes(job.chunk_bytes);
    out.set_rounds(job.rounds);
    out.set_verified_bytes(totals.verified_bytes);
    out.set_exchange_us(totals.exchange_us);
    out.set_exchange_gb_per_s(gb_per_s);
    out.set_tokens(totals.tokens);
    out.set_routed_pairs(totals.tokens * 8);
    out.set_routing_us(totals.routing_us);
    out.set_text(arguments.text);
    out.set_result("verified");
    CCO_ASSIGN_OR_RETURN(const std::string text, to_json(out));
    std::cout << text << std::flush;
    return absl::OkStatus();
  }
  std::cout << absl::StrFormat(
      "main job: %d ranks in %d processes, driver %s (%s), cco-memd %s\n"
      "exchange: %d rounds, %s per chunk, %s: %d bytes verified, none differs\n"
      "          %.0f us a round on the slowest rank, %.2f GB/s received per rank\n",
      ranks.size(), place.process_count, gpus.info().driver, gpus.info().driver_version,
      gpus.info().daemon_version, job.rounds, human_bytes(job.chunk_bytes),
      job.plain ? "plain puts and host barriers" : "stores and signals by kernels",
      totals.verified_bytes, totals.exchange_us, gb_per_s);
  if (!job.plain) {
    std::cout << absl::StrFormat(
        "routing:  %d tokens to 8 of 64 experts and back, %d rounds: equal to one process, bit "
        "for bit\n"
        "          %.0f us a round on the slowest rank\n",
        totals.tokens, job.rounds, totals.routing_us);
  }
  std::cout << "verified\n" << std::flush;
  return absl::OkStatus();
}

absl::Status run_rank(const Client& client, GpuSet& gpus, const Arguments& arguments,
                      const Place& place, uint32_t rank, std::vector<RankSummary>* summaries) {
  const uint32_t count = arguments.ranks_per_process;
  Rank::Plan plan = plan_of(rank, place.process_count * count, arguments.job);
  plan.device = device_of(place, count, rank, gpus.gpus().size());
  plan.group = place.job;
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Rank> joined, Rank::join(client, gpus, plan));
  RankJob job(*joined, gpus.gpus()[static_cast<size_t>(plan.device)].uuid, arguments.job);
  CCO_RETURN_IF_ERROR(job.run());
  if (rank == 0) *summaries = job.summaries();
  return absl::OkStatus();
}

absl::Status run(Arguments arguments, int argc, char** argv) {
  CCO_ASSIGN_OR_RETURN(const Place place, find_place("main-job"));
  Client::Options options;
  options.socket_path = arguments.socket.empty() ? nullptr : arguments.socket.c_str();
  Client client;
  CCO_RETURN_IF_ERROR(to_status(Client::create(options, &client), "attaching to cco-memd"));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<GpuSet> gpus, GpuSet::open(client));
  set_defaults(*gpus, &arguments.job);
  if (!arguments.job.plain) {
    if (arguments.text.empty()) {
      CCO_ASSIGN_OR_RETURN(arguments.text, default_text_path());
    }
    CCO_ASSIGN_OR_RETURN(arguments.job.tokens, read_tokens(arguments.text));
  }
  report::Origin origin = this_program(argc, argv);
  origin.set_driver(gpus->info().driver);
  origin.set_driver_version(gpus->info().driver_version);
  for (const cco_gpu_info& gpu : gpus->gpus()) {
    origin.add_devices(absl::StrCat(gpu.name, " ", gpu.uuid));
  }
  std::vector<RankSummary> summaries;
  CCO_RETURN_IF_ERROR(run_ranks(place, arguments.ranks_per_process, [&](uint32_t rank) {
    return run_rank(client, *gpus, arguments, place, rank, &summaries);
  }));
  if (place.process != 0) return absl::OkStatus();
  return print_report(arguments, place, *gpus, origin, summaries);
}

}  // namespace
}  // namespace cco::job

int main(int argc, char** argv) {
  cco::job::Arguments arguments;
  arguments.job.rounds = 3;
  arguments.job.threads = 0;
  CLI::App app(
      "Verifies this node from end to end: ranks exchange chunks through each other's windows and "
      "route a text's tokens to experts and back; every byte is compared with the CPU's. Start it "
      "by ccoctl run, torchrun, mpirun or srun, or alone with --ranks-per-process.",
      "cco-main-job");
  app.add_option("--socket", arguments.socket, "cco-memd's (default: $CCO_SOCKET)");
  app.add_option("--ranks-per-process", arguments.ranks_per_process,
                 "ranks in each process, a thread and a stream each")
      ->check(CLI::Range(1, 1024));
  app.add_option("--bytes", arguments.job.chunk_bytes,
                 "of each rank's chunk for each peer (default: 1 MiB on host, 64 MiB on GPUs)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  app.add_option("--rounds", arguments.job.rounds, "of each part")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--threads", arguments.job.threads, "per block (default: 4 on host, 512 on GPUs)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--text", arguments.text, "file to route (default: the one that is shipped)");
  app.add_option("--timeout-ms", arguments.job.timeout_ms, "of each collective call and kernel")
      ->check(CLI::Range(1, 3600000))
      ->capture_default_str();
  app.add_flag("--plain", arguments.job.plain,
               "puts without device waits, host barriers: for processes that share a GPU");
  app.add_flag("--json", arguments.json, "rank 0 prints JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const absl::Status status = cco::job::run(arguments, argc, argv);
  if (status.ok()) return 0;
  std::cerr << "cco-main-job: " << status.message() << " ("
            << absl::StatusCodeToString(status.code()) << ")\n";
  return 1;
}
