// ccoctl gpus: the node's GPUs and the slabs on them.
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

// A driver call that has been running for longer than this is worth a word.
constexpr uint64_t kStuckMs = 5000;

// What its driver is at, operators alone are told.
std::string state_of(const v1::Gpu& gpu, bool is_operator) {
  std::string state = gpu.state();
  if (state == "draining") state += ", " + human_duration(gpu.drain_left_ms()) + " left";
  if (gpu.revoked_bytes() > 0) state += ", " + human_bytes(gpu.revoked_bytes()) + " let go of";
  if (gpu.busy_ms() >= kStuckMs) state += ", stuck for " + human_duration(gpu.busy_ms());
  if (state != "serving" || !is_operator) return state;
  return gpu.busy_ms() > 0 ? "busy" : "idle";
}

// "2: 12 GiB".
std::string waiting_for(const v1::Gpu& gpu) {
  if (gpu.waiting_count() == 0) return "-";
  return absl::StrCat(gpu.waiting_count(), ": ", human_bytes(gpu.waiting_bytes()));
}

absl::StatusOr<int> run_gpus(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  CCO_ASSIGN_OR_RETURN(const v1::GetNodeResponse node, get_node(*connection, settings));
  if (settings.json) return print_json(node);
  Table table({{"UUID"},
               {"PCI"},
               {"NAME"},
               {"ARCH"},
               {"MEMORY", Align::kRight},
               {"LIMIT", Align::kRight},
               {"SLABS", Align::kRight},
               {"BYTES", Align::kRight},
               {"RESERVED", Align::kRight},
               {"QUARANTINED", Align::kRight},
               {"HELD", Align::kRight},
               {"KEPT", Align::kRight},
               {"WAITING", Align::kRight},
               {"STATE"}});
  for (const v1::Gpu& gpu : node.gpus()) {
    table.add({gpu.uuid(), gpu.pci_bus_id().empty() ? "-" : gpu.pci_bus_id(), gpu.name(),
               gpu.arch(), human_bytes(gpu.total_bytes()), human_bytes(gpu.limit_bytes()),
               absl::StrCat(gpu.slab_count()), human_bytes(gpu.slab_bytes()),
               human_bytes(gpu.reserved_bytes()), human_bytes(gpu.quarantined_bytes()),
               human_bytes(gpu.held_bytes()), human_bytes(gpu.kept_bytes()), waiting_for(gpu),
               state_of(gpu, node.caller_is_operator())});
  }
  print(table.text());
  return kExitOk;
}

}  // namespace

Runner define_gpus(CLI::App&, const Settings& settings) {
  return [&settings] { return run_gpus(settings); };
}

}  // namespace cco::ctl
