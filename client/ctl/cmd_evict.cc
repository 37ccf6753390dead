// ccoctl evict: frees the memory of a kept window.
#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

struct Names {
  std::string group;
  std::string window;
  std::string tenant;  // Empty: of any.
  uint64_t id = 0;     // 0: any.
};

absl::StatusOr<v1::KeptWindowInfo> find_kept(const v1::ListKeptResponse& listed,
                                             const Names& names) {
  std::vector<v1::KeptWindowInfo> found;
  for (const v1::KeptWindowInfo& window : listed.windows()) {
    if (window.group_name() == names.group && window.name() == names.window &&
        (names.tenant.empty() || window.tenant() == names.tenant) &&
        (names.id == 0 || window.window_id() == names.id)) {
      found.push_back(window);
    }
  }
  if (found.size() == 1) return found[0];
  const std::string what =
      absl::StrCat("kept window '", names.window, "' of a group '", names.group, "'",
                   names.tenant.empty() ? "" : absl::StrCat(" of tenant '", names.tenant, "'"));
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no ", what, ": `ccoctl kept` lists them. One that a group uses is not kept"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there are ", found.size(), " of ", what, ": say which by --id, ",
                   found[0].window_id(), " (of tenant ", found[0].tenant(), ") or ",
                   found[1].window_id(), " (of tenant ", found[1].tenant(), ")"));
}

absl::StatusOr<int> run_evict(const Settings& settings, const Names& names) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  CCO_ASSIGN_OR_RETURN(const v1::ListKeptResponse listed, list_kept(*connection, settings));
  CCO_ASSIGN_OR_RETURN(const v1::KeptWindowInfo window, find_kept(listed, names));
  v1::EvictKeptRequest request;
  request.set_request_id(new_request_id());
  request.set_window_id(window.window_id());
  v1::EvictKeptResponse response;
  CCO_RETURN_IF_ERROR(
      connection->call(&v1::MemdService::Stub::EvictKept, request, &response, settings.timeout()));
  if (settings.json) return print_json(response);
  print(absl::StrCat("freed ", human_bytes(response.freed_bytes()),
                     response.held_bytes() == 0
                         ? ""
                         : absl::StrCat("; ", human_bytes(response.held_bytes()),
                                        " are held until who is attached has detached or exited "
                                        "(`ccoctl sessions`)"),
                     "\n"));
  return kExitOk;
}

}  // namespace

Runner define_evict(CLI::App& app, const Settings& settings) {
  auto names = std::make_shared<Names>();  // Filled by the parser, read by the runner.
  app.add_option("group", names->group, "the group's name")->required();
  app.add_option("window", names->window, "the window's name")->required();
  app.add_option("--tenant", names->tenant, "whose; where several have such a window");
  app.add_option("--id", names->id, "which; where several are kept with these names");
  return [names, &settings] { return run_evict(settings, *names); };
}

}  // namespace cco::ctl
