// Copies between two ranks' windows: what the benchmarks of put and get share.
#pragma once

#include <string>
#include <vector>

#include "client/bench/bench.h"

namespace cco::bench {

enum class Direction { kPut, kGet };
const char* name_of(Direction direction);

/// From the lower half of one rank's window to the upper half of another's.
struct Copy {
  Direction direction;
  cco_window_device window;
  uint32_t peer;
  uint64_t source_offset;
  uint64_t destination_offset;
  uint64_t source;  ///< The same two places as addresses.
  uint64_t destination;
  uint64_t bytes;
  uint64_t count;  ///< In a sample: of small sizes several.
};

/// Between `rank` and the next one; the window has twice `max_bytes`.
absl::StatusOr<Copy> make_copy(const Rank& rank, const Window& window, Direction direction,
                               uint64_t bytes, uint64_t max_bytes);

struct Contestant {
  std::string name;
  Operation operation;
};

/// A sample is `copy.count` times what `once` enqueues.
Operation stream_operation(Rank& rank, const Copy& copy, std::function<absl::Status()> once);

/// DATA_LOSS unless `operation` brings the bytes: a fast copy of wrong ones would be worth nothing.
absl::Status verify(Rank& rank, const Copy& copy, const Operation& operation);

/// Verifies the first contestant, samples all in turn, and adds the first beside each of the
/// others. Returns its median ratio to each of them.
absl::StatusOr<std::vector<double>> compare(Context& context, Rank& rank, const Copy& copy,
                                            const Subject& subject,
                                            const std::vector<Contestant>& contestants);

/// The largest copy of a sweep.
uint64_t max_bytes_of(const Context& context);

}  // namespace cco::bench
