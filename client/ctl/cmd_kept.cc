// ccoctl kept: windows that nobody uses and whose memory is kept.
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

absl::StatusOr<int> run_kept(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  CCO_ASSIGN_OR_RETURN(const v1::ListKeptResponse listed, list_kept(*connection, settings));
  if (settings.json) return print_json(listed);
  Table table({{"ID", Align::kRight},
               {"GROUP"},
               {"NAME"},
               {"TENANT"},
               {"RANKS", Align::kRight},
               {"SIZE", Align::kRight},
               {"BYTES", Align::kRight},
               {"KEPT FOR", Align::kRight},
               {"EXPIRES IN", Align::kRight}});
  for (const v1::KeptWindowInfo& window : listed.windows()) {
    table.add({absl::StrCat(window.window_id()), window.group_name(), window.name(),
               window.tenant(), absl::StrCat(window.gpu_uuids_size()),
               human_bytes(window.size_bytes()), human_bytes(window.slab_bytes()),
               human_duration(window.keep_ms()), human_duration(window.expires_in_ms())});
  }
  print(table.empty() ? "no kept windows\n" : table.text());
  return kExitOk;
}

}  // namespace

Runner define_kept(CLI::App&, const Settings& settings) {
  return [&settings] { return run_kept(settings); };
}

}  // namespace cco::ctl
