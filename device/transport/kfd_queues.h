// Provider "user-queue": queues of AMD's copy engines that kernels fill and ring themselves.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "device/transport/kfd_topology.h"
#include "device/transport/sdma_provider.h"

namespace cco {

struct KfdOptions {
  std::string nodes_path = kKfdNodesPath;
  /// Engines that this process may use, a bit each: they have 6 or 8 queues and are shared by all
  /// processes, so somebody must say who gets which.
  uint32_t allowed_engines = ~0u;
};

/// Needs team.arch and team.pci_bus_ids. $CCO_HSAKMT_LIBRARY may name the library.
///
/// FAILED_PRECONDITION: not an AMD GPU, no AMD driver, no libhsakmt, or a GPU that the driver does
/// not know. RESOURCE_EXHAUSTED: no engine has a queue left; the message names the peer.
absl::StatusOr<std::unique_ptr<SdmaProvider>> open_kfd_queues(const TransportTeam& team,
                                                              const SdmaPlan& plan,
                                                              const KfdOptions& options = {});

}  // namespace cco
