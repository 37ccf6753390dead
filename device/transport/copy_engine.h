// SDMA by the driver's copy engines: kernels post work items, a thread of this process issues the
// copies.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/transport/sdma_provider.h"

namespace cco {

/// Provider "copy-engine", on any driver that copies. The plan is in range.
///
/// Ring q serves queue q; items name peers by LSA rank, and `signal_index` is
/// sender_lsa_rank * queue_count + q, this rank's own slot for that queue. The engine is the slot's
/// only writer, here and at every peer, and writes sums: a kernel that copies within its own rank
/// by itself raises the slot by an item of CCO_WORK_NONE. What goes wrong is in the ring's error
/// word.
absl::StatusOr<std::unique_ptr<SdmaProvider>> open_copy_engine(const TransportTeam& team,
                                                               const SdmaPlan& plan);

}  // namespace cco
