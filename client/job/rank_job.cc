#include "client/job/rank_job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/statistics.h"
#include "client/job/text.h"
#include "client/job/verify.h"
#include "device/kernels/kernels.h"
#include "device/kernels/routing.h"

namespace cco::job {

Rank::Plan plan_of(uint32_t rank, uint32_t size, const JobOptions& options) {
  Rank::Plan plan;
  plan.rank = rank;
  plan.size = size;
  plan.comm.signal_count = kernels::kSignalsPerRank * size;
  plan.timeout_ms = options.timeout_ms;
  plan.result_count = size;
  return plan;
}

RankJob::RankJob(Rank& rank, const std::string& gpu_uuid, const JobOptions& options)
    : rank_(rank), options_(options) {
  summary_.pid = static_cast<uint64_t>(::getpid());
  summary_.gpu = token_id(gpu_uuid);
}

absl::Status RankJob::run() {
  const absl::Status status = run_all();
  if (!status.ok()) rank_.call_off();
  return status;
}

// Before any kernel waits: loading may have to wait until the device is idle.
absl::Status RankJob::load_kernels() {
  GpuContext& context = rank_.context();
  CCO_ASSIGN_OR_RETURN(exchange_, context.load(kernels::main_job(), "exchange"));
  CCO_ASSIGN_OR_RETURN(route_, context.load(kernels::main_job(), "route"));
  CCO_ASSIGN_OR_RETURN(combine_, context.load(kernels::main_job(), "combine"));
  CCO_ASSIGN_OR_RETURN(put_, context.load(kernels::bench(), "lsa_put"));
  return absl::OkStatus();
}

absl::Status RankJob::run_all() {
  CCO_RETURN_IF_ERROR(load_kernels());
  // Two slots: before the work, and after it.
  CCO_ASSIGN_OR_RETURN(const Window window,
                       rank_.create_window(2 * sizeof(RankSummary), "summaries"));
  CCO_RETURN_IF_ERROR(share_summaries(window, 0));
  const std::string warning = shared_gpu_warning(summaries_);
  if (rank_.rank() == 0 && options_.gpus_take_turns && !options_.plain && !warning.empty()) {
    std::fprintf(stderr, "%s\n", warning.c_str());
  }
  CCO_RETURN_IF_ERROR(exchange());
  if (!options_.plain) CCO_RETURN_IF_ERROR(route());
  return share_summaries(window, 1);
}

absl::Status RankJob::exchange() {
  CCO_ASSIGN_OR_RETURN(
      const Window window,
      rank_.create_window(source_offset() + (options_.plain ? options_.chunk_bytes : 0),
                          "the exchange"));
  std::vector<double> times;
  for (uint64_t round = 0; round < options_.rounds; ++round) {
    CCO_RETURN_IF_ERROR(rank_.barrier());  // Everybody has verified the round before.
    double elapsed_us = 0;
    CCO_RETURN_IF_ERROR(options_.plain ? put_plainly(window, round, &elapsed_us)
                                       : send_by_kernel(window, round, &elapsed_us));
    CCO_RETURN_IF_ERROR(verify_exchange(window, round));
    times.push_back(elapsed_us);
  }
  summary_.exchange_us = spread_of(times).median;
  return rank_.barrier();
}

absl::Status RankJob::send_by_kernel(const Window& window, uint64_t round, double* elapsed_us) {
  GpuStream& stream = rank_.stream();
  CCO_ASSIGN_OR_RETURN(const cco_window_device device, Rank::descriptor(window));
  rank_.results().reset();
  CCO_RETURN_IF_ERROR(stream.mark(0));
  CCO_RETURN_IF_ERROR(launch(stream, exchange_, {rank_.size(), options_.threads, 0}, rank_.comm(),
                             device, options_.chunk_bytes, round, deadline_ns(),
                             rank_.results().device_address()));
  CCO_RETURN_IF_ERROR(stream.mark(1));
  CCO_RETURN_IF_ERROR(stream.synchronize());
  CCO_RETURN_IF_ERROR(rank_.results().check(absl::StrCat("exchange, round ", round)));
  CCO_ASSIGN_OR_RETURN(*elapsed_us, stream.elapsed_us());
  return absl::OkStatus();
}

absl::Status RankJob::put_plainly(const Window& window, uint64_t round, double* elapsed_us) {
  GpuStream& stream = rank_.stream();
  CCO_ASSIGN_OR_RETURN(const cco_window_device device, Rank::descriptor(window));
  std::vector<uint8_t> chunk(options_.chunk_bytes);
  for (uint64_t i = 0; i < chunk.size(); ++i) {
    chunk[i] = kernels::exchange_byte(rank_.rank(), round, i);
  }
  CCO_ASSIGN_OR_RETURN(const uint64_t source, Rank::address(window, rank_.rank(), source_offset()));
  CCO_RETURN_IF_ERROR(rank_.context().copy_to_device(source, chunk.data(), chunk.size()));

  CCO_RETURN_IF_ERROR(stream.mark(0));
  for (uint32_t peer = 0; peer < rank_.size(); ++peer) {
    const uint64_t offset = rank_.rank() * options_.chunk_bytes;
    CCO_RETURN_IF_ERROR(launch(stream, put_, {rank_.size(), options_.threads, 0}, device, peer,
                               offset, source_offset(), options_.chunk_bytes));
  }
  CCO_RETURN_IF_ERROR(stream.mark(1));
  CCO_RETURN_IF_ERROR(stream.synchronize());
  CCO_ASSIGN_OR_RETURN(*elapsed_us, stream.elapsed_us());
  return rank_.barrier();  // In place of signals: all puts of all ranks have ended.
}

absl::Status RankJob::verify_exchange(const Window& window, uint64_t round) {
  std::vector<uint8_t> received(rank_.size() * options_.chunk_bytes);
  CCO_ASSIGN_OR_RETURN(const uint64_t own, Rank::address(window, rank_.rank(), 0));
  CCO_RETURN_IF_ERROR(rank_.context().copy_to_host(received.data(), own, received.size()));
  for (uint32_t sender = 0; sender < rank_.size(); ++sender) {
    CCO_RETURN_IF_ERROR(verify_chunk(
        absl::MakeConstSpan(received).subspan(sender * options_.chunk_bytes, options_.chunk_bytes),
        sender, round));
  }
  summary_.verified_bytes += received.size();
  return absl::OkStatus();
}

absl::Status RankJob::route() {
  const kernels::RoutingLayout layout = kernels::routing_layout(tokens_max(), rank_.size());
  CCO_ASSIGN_OR_RETURN(const Window window, rank_.create_window(layout.bytes, "routing"));
  CCO_ASSIGN_OR_RETURN(const uint64_t own, Rank::address(window, rank_.rank(), 0));
  const absl::Span<const uint64_t> tokens = my_tokens();
  GpuContext& context = rank_.context();
  CCO_RETURN_IF_ERROR(
      context.copy_to_device(own + layout.ids, tokens.data(), tokens.size() * sizeof(uint64_t)));
  std::vector<uint32_t> sums(tokens.size() * kernels::kLanes);
  const uint64_t sums_bytes = sums.size() * sizeof(uint32_t);
  std::vector<double> times;
  for (uint64_t round = 0; round < options_.rounds; ++round) {
    CCO_RETURN_IF_ERROR(context.fill_zero(own + layout.output, sums_bytes));
    CCO_RETURN_IF_ERROR(rank_.barrier());
    double elapsed_us = 0;
    CCO_RETURN_IF_ERROR(route_once(window, round, &elapsed_us));
    times.push_back(elapsed_us);
    CCO_RETURN_IF_ERROR(context.copy_to_host(sums.data(), own + layout.output, sums_bytes));
    CCO_RETURN_IF_ERROR(verify_routing(tokens, sums));
  }
  summary_.routing_us = spread_of(times).median;
  summary_.tokens = tokens.size();
  return rank_.barrier();
}

absl::Status RankJob::route_once(const Window& window, uint64_t round, double* elapsed_us) {
  GpuStream& stream = rank_.stream();
  CCO_ASSIGN_OR_RETURN(const cco_window_device device, Rank::descriptor(window));
  const uint64_t token_count = my_tokens().size();
  const LaunchShape shape{rank_.size(), options_.threads, 0};
  rank_.results().reset();
  CCO_RETURN_IF_ERROR(stream.mark(0));
  CCO_RETURN_IF_ERROR(launch(stream, route_, shape, rank_.comm(), device, tokens_max(), token_count,
                             round, deadline_ns(), rank_.results().device_address()));
  CCO_RETURN_IF_ERROR(
      launch(stream, combine_, shape, rank_.comm(), device, tokens_max(), token_count));
  CCO_RETURN_IF_ERROR(stream.mark(1));
  CCO_RETURN_IF_ERROR(stream.synchronize());
  CCO_RETURN_IF_ERROR(rank_.results().check(absl::StrCat("routing, round ", round)));
  CCO_ASSIGN_OR_RETURN(*elapsed_us, stream.elapsed_us());
  return absl::OkStatus();
}

absl::Status RankJob::share_summaries(const Window& window, uint64_t slot) {
  const uint64_t offset = slot * sizeof(RankSummary);
  GpuContext& context = rank_.context();
  CCO_ASSIGN_OR_RETURN(const uint64_t own, Rank::address(window, rank_.rank(), offset));
  CCO_RETURN_IF_ERROR(context.copy_to_device(own, &summary_, sizeof(summary_)));
  CCO_RETURN_IF_ERROR(rank_.barrier());
  summaries_.resize(rank_.size());
  for (uint32_t rank = 0; rank < rank_.size(); ++rank) {
    CCO_ASSIGN_OR_RETURN(const uint64_t theirs, Rank::address(window, rank, offset));
    CCO_RETURN_IF_ERROR(context.copy_to_host(&summaries_[rank], theirs, sizeof(RankSummary)));
  }
  return rank_.barrier();  // Nobody leaves while others still read.
}

uint64_t RankJob::tokens_max() const {
  return (options_.tokens.size() + rank_.size() - 1) / rank_.size();
}

absl::Span<const uint64_t> RankJob::my_tokens() const {
  const size_t begin = std::min(options_.tokens.size(), size_t{rank_.rank()} * tokens_max());
  return absl::MakeConstSpan(options_.tokens).subspan(begin, tokens_max());
}

uint64_t RankJob::source_offset() const {
  return (rank_.size() * options_.chunk_bytes + 15) / 16 * 16;
}

std::string shared_gpu_warning(const std::vector<RankSummary>& summaries) {
  for (size_t a = 0; a < summaries.size(); ++a) {
    for (size_t b = a + 1; b < summaries.size(); ++b) {
      if (summaries[a].gpu != summaries[b].gpu || summaries[a].pid == summaries[b].pid) continue;
      return absl::StrCat(
          "warning: ranks ", a, " and ", b,
          " are two processes on one GPU, which need not run their kernels at the same time: waits "
          "may time out. Put several ranks into a process (--ranks-per-process), or use --plain.");
    }
  }
  return "";
}

}  // namespace cco::job
