// ccoctl abort: ends a group's collective calls and device waits, for good.
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"

namespace cco::ctl {
namespace {

absl::StatusOr<int> run_abort(const Settings& settings, const std::string& name) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  CCO_ASSIGN_OR_RETURN(const v1::ListGroupsResponse groups, list_groups(*connection, settings));
  CCO_ASSIGN_OR_RETURN(const v1::GroupInfo group, find_group(groups, name));
  if (group.group_id() == 0) {
    return absl::FailedPreconditionError("group '" + name +
                                         "' is still forming: its ranks' own time-outs end that");
  }
  v1::AbortGroupRequest request;
  request.set_request_id(new_request_id());
  request.set_group_id(group.group_id());
  v1::AbortGroupResponse response;
  CCO_RETURN_IF_ERROR(
      connection->call(&v1::MemdService::Stub::AbortGroup, request, &response, settings.timeout()));
  if (settings.json) return print_json(response);
  print(absl::StrCat("group ", group.group_id(), " ", group.name(), " is aborted\n"));
  return kExitOk;
}

}  // namespace

Runner define_abort(CLI::App& app, const Settings& settings) {
  auto group = std::make_shared<std::string>();  // Filled by the parser, read by the runner.
  app.add_option("group", *group, "its id or name")->required();
  return [group, &settings] { return run_abort(settings, *group); };
}

}  // namespace cco::ctl
