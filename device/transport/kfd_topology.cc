#include "device/transport/kfd_topology.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cco {
namespace {

namespace fs = std::filesystem;

using Properties = std::map<std::string, uint64_t>;

Properties read_properties(const fs::path& path) {
  std::ifstream file(path);
  Properties properties;
  std::string name;
  for (uint64_t value = 0; file >> name >> value;) properties[name] = value;
  return properties;
}

/// Folders are named by number; what else is there is no concern of ours.
std::vector<std::pair<uint32_t, fs::path>> numbered(const fs::path& path) {
  std::vector<std::pair<uint32_t, fs::path>> result;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    uint32_t number = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &number)) {
      result.emplace_back(number, entry.path());
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// A GPU's location is bus, device and function in 8, 5 and 3 bits.
std::string pci_bus_id(const Properties& properties) {
  const auto at = [&](const char* name) {
    const auto found = properties.find(name);
    return found == properties.end() ? 0 : found->second;
  };
  const uint64_t location = at("location_id");
  return absl::StrFormat("%04x:%02x:%02x.%x", at("domain"), location >> 8 & 0xff,
                         location >> 3 & 0x1f, location & 7);
}

}  // namespace

std::vector<uint32_t> KfdNode::engines_to(const KfdNode& peer) const {
  const uint32_t count = std::min(engine_count + xgmi_engine_count, 32u);
  const auto found = recommended.find(peer.id);
  const uint32_t mask = found == recommended.end() ? 0 : found->second;
  std::vector<uint32_t> engines;
  for (uint32_t engine = 0; engine < count; ++engine) {
    if ((mask >> engine & 1) != 0) engines.push_back(engine);
  }
  if (!engines.empty() || count == 0) return engines;
  // Within the GPU nothing is recommended: a general engine. To a peer without: any for peers.
  const bool is_loopback = peer.id == id || xgmi_engine_count == 0;
  for (uint32_t engine = is_loopback ? 0 : engine_count;
       engine < (is_loopback ? std::min(std::max(engine_count, 1u), count) : count); ++engine) {
    engines.push_back(engine);
  }
  return engines;
}

absl::StatusOr<std::vector<KfdNode>> read_kfd_nodes(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no folder ", path, ": AMD's kernel driver (amdgpu) is not loaded"));
  }
  std::vector<KfdNode> nodes;
  for (const auto& [id, folder] : numbered(path)) {
    const Properties properties = read_properties(folder / "properties");
    const auto at = [&properties = properties](const char* name) {
      const auto found = properties.find(name);
      return found == properties.end() ? 0u : static_cast<uint32_t>(found->second);
    };
    if (at("simd_count") == 0) continue;  // A CPU.
    KfdNode node;
    node.id = id;
    node.pci_bus_id = pci_bus_id(properties);
    node.engine_count = at("num_sdma_engines");
    node.xgmi_engine_count = at("num_sdma_xgmi_engines");
    for (const char* kind : {"io_links", "p2p_links"}) {
      for (const auto& link : numbered(folder / kind)) {
        const Properties facts = read_properties(link.second / "properties");
        const auto to = facts.find("node_to");
        const auto mask = facts.find("recommended_sdma_engine_id_mask");
        if (to == facts.end() || mask == facts.end() || mask->second == 0) continue;
        node.recommended[static_cast<uint32_t>(to->second)] = static_cast<uint32_t>(mask->second);
      }
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

const KfdNode* find_kfd_node(const std::vector<KfdNode>& nodes, std::string_view pci_bus_id) {
  const std::string wanted = absl::AsciiStrToLower(std::string(pci_bus_id));
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const KfdNode& node) { return node.pci_bus_id == wanted; });
  return found == nodes.end() ? nullptr : &*found;
}

}  // namespace cco
