#include "client/ctl/completion.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

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

// Goal    every subcommand is in the documentation.
// Method  look for each as a word of the README's block of commands, and of ccoctl's own README's
//         table.
TEST(Documentation, HasEverySubcommand) {
  const auto section = [](const std::string& path, const std::string& from, const std::string& to) {
    std::ifstream file(CCO_SOURCE_DIR "/" + path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t begin = text.find(from), end = text.find(to, begin);
    EXPECT_NE(end, std::string::npos) << path << " has no part from '" << from << "'";
    return begin == std::string::npos ? "" : text.substr(begin, end - begin);
  };
  const std::string overview = section("README.md", "## Running it", "Configuration is");
  const std::string table = section("client/ctl/README.md", "| subcommand |", "May include");
  for (const Command& command : commands()) {
    const std::string name = command.name;
    EXPECT_TRUE(std::regex_search(overview, std::regex("(ccoctl|[|;]) " + name + "\\b"))) << name;
    EXPECT_TRUE(std::regex_search(table, std::regex("`" + name + "\\b"))) << name;
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
