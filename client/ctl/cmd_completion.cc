// ccoctl completion: prints a completion script for bash, zsh or fish.
#include <CLI/CLI.hpp>

#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/completion.h"

namespace cco::ctl {

Runner define_completion(CLI::App& app, const Settings&) {
  auto shell = std::make_shared<std::string>();  // Filled by the parser, read by the runner.
  app.add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [shell, &app]() -> absl::StatusOr<int> {
    CCO_ASSIGN_OR_RETURN(const std::string script, completion_script(*app.get_parent(), *shell));
    print(script);
    return kExitOk;
  };
}

}  // namespace cco::ctl
