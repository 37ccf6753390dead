// Which copy engines AMD's kernel driver says there are, and which it recommends for which peer.
// From sysfs, whose names are stable (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cco {

struct KfdNode {
  uint32_t id = 0;
  std::string pci_bus_id;                    ///< "0000:18:00.0"
  uint32_t engine_count = 0;                 ///< General ones; they come first.
  uint32_t xgmi_engine_count = 0;            ///< Those for peers.
  std::map<uint32_t, uint32_t> recommended;  ///< Mask of engines, by the node that a link leads to.

  /// Engines for copies to `peer`, best first; never empty if the node has any.
  std::vector<uint32_t> engines_to(const KfdNode& peer) const;
};

inline constexpr char kKfdNodesPath[] = "/sys/class/kfd/kfd/topology/nodes";

/// The node's GPUs. FAILED_PRECONDITION: no such folder, which means no AMD driver.
absl::StatusOr<std::vector<KfdNode>> read_kfd_nodes(const std::string& path);

/// Null if it is not there.
const KfdNode* find_kfd_node(const std::vector<KfdNode>& nodes, std::string_view pci_bus_id);

}  // namespace cco
