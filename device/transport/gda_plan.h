// Whether a plan for GDA can be carried out at all, whatever the provider.
#pragma once

#include "absl/status/status.h"
#include "device/transport/gda_provider.h"
#include "device/transport/transport_team.h"

namespace cco {

/// INVALID_ARGUMENT: the message names the value and what it may be.
absl::Status check_gda_plan(const GdaPlan& plan, const TransportTeam& team);

}  // namespace cco
