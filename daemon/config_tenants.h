// The part of the configuration that says who may have how much.
#pragma once

#include "absl/status/statusor.h"
#include "cco/memd/config/v1/config.pb.h"
#include "daemon/core/limits.h"
#include "daemon/core/tenants.h"

namespace cco::memd {

/// INVALID_ARGUMENT: a contradiction, with the tenants it is between. `limits` are the node's;
/// `control_bytes` is what every rank of a group needs.
absl::StatusOr<Tenants> read_tenants(const config::v1::Config& from, const Limits& limits,
                                     uint64_t control_bytes);
void print_tenants(const Tenants& tenants, config::v1::Config* to);

}  // namespace cco::memd
