// What a program asks of a device communicator, checked and added up.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "mori/cco/types.hpp"

namespace cco::compat {

struct Requirements {
  /// As asked for, but NONE where there is nobody to connect to.
  mori::cco::ccoGdaConnectionType connection = mori::cco::CCO_GDA_CONNECTION_NONE;
  uint32_t context_count = 0;  ///< 0: the default.
  uint32_t signal_count = 0;   ///< Those of the resource list included.
  uint32_t counter_count = 0;
  uint32_t queue_depth = 0;
  int32_t traffic_class = -1;
  uint32_t lsa_barrier_count = 0;
  uint32_t rail_barrier_count = 0;
  uint32_t world_barrier_count = 0;
  uint32_t sdma_queue_count = 0;  ///< 0: the default, and SDMA may be missing.
  uint64_t buffer_bytes = 0;      ///< Of all buffers of the list together.
  bool has_gda() const { return connection != mori::cco::CCO_GDA_CONNECTION_NONE; }
};

/// INVALID_ARGUMENT: another magic number, a negative or excessive count, an alignment that is no
/// power of two.
absl::StatusOr<Requirements> read_requirements(const mori::cco::ccoDevCommRequirements& given,
                                               bool has_other_nodes);

/// Tells each entry of the resource list where its part begins. Same order as above.
void assign_resources(const mori::cco::ccoDevCommRequirements& given);

}  // namespace cco::compat
