// The folder that a daemon's state is kept in: may it be trusted with that, and who else is there?
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace cco::memd {

/// Makes `state_dir` (mode 0700) and an empty state.db in it (0600) unless they are there, and
/// returns the path of state.db.
/// INVALID_ARGUMENT     the path is not absolute
/// FAILED_PRECONDITION  not to be made, read or written; of another user; writable by others; or
///                      state.db is no file, or is gone while its log is there
absl::StatusOr<std::string> prepare_state_file(const std::string& state_dir);

/// " (pid 12)": who has a lock on the file, by the kernel's account. Empty if that is not known.
std::string lock_holder(const std::string& path);

}  // namespace cco::memd
