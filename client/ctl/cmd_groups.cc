// ccoctl groups: groups, their state, and collective calls that wait.
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

std::string members_of(const v1::GroupInfo& group) {
  uint32_t live = 0;
  uint32_t lost = 0;
  for (const v1::Member& member : group.members()) {
    live += member.state() == v1::MEMBER_STATE_LIVE ? 1 : 0;
    lost += member.state() == v1::MEMBER_STATE_LOST ? 1 : 0;
  }
  std::string text = absl::StrCat(live, "/", group.size());
  if (lost > 0) absl::StrAppend(&text, " (", lost, " lost)");
  return text;
}

absl::StatusOr<int> run_groups(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  CCO_ASSIGN_OR_RETURN(const v1::ListGroupsResponse groups, list_groups(*connection, settings));
  if (settings.json) return print_json(groups);
  Table table({{"ID", Align::kRight},
               {"NAME"},
               {"UID", Align::kRight},
               {"STATE"},
               {"RANKS"},
               {"SLOT", Align::kRight},
               {"WINDOWS", Align::kRight},
               {"SLABS", Align::kRight},
               {"EPOCH", Align::kRight}});
  std::string waiting;
  for (const v1::GroupInfo& group : groups.groups()) {
    const std::string id = group.group_id() == 0 ? "-" : absl::StrCat(group.group_id());
    const std::string name = group.name().empty() ? "-" : group.name();
    table.add({id, name, absl::StrCat(group.uid()), group.state(), members_of(group),
               human_bytes(group.slot_bytes()), absl::StrCat(group.window_count()),
               human_bytes(group.slab_bytes()), absl::StrCat(group.epoch())});
    for (const std::string& call : group.pending()) {
      absl::StrAppend(&waiting, "group ", id, " ", name, ": ", call, "\n");
    }
  }
  print(table.empty() ? "no groups\n" : table.text());
  if (!waiting.empty()) print("\n" + waiting);
  return kExitOk;
}

}  // namespace

Runner define_groups(CLI::App&, const Settings& settings) {
  return [&settings] { return run_groups(settings); };
}

}  // namespace cco::ctl
