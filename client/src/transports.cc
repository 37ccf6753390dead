#include "client/src/transports.h"

#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/kernels/kernels.h"
#include "device/kernels/proof.h"
#include "device/transport/gda_layout.h"
#include "device/transport/peer_status.h"

namespace cco::client {
namespace {

using kernels::ProofStep;
using kernels::ProofWords;

enum Part : uint32_t { kSdmaPart, kGdaPart, kPartCount };
enum Verdict : uint64_t { kNotTold, kSound, kFaulty };

// For each queue of a peer: what a GPU takes less than a millisecond for, if it does nothing else.
// Host threads share cores with all other ranks'.
constexpr uint64_t kGpuBudgetNs = 100'000'000;
constexpr uint64_t kHostBudgetNs = 10'000'000'000;

ProofWords proof_words(uint64_t proof_offset, uint32_t part, uint32_t world_size) {
  ProofWords words{proof_offset, world_size, 0};
  words.offset += part * words.bytes();
  return words;
}

std::string fault_text(uint64_t result) {
  static constexpr const char* kSteps[] = {"", "put", "signal", "read-back", "content"};
  static constexpr const char* kStatuses[] = {"differs", "timed out", "peer lost", "refused",
                                              "failed"};
  const uint64_t step = result & 0xffff, status = result >> 16 & 0xffff, queue = result >> 32;
  if (step >= std::size(kSteps) || status >= std::size(kStatuses)) {
    return absl::StrFormat("the self-test's kernel left %#x", result);
  }
  return absl::StrFormat("self-test, queue %d: %s %s", queue, kSteps[step], kStatuses[status]);
}

constexpr const char* kOnAnotherNode = "on another node";

std::string tdm_provider(const std::string& arch) {
  if (arch == "sm_90") return "bulk-copy";
  if (arch == "gfx1250") return "tensor";
  return arch == "host" ? "host" : "vector-loop";
}

TransportTeam team_of(Group& group, const Window& words) {
  const Topology& topology = group.topology();
  std::map<std::string, std::string> pci_of_uuid;
  for (const v1::Gpu& gpu : group.client().node().gpus()) {
    pci_of_uuid[gpu.uuid()] = gpu.pci_bus_id();
  }
  std::vector<std::string> pci_bus_ids;
  for (uint32_t i = 0; i < topology.lsa_size; ++i) {
    pci_bus_ids.push_back(pci_of_uuid[group.gpu_uuids()[topology.lsa_first + i]]);
  }
  return {.context = &group.context(),
          .is_host = group.client().driver().name() == "host",
          .rank = topology.rank,
          .size = topology.size,
          .lsa_rank = topology.lsa_rank,
          .lsa_size = topology.lsa_size,
          .lsa_first = topology.lsa_first,
          .words = words.bases(),
          .words_generation = words.device().generation,
          .windows = &group.windows(),
          .arch = group.client().driver().devices()[group.device()].arch,
          .pci_bus_ids = std::move(pci_bus_ids)};
}

}  // namespace

uint64_t proof_bytes(uint32_t world_size) {
  return kPartCount * ProofWords{0, world_size, 0}.bytes();
}

Transports::Transports(Group& group, const Window& words, const CommOptions& options,
                       const CommLayout& layout)
    : group_(group),
      words_(words),
      options_(options),
      layout_(layout),
      team_(team_of(group, words)) {}

std::unique_ptr<Transports> Transports::open(Group& group, const Window& words,
                                             const CommOptions& options, const CommLayout& layout) {
  std::unique_ptr<Transports> transports(new Transports(group, words, options, layout));
  if (options.sdma.has_value()) transports->open_sdma();
  if (options.gda.has_value()) transports->open_gda();
  return transports;
}

void Transports::open_sdma() {
  const Topology& topology = group_.topology();
  Outcome outcome;
  outcome.transport = "sdma";
  outcome.unconnected = kOnAnotherNode;
  outcome.part = kSdmaPart;
  outcome.peer_faults.resize(topology.size);
  outcome.connected.resize(topology.size);
  for (uint32_t i = 0; i < topology.lsa_size; ++i) outcome.connected[topology.lsa_first + i] = true;
  std::string passed_over;
  absl::StatusOr<std::unique_ptr<SdmaProvider>> opened =
      cco::open_sdma(options_.sdma_provider, team_, *options_.sdma, &passed_over);
  if (opened.ok()) {
    sdma_ = *std::move(opened);
    outcome.provider = std::string(sdma_->name());
    outcome.detail = sdma_->describe();
    if (!passed_over.empty()) absl::StrAppend(&outcome.detail, "; ", passed_over);
  }
  conclude(std::move(outcome), opened.status(), "prove_sdma");
}

void Transports::open_gda() {
  const Topology& topology = group_.topology();
  Outcome outcome;
  outcome.transport = "gda";
  outcome.unconnected = "not connected, as asked for";
  outcome.part = kGdaPart;
  outcome.peer_faults.resize(topology.size);
  for (uint32_t peer = 0; peer < topology.size; ++peer) {
    outcome.connected.push_back(gda_connects(*options_.gda, team_, peer));
  }
  absl::StatusOr<std::unique_ptr<GdaProvider>> opened =
      cco::open_gda(options_.gda_provider, team_, *options_.gda);
  if (opened.ok()) {
    gda_ = *std::move(opened);
    outcome.provider = std::string(gda_->name());
    outcome.detail = gda_->describe();
  }
  conclude(std::move(outcome), opened.status(), "prove_gda");
}

void Transports::conclude(Outcome outcome, const absl::Status& opened, const char* proof) {
  const absl::Status usable = opened.ok() ? load_proof(proof, &outcome) : opened;
  if (!usable.ok()) {
    outcome.provider.clear();
    outcome.code = usable.code();
    outcome.detail = std::string(usable.message());
  }
  outcomes_.push_back(std::move(outcome));
}

absl::Status Transports::load_proof(const char* kernel, Outcome* outcome) {
  if (stream_ == nullptr) {
    CCO_ASSIGN_OR_RETURN(stream_, group_.context().create_stream(StreamUse::kKernels));
  }
  CCO_ASSIGN_OR_RETURN(outcome->proof, group_.context().load(kernels::proof(), kernel));
  return absl::OkStatus();
}

void Transports::describe(cco_device_comm* device) const {
  if (sdma_ != nullptr) {
    device->sdma = sdma_->device();
    device->transports |= CCO_TRANSPORT_SDMA;
  }
  if (gda_ != nullptr) {
    device->gda = gda_->device();
    device->transports |= CCO_TRANSPORT_GDA;
  }
}

void Transports::prove(const cco_device_comm& device) {
  for (Outcome& outcome : outcomes_) {
    if (!outcome.provider.empty()) prove_one(device, &outcome);
  }
}

void Transports::prove_one(const cco_device_comm& device, Outcome* outcome) {
  std::vector<uint64_t> results(group_.topology().size);
  const absl::StatusOr<double> took_us = run_proof(*outcome, device, &results);
  if (!took_us.ok()) {
    absl::StrAppend(&outcome->detail,
                    "; self-test not run: ", std::string(took_us.status().message()));
    outcome->provider.clear();
    return;
  }
  for (uint32_t peer = 0; peer < results.size(); ++peer) {
    if (results[peer] != 0) outcome->peer_faults[peer] = fault_text(results[peer]);
  }
  absl::StrAppend(&outcome->detail, absl::StrFormat("; self-test of all queues %.1f us", *took_us));
  if (outcome->part == kGdaPart && options_.gda->signal_count == 0) {
    absl::StrAppend(&outcome->detail, "; signals were not tried, as gda_signal_count is 0");
  }
}

absl::StatusOr<double> Transports::run_proof(const Outcome& outcome, const cco_device_comm& device,
                                             std::vector<uint64_t>* results) {
  GpuContext& context = group_.context();
  const Topology& topology = group_.topology();
  cco_device_comm comm = device;
  ProofWords words = proof_words(layout_.proof_offset, outcome.part, topology.size);
  uint64_t budget_ns = team_.is_host ? kHostBudgetNs : kGpuBudgetNs;
  const uint64_t nonce[2] = {device.generation << 16 | topology.rank,
                             ~(device.generation << 16 | topology.rank)};
  const uint64_t own = words_.bases()[topology.rank];
  CCO_RETURN_IF_ERROR(context.copy_to_device(own + words.nonce(), nonce, sizeof nonce));
  void* const arguments[] = {&comm, &words, &budget_ns};
  const auto start = std::chrono::steady_clock::now();
  CCO_RETURN_IF_ERROR(stream_->launch(outcome.proof, {.blocks = 1, .threads = 1}, arguments));
  CCO_RETURN_IF_ERROR(stream_->synchronize());
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  CCO_RETURN_IF_ERROR(context.copy_to_host(results->data(), own + words.result(0),
                                           results->size() * sizeof(uint64_t)));
  return took.count();
}

absl::Status Transports::publish() {
  const Topology& topology = group_.topology();
  v1::ReportTransportsRequest request;
  request.set_group_id(topology.group_id);
  request.set_rank(topology.rank);
  const auto add = [&request](uint32_t peer, const std::string& transport) {
    v1::TransportReport* report = request.add_reports();
    report->set_peer(peer);
    report->set_transport(transport);
    return report;
  };
  const GpuDevice& gpu = group_.client().driver().devices()[group_.device()];
  for (uint32_t peer = 0; peer < topology.size; ++peer) {
    const bool in_team = peer - topology.lsa_first < topology.lsa_size;
    v1::TransportReport* const tdm = add(peer, "tdm");
    tdm->set_usable(in_team);
    tdm->set_provider(tdm_provider(gpu.arch));
    tdm->set_detail(in_team
                        ? "through shared memory of the kernel's blocks, over the same map as lsa"
                        : kOnAnotherNode);
  }
  for (const Outcome& outcome : outcomes_) {
    for (uint32_t peer = 0; peer < topology.size; ++peer) {
      v1::TransportReport* const report = add(peer, outcome.transport);
      const bool found = !outcome.provider.empty();
      report->set_usable(found && outcome.connected[peer] && outcome.peer_faults[peer].empty());
      report->set_provider(outcome.provider);
      report->set_detail(!found                     ? outcome.detail
                         : !outcome.connected[peer] ? outcome.unconnected
                         : outcome.peer_faults[peer].empty()
                             ? outcome.detail
                             : outcome.peer_faults[peer] + " (" + outcome.detail + ")");
    }
  }
  v1::ReportTransportsResponse answer;
  CCO_RETURN_IF_ERROR(
      group_.client().call(&v1::MemdService::Stub::ReportTransports, std::move(request), &answer));
  const uint64_t told = own_verdict().ok() ? kSound : kFaulty;
  const ProofWords words = proof_words(layout_.proof_offset, kSdmaPart, topology.size);
  return group_.context().copy_to_device(words_.bases()[topology.rank] + words.verdict(), &told,
                                         sizeof told);
}

absl::Status Transports::own_verdict() const {
  const auto failed = [&](const std::string& text, absl::StatusCode code) {
    // What was asked for makes no sense, or it is not to be had here: whatever the reason.
    const bool is_wrong = code == absl::StatusCode::kInvalidArgument;
    return absl::Status(is_wrong ? code : absl::StatusCode::kFailedPrecondition,
                        text + ". `ccoctl transports` shows every pair");
  };
  for (const Outcome& outcome : outcomes_) {
    if (outcome.provider.empty()) {
      return failed(absl::StrFormat("rank %d has no %s: %s", group_.topology().rank,
                                    outcome.transport, outcome.detail),
                    outcome.code);
    }
    for (uint32_t peer = 0; peer < outcome.peer_faults.size(); ++peer) {
      if (outcome.peer_faults[peer].empty()) continue;
      return with_error_rank(failed(absl::StrFormat("rank %d does not reach rank %d by %s (%s): %s",
                                                    group_.topology().rank, peer, outcome.transport,
                                                    outcome.provider, outcome.peer_faults[peer]),
                                    outcome.code),
                             static_cast<int>(peer));
    }
  }
  return absl::OkStatus();
}

absl::Status Transports::verdict() {
  CCO_RETURN_IF_ERROR(own_verdict());
  const Topology& topology = group_.topology();
  const ProofWords words = proof_words(layout_.proof_offset, kSdmaPart, topology.size);
  for (uint32_t peer = 0; peer < topology.size; ++peer) {
    uint64_t told = kNotTold;
    CCO_RETURN_IF_ERROR(
        group_.context().copy_to_host(&told, words_.bases()[peer] + words.verdict(), sizeof told));
    if (told == kSound) continue;
    return with_error_rank(
        absl::FailedPreconditionError(absl::StrFormat(
            "rank %d lacks a transport that was asked for: its own error says why, and `ccoctl "
            "transports` shows every pair",
            peer)),
        static_cast<int>(peer));
  }
  return absl::OkStatus();
}

absl::Status Transports::clear() {
  if (sdma_ != nullptr) sdma_->restart_signals();
  if (gda_ != nullptr) gda_->restart_signals();
  const Topology& topology = group_.topology();
  const uint64_t own = words_.bases()[topology.rank];
  if (options_.sdma.has_value()) {
    CCO_RETURN_IF_ERROR(group_.context().fill_zero(
        own + options_.sdma->signal_offset,
        sdma_signal_bytes(topology.lsa_size, options_.sdma->queue_count)));
  }
  if (!options_.gda.has_value()) return absl::OkStatus();
  return group_.context().fill_zero(
      own + options_.gda->signal_offset,
      gda_signal_bytes(*options_.gda, topology.size, topology.lsa_size));
}

absl::Status Transports::status() const {
  absl::Status met = sdma_ == nullptr ? absl::OkStatus() : sdma_->status();
  if (met.ok() && gda_ != nullptr) met = gda_->status();
  if (met.ok()) return met;
  const absl::Status told = absl::InternalError(met.message());
  const std::optional<uint32_t> peer = peer_of(met);
  return peer.has_value() ? with_error_rank(told, static_cast<int>(*peer)) : told;
}

}  // namespace cco::client
