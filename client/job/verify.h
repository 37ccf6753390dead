// What arrived, against what the CPU says should have.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cco::job {

/// One chunk that `sender` sent in `round`. DATA_LOSS names the first differing offset, the byte
/// expected there and the one that is.
absl::Status verify_chunk(absl::Span<const uint8_t> chunk, uint32_t sender, uint64_t round);

/// The routed sums of `ids`, 16 words for each. DATA_LOSS names the first differing token and lane.
absl::Status verify_routing(absl::Span<const uint64_t> ids, absl::Span<const uint32_t> sums);

}  // namespace cco::job
