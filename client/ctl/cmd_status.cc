// ccoctl status: the daemon at a glance; without one, what can be seen from outside.
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/doctor.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

std::string describe(const v1::GetNodeResponse& node, const std::string& socket) {
  uint64_t total_bytes = 0;
  uint64_t slab_bytes = 0;
  for (const v1::Gpu& gpu : node.gpus()) {
    total_bytes += gpu.total_bytes();
    slab_bytes += gpu.slab_bytes();
  }
  const char* const whose = node.caller_is_operator() ? "" : " of your tenant";
  std::string text = absl::StrFormat("cco-memd %s, pid %d, up %s, on %s\n", node.version(),
                                     node.daemon_pid(), human_duration(node.uptime_ms()), socket);
  absl::StrAppend(&text, "driver    ", node.driver(), " (", node.driver_version(), ")\n");
  if (!node.driver_change().empty()) {
    absl::StrAppend(&text, "          CHANGED: ", node.driver_change(), "\n");
  }
  absl::StrAppend(&text, "gpus      ", node.gpus_size(), ", ", human_bytes(slab_bytes), " of ",
                  human_bytes(total_bytes), " in slabs", whose, "\n");
  absl::StrAppend(&text, "in use    ", node.session_count(), " sessions, ", node.group_count(),
                  " groups, ", node.window_count(), " windows", whose, "\n");
  if (node.caller_is_operator()) {
    absl::StrAppend(&text, "files     ", node.open_fds(), " of ", node.fd_limit(),
                    " descriptors\n");
  }
  absl::StrAppend(&text, "you       uid ", node.caller_uid(),
                  node.caller_is_operator() ? ", operator\n" : "\n");
  Table limits({{"LIMIT"}, {"USED", Align::kRight}, {"VALUE", Align::kRight}});
  for (const v1::Limit& limit : node.limits()) {
    limits.add({limit.name(), absl::StrCat(limit.used()), absl::StrCat(limit.value())});
  }
  if (!limits.empty()) absl::StrAppend(&text, "\n", limits.text());
  return text;
}

absl::StatusOr<int> run_status(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::string socket, settings.socket_path());
  absl::StatusOr<std::unique_ptr<Connection>> connection = connect(settings);
  if (!connection.ok()) {
    if (!settings.json) print(describe_absent_daemon(socket));
    return connection.status();
  }
  CCO_ASSIGN_OR_RETURN(const v1::GetNodeResponse node, get_node(**connection, settings));
  if (settings.json) return print_json(node);
  print(describe(node, socket));
  return kExitOk;
}

}  // namespace

Runner define_status(CLI::App&, const Settings& settings) {
  return [&settings] { return run_status(settings); };
}

}  // namespace cco::ctl
