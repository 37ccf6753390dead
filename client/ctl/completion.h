// Completion scripts for shells, made from the parser itself.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace cco::ctl {

/// `shell`: "bash", "zsh" or "fish", else INVALID_ARGUMENT. `app` is the whole parser.
absl::StatusOr<std::string> completion_script(const CLI::App& app, const std::string& shell);

}  // namespace cco::ctl
