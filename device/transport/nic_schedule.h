// How a software NIC misbehaves within what real ones may do. For tests; the default does all at
// once and in order.
#pragma once

#include <cstdint>

#include "cco/device/abi_gda.h"

namespace cco {

/// Chances are in percent, each taken once per operation or doorbell, from a generator per queue:
/// what one queue does depends on the seed and on its own operations alone.
struct NicSchedule {
  uint64_t seed = 0;
  uint32_t delay_percent = 0;    ///< Of operations: held up for some steps.
  uint32_t merge_percent = 0;    ///< Of doorbells: noticed some steps late, with later ones.
  uint32_t late_percent = 0;     ///< Of unsignaled writes: land out of order, but before the next
                                 ///< read, atomic or signaled operation of their queue ends.
  bool shuffles_queues = false;  ///< Queues take turns in random order and portions.
  uint64_t piece_bytes = 0;      ///< Longer copies land in pieces, in random order; 0: whole.
  uint64_t fail_operation = 0;   ///< This operation of the NIC fails, counted from 1; 0: none.
  uint32_t fail_syndrome = 0;    ///< With this status, as the format has it.
  uint64_t first_index = 0;      ///< Queues start here, in units, as if they had run so far.
  uint32_t max_message_bytes = CCO_GDA_MAX_MESSAGE_BYTES;  ///< Told to kernels; a power of two.
};

}  // namespace cco
