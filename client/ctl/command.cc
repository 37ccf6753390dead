#include "client/ctl/command.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"

namespace cco::ctl {

absl::Span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"status", "the daemon: version, driver, limits and how much of them is used", define_status},
      {"gpus", "the node's GPUs and the slabs on them", define_gpus},
      {"groups", "groups, their state, and collective calls that wait", define_groups},
      {"windows", "windows of all groups, or of one", define_windows},
      {"kept", "windows that nobody uses and whose memory is kept", define_kept},
      {"sessions", "attached processes", define_sessions},
      {"tenants", "who is accounted together, what each may have, and has", define_tenants},
      {"lease", "keeps memory for a job whose processes are still to come", define_lease},
      {"explain", "for each pair of ranks of a group: reachable how, and if not, why",
       define_explain},
      {"transports", "for each pair of ranks and transport: provider, limits, and if none, why",
       define_transports},
      {"doctor", "checks socket, permissions, limits, driver and peer access", define_doctor},
      {"run", "starts N ranks of a command on this node", define_run},
      {"abort", "ends a group's collective calls and device waits, for good", define_abort},
      {"evict", "frees the memory of a kept window", define_evict},
      {"drain", "takes GPUs out of service: the daemon lets go of them completely", define_drain},
      {"undrain", "brings drained GPUs back", define_undrain},
      {"completion", "prints a completion script for bash, zsh or fish", define_completion},
  };
  return kCommands;
}

absl::StatusOr<std::string> Settings::socket_path() const {
  if (!socket.empty()) return socket;
  return Connection::default_socket_path();
}

absl::StatusOr<std::unique_ptr<Connection>> connect(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::string path, settings.socket_path());
  return Connection::open(path, settings.timeout());
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

absl::StatusOr<int> print_json(const google::protobuf::Message& message) {
  CCO_ASSIGN_OR_RETURN(const std::string text, to_json(message));
  print(text);
  return kExitOk;
}

absl::StatusOr<v1::GetNodeResponse> get_node(Connection& connection, const Settings& settings) {
  v1::GetNodeResponse node;
  CCO_RETURN_IF_ERROR(connection.call(&v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &node,
                                      settings.timeout()));
  return node;
}

absl::StatusOr<v1::ListGroupsResponse> list_groups(Connection& connection,
                                                   const Settings& settings) {
  return list_all<v1::ListGroupsRequest, v1::ListGroupsResponse>(
      connection, &v1::MemdService::Stub::ListGroups, {}, settings);
}

absl::StatusOr<v1::ListKeptResponse> list_kept(Connection& connection, const Settings& settings) {
  return list_all<v1::ListKeptRequest, v1::ListKeptResponse>(
      connection, &v1::MemdService::Stub::ListKept, {}, settings);
}

absl::StatusOr<v1::ExplainGroupResponse> explain_group(Connection& connection,
                                                       const Settings& settings,
                                                       uint64_t group_id) {
  v1::ExplainGroupRequest request;
  request.set_group_id(group_id);
  return list_all<v1::ExplainGroupRequest, v1::ExplainGroupResponse>(
      connection, &v1::MemdService::Stub::ExplainGroup, request, settings);
}

absl::StatusOr<v1::GroupInfo> find_group(const v1::ListGroupsResponse& groups,
                                         const std::string& id_or_name) {
  uint64_t id = 0;
  const bool is_id = absl::SimpleAtoi(id_or_name, &id) && id != 0;
  std::vector<const v1::GroupInfo*> named;
  std::vector<std::string> known;
  for (const v1::GroupInfo& group : groups.groups()) {
    if (is_id && group.group_id() == id) return group;
    if (!id_or_name.empty() && group.name() == id_or_name) named.push_back(&group);
    known.push_back(absl::StrCat(group.group_id(), group.name().empty() ? "" : " ", group.name()));
  }
  if (named.size() == 1) return *named[0];
  if (named.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(named.size(), " groups have the name '", id_or_name, "': take an id, ",
                     absl::StrJoin(named, " or ", [](std::string* out, const v1::GroupInfo* group) {
                       absl::StrAppend(out, group->group_id(), " (uid ", group->uid(), ")");
                     })));
  }
  return absl::NotFoundError(
      absl::StrCat("no group with the id or name '", id_or_name, "'; there ",
                   known.empty() ? "are none" : absl::StrCat("are: ", absl::StrJoin(known, ", "))));
}

}  // namespace cco::ctl
