// Errors that say which rank they are about, and whether the same call may succeed later.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace cco::memd {

absl::Status about_rank(absl::Status status, uint32_t rank);
std::optional<uint32_t> rank_of(const absl::Status& status);
/// An error that stays until somebody changes something, whatever its code.
absl::Status until_changed(absl::Status status);
/// Time-outs, limits and a daemon that is stopping: nobody need change anything for a later call to
/// succeed.
bool retryable(const absl::Status& status);

}  // namespace cco::memd
