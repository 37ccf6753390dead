// From what the caller and the launcher say to what a group is joined with.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cco/cco.h"
#include "client/src/environment.h"
#include "client/src/group.h"

namespace cco::client {

/// `environment`: of this process; consulted only where `options` points to it.
absl::StatusOr<Group::Options> resolve_group_options(
    const cco_group_options& options, absl::Span<const GpuDevice> devices,
    const absl::StatusOr<Environment>& environment);

/// A name that fits, or INVALID_ARGUMENT. `what`: "group", "window".
absl::StatusOr<std::string> checked_name(const char* name, const char* what);

}  // namespace cco::client
