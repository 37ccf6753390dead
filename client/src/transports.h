// A communicator's transports beside LSA: opened, proved by moving bytes, reported to the daemon.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/src/comm_layout.h"
#include "client/src/window.h"

namespace cco::client {

/// Room among the communicator's words for what transports prove themselves with.
uint64_t proof_bytes(uint32_t world_size);

/// Destroyed after the kernels that use it.
class Transports {
 public:
  /// Opens what is asked for. Local; what failed is kept for verdict().
  static std::unique_ptr<Transports> open(Group& group, const Window& words,
                                          const CommOptions& options, const CommLayout& layout);

  /// For `device`: the transports that were opened, and where their structs are.
  void describe(cco_device_comm* device) const;

  /// Moves a nonce to every peer and back by every transport and queue, within a budget. Only when
  /// all ranks have opened theirs: setting up queues waits for kernels of the process that are
  /// running, and these wait for their engines.
  void prove(const cco_device_comm& device);

  /// Tells the daemon, for `ccoctl transports`, and the other ranks, through their words.
  absl::Status publish();

  /// After all ranks have published: OK if every rank has what it asked for. FAILED_PRECONDITION:
  /// says what was tried; with the rank.
  absl::Status verdict();

  /// Signals and counters are as if nothing had been proved. After all ranks have their verdict.
  absl::Status clear();

  /// The first error that a queue has met since.
  absl::Status status() const;

 private:
  struct Outcome {
    std::string transport;                                          // "sdma", "gda".
    std::string provider;                                           // Empty: none.
    absl::StatusCode code = absl::StatusCode::kFailedPrecondition;  // Of the failure, if any.
    std::string detail;
    uint32_t part = 0;  // Of the words for proofs.
    GpuFunction proof;
    std::vector<std::string> peer_faults;  // By world rank; empty: sound.
    std::vector<bool> connected;           // By world rank.
    std::string unconnected;               // Why the others are not.
  };

  Transports(Group& group, const Window& words, const CommOptions& options,
             const CommLayout& layout);
  void open_sdma();
  void open_gda();
  /// Keeps what has been opened, with the kernel that proves it; or why it cannot be had.
  void conclude(Outcome outcome, const absl::Status& opened, const char* proof);
  absl::Status load_proof(const char* kernel, Outcome* outcome);
  /// Microseconds it took.
  absl::StatusOr<double> run_proof(const Outcome& outcome, const cco_device_comm& device,
                                   std::vector<uint64_t>* results);
  void prove_one(const cco_device_comm& device, Outcome* outcome);
  absl::Status own_verdict() const;

  Group& group_;
  const Window& words_;
  const CommOptions options_;
  const CommLayout layout_;
  const TransportTeam team_;
  std::unique_ptr<SdmaProvider> sdma_;
  std::unique_ptr<GdaProvider> gda_;
  std::unique_ptr<GpuStream> stream_;  // For proofs.
  std::vector<Outcome> outcomes_;      // One for each transport that was asked for.
};

}  // namespace cco::client
