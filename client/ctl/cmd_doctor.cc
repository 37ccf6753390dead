// ccoctl doctor: is everything in place for this user to run on this node?
#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/doctor.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

std::string verdict_name(report::Verdict verdict) {
  switch (verdict) {
    case report::VERDICT_OK:
      return "ok";
    case report::VERDICT_BAD:
      return "BAD";
    default:
      return "unknown";
  }
}

// Everything that needs an answer of the daemon.
void check_daemon(const Settings& settings, report::Doctor* doctor) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  absl::StatusOr<std::unique_ptr<Connection>> connection = connect(settings);
  absl::StatusOr<v1::GetNodeResponse> node =
      connection.ok() ? get_node(**connection, settings) : connection.status();
  if (!node.ok()) {
    add_check(doctor, "daemon", report::VERDICT_BAD, std::string(node.status().message()),
              "ccoctl status shows what can be seen from outside; journalctl -u cco-memd");
    for (const char* name : {"driver", "gpus", "peer access"}) {
      add_check(doctor, name, report::VERDICT_UNKNOWN, "no daemon to compare with",
                "start cco-memd");
    }
    return;
  }
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;
  add_check(doctor, "daemon", report::VERDICT_OK,
            absl::StrFormat("cco-memd %s, pid %d, attached and answered in %.1f ms",
                            node->version(), node->daemon_pid(), elapsed.count()));
  check_bars(this_host(), *node, doctor);
  absl::StatusOr<std::unique_ptr<GpuDriver>> driver = check_driver(*node, doctor);
  if (!driver.ok()) return;
  check_gpus(*node, **driver, doctor);
  check_peer_access(**driver, doctor);
}

absl::StatusOr<int> run_doctor(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::string socket, settings.socket_path());
  report::Doctor doctor;
  check_sockets(socket, &doctor);
  check_limits(&doctor);
  check_machine(&doctor);
  rlimit memory{};
  ::getrlimit(RLIMIT_MEMLOCK, &memory);
  check_host(this_host(), memory.rlim_cur, &doctor);
  check_daemon(settings, &doctor);

  int bad_count = 0;
  Table table({{""}, {"CHECK"}, {"FOUND"}});
  for (const report::Check& check : doctor.checks()) {
    bad_count += check.verdict() == report::VERDICT_BAD ? 1 : 0;
    table.add({verdict_name(check.verdict()), check.name(), check.detail()});
    if (!check.next_step().empty()) table.add({"", "", "-> " + check.next_step()});
  }
  if (settings.json) {
    CCO_RETURN_IF_ERROR(print_json(doctor).status());
  } else {
    print(table.text());
    if (bad_count > 0) print(absl::StrCat("\n", bad_count, " bad\n"));
  }
  return bad_count > 0 ? kExitFailed : kExitOk;
}

}  // namespace

Runner define_doctor(CLI::App&, const Settings& settings) {
  return [&settings] { return run_doctor(settings); };
}

}  // namespace cco::ctl
