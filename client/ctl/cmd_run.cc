// ccoctl run: starts N ranks of a command on this node.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/launcher.h"

namespace cco::ctl {
namespace {

struct RunArguments {
  LaunchOptions launch;
  std::vector<std::string> gpus;
  bool no_prefix = false;
  double timeout_s = 0;
};

absl::StatusOr<int> run_ranks(const Settings& settings, const RunArguments& arguments) {
  LaunchOptions options = arguments.launch;
  options.environment = visible_gpus(arguments.gpus);
  if (!settings.socket.empty()) options.environment.emplace_back("CCO_SOCKET", settings.socket);
  options.prefix = !arguments.no_prefix;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(arguments.timeout_s * 1000));
  std::signal(SIGPIPE, SIG_IGN);  // A reader that went away must not end the ranks' supervisor.
  return launch(options, BorrowedFd(STDOUT_FILENO), BorrowedFd(STDERR_FILENO));
}

}  // namespace

Runner define_run(CLI::App& app, const Settings& settings) {
  auto arguments = std::make_shared<RunArguments>();  // Filled by the parser, read by the runner.
  app.add_option("-n,--ranks", arguments->launch.size, "how many ranks")
      ->required()
      ->check(CLI::Range(1, 1024));
  app.add_option("--gpus", arguments->gpus,
                 "GPUs that the ranks see, in this order (ordinals or UUIDs, by commas); rank r "
                 "takes number r modulo their count")
      ->delimiter(',');
  app.add_flag("--no-prefix", arguments->no_prefix, "pass output on as it is");
  app.add_option("--timeout", arguments->timeout_s, "seconds for the whole run (default: none)")
      ->check(CLI::Range(0.001, 1e6));
  app.add_option("command", arguments->launch.command, "what each rank runs, after --")->required();
  app.positionals_at_end();
  app.footer(
      "Each rank gets CCO_RANK, CCO_SIZE, CCO_LOCAL_RANK, CCO_LOCAL_SIZE and CCO_JOB.\n"
      "Exit code: 0; of the first rank that failed (128 + signal); 124 if time was over.");
  return [arguments, &settings] { return run_ranks(settings, *arguments); };
}

}  // namespace cco::ctl
