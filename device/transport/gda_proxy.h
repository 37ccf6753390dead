// GDA without a NIC: kernels post work items, a thread of this process performs them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/transport/gda_provider.h"

namespace cco {

/// Provider "proxy". It reaches the ranks whose memory this process has mapped; items for others
/// are refused (CCO_WORK_BAD_PEER), as are those for peers that the plan does not connect. The plan
/// is in range.
///
/// Ring c serves context c; items name peers by world rank and signals by index. Signal i has a
/// slot for each sender, and the proxy of that sender is its only writer.
absl::StatusOr<std::unique_ptr<GdaProvider>> open_gda_proxy(const TransportTeam& team,
                                                            const GdaPlan& plan);

}  // namespace cco
