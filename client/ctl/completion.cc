#include "client/ctl/completion.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace cco::ctl {
namespace {

struct Choice {
  std::string name;
  std::string summary;
};

std::vector<Choice> subcommands_of(const CLI::App& app) {
  std::vector<Choice> choices;
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    choices.push_back({subcommand->get_name(), subcommand->get_description()});
  }
  return choices;
}

std::vector<Choice> options_of(const CLI::App& app) {
  std::vector<Choice> choices;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      choices.push_back({"--" + name, option->get_description()});
    }
  }
  return choices;
}

// What may follow a subcommand: its own subcommands, its options and theirs.
std::vector<Choice> choices_after(const CLI::App& subcommand) {
  std::vector<Choice> choices = subcommands_of(subcommand);
  const auto add = [&choices](const CLI::App& app) {
    for (Choice& option : options_of(app)) {
      const bool is_known = std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) {
        return choice.name == option.name;
      });
      if (!is_known) choices.push_back(std::move(option));
    }
  };
  add(subcommand);
  for (const CLI::App* inner : subcommand.get_subcommands([](const CLI::App*) { return true; })) {
    add(*inner);
  }
  return choices;
}

std::string names(const std::vector<Choice>& choices) {
  return absl::StrJoin(choices, " ", [](std::string* out, const Choice& choice) {
    absl::StrAppend(out, choice.name);
  });
}

std::string quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The subcommand is the first word that is one; after `--` the line belongs to another program.
std::string bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    absl::StrAppend(&cases, "      ", subcommand->get_name(), ") words=\"",
                    names(choices_after(*subcommand)), " ", names(options_of(app)),
                    subcommand->get_name() == "completion" ? " bash zsh fish" : "",
                    "\"; break ;;\n");
  }
  return absl::StrCat(
      "# bash completion for ccoctl: source <(ccoctl completion bash)\n"
      "_ccoctl() {\n"
      "  local word words=\"",
      names(subcommands_of(app)), " ", names(options_of(app)),
      "\"\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$word\" in\n"
      "      --) COMPREPLY=($(compgen -c -- \"${COMP_WORDS[COMP_CWORD]}\")); return ;;\n",
      cases,
      "    esac\n"
      "  done\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
      "}\n"
      "complete -F _ccoctl ccoctl\n");
}

std::string zsh_description(const Choice& choice) {
  return quoted(
      absl::StrCat(absl::StrReplaceAll(choice.name, {{":", "\\:"}}), ":", choice.summary));
}

std::string zsh(const CLI::App& app) {
  std::string text = "#compdef ccoctl\n_ccoctl() {\n  local -a commands options\n  commands=(\n";
  for (const Choice& choice : subcommands_of(app)) {
    absl::StrAppend(&text, "    ", zsh_description(choice), "\n");
  }
  absl::StrAppend(&text, "  )\n  options=(", names(options_of(app)), ")\n",
                  "  local word\n  for word in ${words[2,CURRENT-1]}; do\n    case $word in\n",
                  "      --) _command_names; return ;;\n");
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    absl::StrAppend(
        &text, "      ", subcommand->get_name(), ") compadd -- ", names(choices_after(*subcommand)),
        subcommand->get_name() == "completion" ? " bash zsh fish" : "", " $options; return ;;\n");
  }
  absl::StrAppend(&text, "    esac\n  done\n  _describe command commands\n",
                  "  compadd -- $options\n}\n_ccoctl \"$@\"\n");
  return text;
}

std::string fish(const CLI::App& app) {
  std::string text = "complete -c ccoctl -f\n";
  for (const Choice& choice : subcommands_of(app)) {
    absl::StrAppend(&text, "complete -c ccoctl -n __fish_use_subcommand -a ", choice.name, " -d ",
                    quoted(choice.summary), "\n");
  }
  for (const Choice& choice : options_of(app)) {
    absl::StrAppend(&text, "complete -c ccoctl -l ", choice.name.substr(2), " -d ",
                    quoted(choice.summary), "\n");
  }
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const Choice& choice : choices_after(*subcommand)) {
      const bool is_option = choice.name.front() == '-';
      absl::StrAppend(&text, "complete -c ccoctl -n '__fish_seen_subcommand_from ",
                      subcommand->get_name(), is_option ? "' -l " : "' -a ",
                      choice.name.substr(is_option ? 2 : 0), " -d ", quoted(choice.summary), "\n");
    }
  }
  absl::StrAppend(
      &text, "complete -c ccoctl -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n");
  return text;
}

}  // namespace

absl::StatusOr<std::string> completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash(app);
  if (shell == "zsh") return zsh(app);
  if (shell == "fish") return fish(app);
  return absl::InvalidArgumentError(
      absl::StrCat("no completion for the shell '", shell, "': take bash, zsh or fish"));
}

}  // namespace cco::ctl
