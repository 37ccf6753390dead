// Rings, the thread that consumes them, and the streams that perform their items.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "device/transport/engine_thread.h"
#include "device/transport/transport_team.h"
#include "device/transport/work_consumer.h"

namespace cco {

/// Its thread never waits for a stream: signals and completions are words that a stream writes
/// behind its copies.
class WorkEngine {
 public:
  struct Options {
    uint32_t ring_count = 1;
    uint32_t depth = 1024;  ///< Items of a ring, a power of two.
    /// Ring r goes to stream r % stream_count. 1 where rings raise the same signals.
    uint32_t stream_count = 1;
    uint64_t scratch = 0;  ///< See open_engine_stream().
  };
  /// RESOURCE_EXHAUSTED: no memory, stream or thread.
  static absl::StatusOr<std::unique_ptr<WorkEngine>> start(const TransportTeam& team,
                                                           WorkMeaning meaning,
                                                           const Options& options);
  /// Items that were taken are performed; the others stay.
  ~WorkEngine();

  const std::vector<WorkRing>& rings() const { return rings_.rings(); }
  WorkConsumer::Failure failure() const { return consumer_.failure(); }
  void restart_signals() { consumer_.restart_signals(); }

 private:
  class Streams;

  WorkEngine(const TransportTeam& team, WorkMeaning meaning, WorkRings rings,
             std::unique_ptr<Streams> streams, const WorkConsumer::Options& options);

  const TransportTeam team_;
  const WorkRings rings_;
  const std::unique_ptr<Streams> streams_;
  WorkConsumer consumer_;
  std::unique_ptr<EngineThread> thread_;
};

}  // namespace cco
