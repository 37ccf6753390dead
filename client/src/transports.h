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

  /// Moves a nonce to every peer and back by every transport and queue, within a budget. The words
  /// of all ranks are zero before, and stay in use until all ranks are done.
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
    std::vector<std::string> peer_faults;  // By world rank; empty: sound.
    std::vector<bool> connected;           // By world rank.
  };

  Transports(Group& group, const Window& words, const CommOptions& options,
             const CommLayout& layout)
      : group_(group), words_(words), options_(options), layout_(layout) {}
  void open_sdma();
  void open_gda();
  absl::StatusOr<double> run_proof(const char* kernel, const cco_device_comm& device, uint32_t part,
                                   std::vector<uint64_t>* results);
  void prove_one(const char* kernel, const cco_device_comm& device, uint32_t part,
                 Outcome* outcome);
  absl::Status own_verdict() const;
  TransportTeam team() const;

  Group& group_;
  const Window& words_;
  const CommOptions options_;
  const CommLayout layout_;
  std::unique_ptr<SdmaProvider> sdma_;
  std::unique_ptr<GdaProvider> gda_;
  std::vector<Outcome> outcomes_;  // One for each transport that was asked for.
};

}  // namespace cco::client
