// GDA over a software NIC: kernels write real queues and ring real doorbells, a thread of this
// process serves them.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "device/transport/gda_provider.h"
#include "device/transport/nic_schedule.h"
#include "device/transport/transport_team.h"

namespace cco {

/// `kind`: "mlx5", "bnxt", "ionic". INVALID_ARGUMENT: no such format, or a plan out of range.
absl::StatusOr<std::unique_ptr<GdaProvider>> open_soft_nic(std::string_view kind,
                                                           const TransportTeam& team,
                                                           const GdaPlan& plan,
                                                           const NicSchedule& schedule = {});

}  // namespace cco
