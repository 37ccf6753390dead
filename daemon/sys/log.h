// The journal on standard error: "<6>event=group_formed group=3 ranks=4". The number is systemd's
// priority. Refusals of one kind are recorded five times a minute, and then counted. Any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/ports/journal.h"

namespace cco::memd {

/// `level`: "debug", "info", "warning", "error". INVALID_ARGUMENT for others.
absl::StatusOr<std::unique_ptr<Journal>> open_log(const std::string& level);

}  // namespace cco::memd
