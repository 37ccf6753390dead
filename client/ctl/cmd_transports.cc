// ccoctl transports: what was chosen for each pair of ranks and transport, and why.
#include <CLI/CLI.hpp>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/report.pb.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

namespace report = ::cco::report::v1;

void add_rows(const v1::ExplainGroupResponse& explained, report::TransportTable* table) {
  const auto add = [&](const v1::PairInfo& pair) {
    report::TransportRow* row = table->add_rows();
    row->set_group_id(explained.group().group_id());
    row->set_group(explained.group().name());
    row->set_rank(pair.rank());
    row->set_peer(pair.peer());
    return row;
  };
  for (const v1::PairInfo& pair : explained.pairs()) {
    report::TransportRow* const lsa = add(pair);
    lsa->set_transport("lsa");
    lsa->set_usable(pair.transport() == "lsa");
    lsa->set_provider(lsa->usable() ? "load/store" : "");
    lsa->set_detail(pair.detail());
    for (const char* const transport : {"sdma", "tdm", "gda"}) {
      report::TransportRow* const row = add(pair);
      row->set_transport(transport);
      const auto found = absl::c_find_if(
          pair.transports(), [&](const auto& entry) { return entry.transport() == transport; });
      if (found == pair.transports().end()) {
        row->set_detail("not tried: no communicator has asked for SDMA or GDA between these two");
        continue;
      }
      row->set_usable(found->usable());
      row->set_provider(found->provider());
      row->set_detail(found->detail());
    }
  }
}

std::string describe(const report::TransportTable& rows) {
  if (rows.rows().empty()) return "no groups\n";
  Table table({{"GROUP"},
               {"RANK", Align::kRight},
               {"PEER", Align::kRight},
               {"TRANSPORT"},
               {"PROVIDER"},
               {"DETAIL"}});
  for (const report::TransportRow& row : rows.rows()) {
    const std::string group = row.group().empty() ? absl::StrCat("#", row.group_id()) : row.group();
    table.add({group, absl::StrCat(row.rank()), absl::StrCat(row.peer()), row.transport(),
               row.usable() ? row.provider() : "none", row.detail()});
  }
  return table.text();
}

absl::StatusOr<int> run_transports(const Settings& settings, const std::string& name) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  CCO_ASSIGN_OR_RETURN(const v1::ListGroupsResponse groups, list_groups(*connection, settings));
  std::vector<v1::GroupInfo> chosen(groups.groups().begin(), groups.groups().end());
  if (!name.empty()) {
    CCO_ASSIGN_OR_RETURN(const v1::GroupInfo group, find_group(groups, name));
    chosen = {group};
  }
  report::TransportTable table;
  for (const v1::GroupInfo& group : chosen) {
    if (group.group_id() == 0) continue;  // Still forming: nothing has been tried.
    CCO_ASSIGN_OR_RETURN(const v1::ExplainGroupResponse explained,
                         explain_group(*connection, settings, group.group_id()));
    add_rows(explained, &table);
  }
  if (settings.json) return print_json(table);
  print(describe(table));
  return kExitOk;
}

}  // namespace

Runner define_transports(CLI::App& app, const Settings& settings) {
  auto group = std::make_shared<std::string>();  // Filled by the parser, read by the runner.
  app.add_option("group", *group, "its id or name; all groups if absent");
  return [group, &settings] { return run_transports(settings, *group); };
}

}  // namespace cco::ctl
