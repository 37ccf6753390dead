#include "client/ctl/completion.h"

#include <gtest/gtest.h>

#include "client/ctl/command.h"

namespace cco::ctl {
namespace {

// Goal    every shell's script knows every subcommand and the common options.
// Method  build the parser as main() does; look for each name.
TEST(Completion, ContainsEverySubcommand) {
  CLI::App app("test", "ccoctl");
  Settings settings;
  app.add_option("--socket", settings.socket);
  for (const Command& command : commands()) {
    command.define(*app.add_subcommand(command.name, command.summary), settings);
  }
  ASSERT_EQ(commands().size(), 17u);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const absl::StatusOr<std::string> script = completion_script(app, shell);
    ASSERT_TRUE(script.ok()) << script.status();
    for (const Command& command : commands()) {
      EXPECT_NE(script->find(command.name), std::string::npos) << shell << " " << command.name;
    }
    EXPECT_NE(script->find("socket"), std::string::npos) << shell;
    EXPECT_NE(script->find("cgroup"), std::string::npos) << shell << " lacks one of lease create";
    EXPECT_NE(script->find("no-prefix"), std::string::npos) << shell << " lacks an option of run";
  }
}

// Goal    an unknown shell is refused, naming the choices.
// Method  ask for one.
TEST(Completion, RefusesUnknownShells) {
  const absl::Status status = completion_script(CLI::App("test"), "tcsh").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'tcsh': take bash, zsh or fish"), std::string::npos) << status;
}

}  // namespace
}  // namespace cco::ctl
