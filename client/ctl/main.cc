// ccoctl: shows and steers the daemon of this node.
#include <CLI/CLI.hpp>
#include <iostream>

#include "client/ctl/command.h"

namespace {

using cco::ctl::Command;
using cco::ctl::Runner;

// CLI11's own codes would collide with the commands' results: usage errors are always kExitUsage.
int usage_exit(const CLI::App& app, const CLI::ParseError& error) {
  return app.exit(error) == 0 ? cco::ctl::kExitOk : cco::ctl::kExitUsage;
}

int run_command(const Runner& runner) {
  const absl::StatusOr<int> exit_code = runner();
  if (exit_code.ok()) return *exit_code;
  std::cerr << "ccoctl: " << exit_code.status().message() << " ("
            << absl::StatusCodeToString(exit_code.status().code()) << ")\n";
  return cco::ctl::kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("ccoctl: shows and steers cco-memd, the daemon that owns this node's symmetric heap",
               "ccoctl");
  cco::ctl::Settings settings;
  app.add_option("--socket", settings.socket,
                 "the daemon's socket (default: $CCO_SOCKET, else /run/cco/memd.sock)");
  app.add_option("--timeout-ms", settings.timeout_ms, "for each call to the daemon")
      ->check(CLI::Range(1, 3600000))
      ->capture_default_str();
  app.add_flag("--json", settings.json, "for programs: protobuf's JSON mapping");
  app.set_version_flag("--version", "ccoctl " CCO_VERSION_TEXT);
  app.require_subcommand(1);
  app.fallthrough();  // --json and --socket may also stand after the subcommand.

  std::vector<std::pair<CLI::App*, Runner>> runners;
  for (const Command& command : cco::ctl::commands()) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.summary);
    runners.emplace_back(subcommand, command.define(*subcommand, settings));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return usage_exit(app, error);
  }
  for (const auto& [subcommand, runner] : runners) {
    if (subcommand->parsed()) return run_command(runner);
  }
  return cco::ctl::kExitUsage;
}
