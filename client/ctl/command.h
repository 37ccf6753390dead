// A subcommand of ccoctl, and what all of them share.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/ctl/json.h"
#include "client/src/connection.h"

namespace CLI {
class App;
}

namespace cco::ctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

/// The options before the subcommand.
struct Settings {
  std::string socket;  ///< Empty: Connection::default_socket_path().
  uint32_t timeout_ms = 5000;
  bool json = false;

  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_ms); }
  absl::StatusOr<std::string> socket_path() const;
};

/// Does the work; returns the exit code. An error is printed by main() and becomes kExitFailed.
using Runner = std::function<absl::StatusOr<int>()>;

struct Command {
  const char* name;
  const char* summary;
  /// Adds the subcommand's options to `app`. `settings` and `app` outlive the runner.
  Runner (*define)(CLI::App& app, const Settings& settings);
};

/// All subcommands, in the order of the help text.
absl::Span<const Command> commands();

Runner define_status(CLI::App& app, const Settings& settings);
Runner define_gpus(CLI::App& app, const Settings& settings);
Runner define_groups(CLI::App& app, const Settings& settings);
Runner define_windows(CLI::App& app, const Settings& settings);
Runner define_kept(CLI::App& app, const Settings& settings);
Runner define_evict(CLI::App& app, const Settings& settings);
Runner define_sessions(CLI::App& app, const Settings& settings);
Runner define_tenants(CLI::App& app, const Settings& settings);
Runner define_lease(CLI::App& app, const Settings& settings);
Runner define_explain(CLI::App& app, const Settings& settings);
Runner define_transports(CLI::App& app, const Settings& settings);
Runner define_doctor(CLI::App& app, const Settings& settings);
Runner define_run(CLI::App& app, const Settings& settings);
Runner define_abort(CLI::App& app, const Settings& settings);
Runner define_drain(CLI::App& app, const Settings& settings);
Runner define_undrain(CLI::App& app, const Settings& settings);
Runner define_completion(CLI::App& app, const Settings& settings);

absl::StatusOr<std::unique_ptr<Connection>> connect(const Settings& settings);

void print(const std::string& text);
absl::StatusOr<int> print_json(const google::protobuf::Message& message);

/// All pages of a listing, merged into one response.
template <typename Request, typename Response>
absl::StatusOr<Response> list_all(Connection& connection,
                                  Connection::Method<Request, Response> method, Request request,
                                  const Settings& settings) {
  constexpr int kMaxPages = 2000, kPageSize = 1000;  // All pairs of 1024 ranks, and more.
  Response all;
  request.set_page_size(kPageSize);
  for (int page_count = 0; page_count < kMaxPages; ++page_count) {
    Response page;
    const absl::Status status = connection.call(method, request, &page, settings.timeout());
    if (!status.ok()) return status;
    request.set_page_token(page.next_page_token());
    page.clear_next_page_token();
    all.MergeFrom(page);
    if (request.page_token().empty()) return all;
  }
  return absl::ResourceExhaustedError(absl::StrCat("the daemon's list did not end after ",
                                                   kMaxPages, " pages of ", kPageSize,
                                                   " entries; is it a cco-memd?"));
}

absl::StatusOr<v1::GetNodeResponse> get_node(Connection& connection, const Settings& settings);
absl::StatusOr<v1::ListGroupsResponse> list_groups(Connection& connection,
                                                   const Settings& settings);

absl::StatusOr<v1::ExplainGroupResponse> explain_group(Connection& connection,
                                                       const Settings& settings, uint64_t group_id);

absl::StatusOr<v1::ListKeptResponse> list_kept(Connection& connection, const Settings& settings);

/// Finds a group by its id (decimal) or name. NOT_FOUND lists the groups there are;
/// INVALID_ARGUMENT when several tenants have a group of that name.
absl::StatusOr<v1::GroupInfo> find_group(const v1::ListGroupsResponse& groups,
                                         const std::string& id_or_name);

}  // namespace cco::ctl
