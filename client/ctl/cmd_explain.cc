// ccoctl explain: for each pair of ranks of a group, reachable how, through what, and if not, why.
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

std::string state_name(v1::MemberState state) {
  switch (state) {
    case v1::MEMBER_STATE_LIVE:
      return "live";
    case v1::MEMBER_STATE_LOST:
      return "lost";
    case v1::MEMBER_STATE_LEFT:
      return "left";
    default:
      return "unknown";
  }
}

std::string describe(const v1::ExplainGroupResponse& explained) {
  const v1::GroupInfo& group = explained.group();
  std::string text =
      absl::StrCat("group ", group.group_id(), " ", group.name(), group.name().empty() ? "" : ": ",
                   group.state(), ", ", group.size(), " ranks, epoch ", group.epoch(), "\n\n");
  Table members({{"RANK", Align::kRight}, {"GPU"}, {"PID", Align::kRight}, {"STATE"}});
  for (const v1::Member& member : group.members()) {
    members.add({absl::StrCat(member.rank()), member.gpu_uuid(), absl::StrCat(member.pid()),
                 state_name(member.state())});
  }
  Table pairs({{"RANK", Align::kRight}, {"PEER", Align::kRight}, {"TRANSPORT"}, {"DETAIL"}});
  for (const v1::PairInfo& pair : explained.pairs()) {
    pairs.add(
        {absl::StrCat(pair.rank()), absl::StrCat(pair.peer()), pair.transport(), pair.detail()});
  }
  absl::StrAppend(&text, members.text(), "\n", pairs.text());
  for (const std::string& call : group.pending()) absl::StrAppend(&text, "\nwaiting: ", call, "\n");
  return text;
}

absl::StatusOr<int> run_explain(const Settings& settings, const std::string& name) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  CCO_ASSIGN_OR_RETURN(const v1::ListGroupsResponse groups, list_groups(*connection, settings));
  CCO_ASSIGN_OR_RETURN(const v1::GroupInfo group, find_group(groups, name));
  v1::ExplainGroupResponse explained;
  if (group.group_id() == 0) {
    *explained.mutable_group() = group;  // Still forming: who has come, and whom it waits for.
  } else {
    CCO_ASSIGN_OR_RETURN(explained, explain_group(*connection, settings, group.group_id()));
  }
  if (settings.json) return print_json(explained);
  print(describe(explained));
  return kExitOk;
}

}  // namespace

Runner define_explain(CLI::App& app, const Settings& settings) {
  auto group = std::make_shared<std::string>();  // Filled by the parser, read by the runner.
  app.add_option("group", *group, "its id or name")->required();
  return [group, &settings] { return run_explain(settings, *group); };
}

}  // namespace cco::ctl
