// ccoctl sessions: attached processes.
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

absl::StatusOr<int> run_sessions(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  auto listed = list_all<v1::ListSessionsRequest, v1::ListSessionsResponse>(
      *connection, &v1::MemdService::Stub::ListSessions, {}, settings);
  CCO_RETURN_IF_ERROR(listed.status());
  if (settings.json) return print_json(*listed);
  Table table({{"ID", Align::kRight},
               {"PID", Align::kRight},
               {"UID", Align::kRight},
               {"GID", Align::kRight},
               {"STATE"},
               {"AGE", Align::kRight},
               {"RANKS", Align::kRight},
               {"WINDOWS", Align::kRight},
               {"TICKETS", Align::kRight},
               {"ATTACHED", Align::kRight},
               {"SLABS", Align::kRight}});
  for (const v1::SessionInfo& session : listed->sessions()) {
    table.add({absl::StrCat(session.session_id()), absl::StrCat(session.pid()),
               absl::StrCat(session.uid()), absl::StrCat(session.gid()), session.state(),
               human_duration(session.age_ms()), absl::StrCat(session.rank_count()),
               absl::StrCat(session.window_count()), absl::StrCat(session.ticket_count()),
               absl::StrCat(session.attachment_count()), human_bytes(session.slab_bytes())});
  }
  print(table.text());
  return kExitOk;
}

}  // namespace

Runner define_sessions(CLI::App&, const Settings& settings) {
  return [&settings] { return run_sessions(settings); };
}

}  // namespace cco::ctl
