// Where the parts of a rank's GDA lie in the communicator's words, and what all providers' structs
// have in common.
#pragma once

#include <cstdint>

#include "cco/device/abi_gda.h"
#include "device/transport/gda_provider.h"
#include "device/transport/transport_team.h"
#include "device/transport/work_consumer.h"

namespace cco {

/// Offsets in this rank's own words, 64-byte aligned. Parts that a provider does not use stay zero.
struct GdaLayout {
  uint32_t node_count = 1;
  uint32_t rail_barrier_slots = 1;
  uint32_t signal_total = 0;        ///< The user's, then the rail and the world barriers'.
  uint64_t device_offset = 0;       ///< cco_gda_device
  uint64_t shadow_offset = 0;       ///< uint64_t[signal_total]
  uint64_t counter_offset = 0;      ///< uint64_t[counter_count]
  uint64_t epoch_offset = 0;        ///< uint64_t[rail_barrier_count + world_barrier_count]
  uint64_t ring_offset = 0;         ///< cco_work_ring[context_count]
  uint64_t ring_words_offset = 0;   ///< WorkRingWords[context_count]
  uint64_t queue_offset = 0;        ///< cco_gda_queue[world_size][context_count]
  uint64_t queue_state_offset = 0;  ///< cco_gda_queue_state[world_size][context_count]
  uint64_t sink_offset = 0;         ///< uint64_t[world_size][context_count]
  uint64_t end_offset = 0;
};
GdaLayout gda_layout(const GdaPlan& plan, uint32_t world_size, uint32_t lsa_size);

/// All of a device struct: `queues` with NICs, `rings` with the proxy. `signal_slots`: 1 or
/// team.size. The caller copies it to layout.device_offset in its own words.
cco_gda_device gda_device_struct(const GdaPlan& plan, const TransportTeam& team, uint32_t provider,
                                 uint32_t signal_slots);

/// Whether plan.connection reaches `peer`, a world rank. Whether its memory can be reached is
/// another question.
bool gda_connects(const GdaPlan& plan, const TransportTeam& team, uint32_t peer);

/// plan.queue_depth, or the default in its place.
uint32_t gda_queue_depth(const GdaPlan& plan);

}  // namespace cco
