// The daemon's configuration: a text file of cco.memd.config.v1.Config, read once, checked, with
// defaults filled in.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/core/limits.h"
#include "daemon/core/tenants.h"
#include "daemon/ports/executor.h"
#include "device/runtime/open_driver.h"

namespace cco::memd {

struct Config {
  std::string state_dir;
  Milliseconds keeper_linger{60000};
  std::string socket_path = "/run/cco/memd.sock";
  uint32_t socket_mode = 0660;
  std::string socket_group;
  std::string operator_group;
  DriverOptions driver;
  uint64_t slab_bytes = 0;
  uint64_t control_bytes = 1024 * 1024;
  Milliseconds default_timeout{60000};
  Milliseconds ticket_lifetime{10000};
  std::string log_level = "info";
  bool allow_unenforced_read_only = true;
  uint32_t memory_pressure_percent = 90;
  Limits limits;
  Tenants tenants;
};

/// NOT_FOUND: no such file. INVALID_ARGUMENT: malformed, an unknown field, or a value out of range;
/// says where.
absl::StatusOr<Config> load_config(const std::string& path);
/// The same for text; `origin` names it in messages.
absl::StatusOr<Config> parse_config(const std::string& text, const std::string& origin);
/// The whole configuration as parse_config() takes it.
std::string print_config(const Config& config);

}  // namespace cco::memd
