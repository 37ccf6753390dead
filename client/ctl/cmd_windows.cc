// ccoctl windows: windows of all groups, or of one.
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

std::string placement_name(v1::Placement placement) {
  switch (placement) {
    case v1::PLACEMENT_HEAP:
      return "heap";
    case v1::PLACEMENT_CONTROL:
      return "control";
    case v1::PLACEMENT_EXTERNAL:
      return "external";
    default:
      return absl::StrCat("unknown (", static_cast<int>(placement), ")");
  }
}

// "team:read,other:write".
std::string sharing_of(const v1::WindowInfo& window) {
  std::string text;
  for (const v1::GrantInfo& grant : window.grants()) {
    absl::StrAppend(&text, text.empty() ? "" : ",", grant.grantee(), ":",
                    grant.access() == v1::ACCESS_READ_WRITE ? "write"
                    : grant.is_enforced()                   ? "read"
                                                            : "read(not-enforced)");
  }
  return text.empty() ? "-" : text;
}

absl::StatusOr<int> run_windows(const Settings& settings, const std::string& group) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  v1::ListWindowsRequest request;
  if (!group.empty()) {
    CCO_ASSIGN_OR_RETURN(const v1::ListGroupsResponse groups, list_groups(*connection, settings));
    CCO_ASSIGN_OR_RETURN(const v1::GroupInfo found, find_group(groups, group));
    if (found.group_id() == 0) {
      return absl::FailedPreconditionError("group '" + group + "' is forming: no windows yet");
    }
    request.set_group_id(found.group_id());
  }
  auto listed = list_all<v1::ListWindowsRequest, v1::ListWindowsResponse>(
      *connection, &v1::MemdService::Stub::ListWindows, request, settings);
  CCO_RETURN_IF_ERROR(listed.status());
  if (settings.json) return print_json(*listed);
  Table table({{"GROUP", Align::kRight},
               {"ID", Align::kRight},
               {"NAME"},
               {"PLACEMENT"},
               {"OFFSET", Align::kRight},
               {"SIZE", Align::kRight},
               {"SLAB", Align::kRight},
               {"GENERATION", Align::kRight},
               {"USERS", Align::kRight},
               {"ATTACHED", Align::kRight},
               {"GRANTED TO"}});
  for (const v1::WindowInfo& window : listed->windows()) {
    table.add({absl::StrCat(window.group_id()), absl::StrCat(window.window_id()),
               window.name().empty() ? "-" : window.name(), placement_name(window.placement()),
               absl::StrCat("0x", absl::Hex(window.offset())), human_bytes(window.size_bytes()),
               absl::StrCat(window.slab_index()), absl::StrCat(window.generation()),
               absl::StrCat(window.user_count()), absl::StrCat(window.attachment_count()),
               sharing_of(window)});
  }
  print(table.empty() ? "no windows\n" : table.text());
  return kExitOk;
}

}  // namespace

Runner define_windows(CLI::App& app, const Settings& settings) {
  auto group = std::make_shared<std::string>();  // Filled by the parser, read by the runner.
  app.add_option("--group", *group, "only of this group: its id or name");
  return [group, &settings] { return run_windows(settings, *group); };
}

}  // namespace cco::ctl
