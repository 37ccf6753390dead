// The consumer's side of rings of work items (abi_work.h): checks every item and has it performed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cco/device/abi_work.h"
#include "device/runtime/gpu_driver.h"
#include "device/transport/host_memory.h"
#include "device/transport/transport_team.h"

namespace cco {

/// What the fields of a transport's items mean. From the consumer's thread.
struct WorkMeaning {
  /// World rank of an item's peer; nothing if there is no such peer, or it is not reached.
  std::function<std::optional<uint32_t>(uint32_t peer)> world_rank;
  /// Where in a communicator's words the signal lies that items of `ring` call `index`. This rank
  /// is the only writer of that word, on every rank.
  std::function<std::optional<uint64_t>(uint32_t ring, uint64_t index)> signal_offset;
};

/// Performs sound items. Both calls return at once. What they ask for takes effect in the order of
/// the calls, for each ring, and for rings that raise the same signals.
class WorkBackend {
 public:
  virtual ~WorkBackend() = default;
  virtual absl::Status copy(uint32_t ring, uint64_t destination, uint64_t source,
                            uint64_t bytes) = 0;
  /// At most kMaxStreamWords. A failed call may have stored the first few.
  virtual absl::Status write_words(uint32_t ring, absl::Span<const StreamWord> words) = 0;
};

/// What producers of one ring share; zeroed device memory. Rings do not share cache lines.
struct alignas(64) WorkRingWords {
  uint64_t posted;
  uint64_t seen;
};

/// One ring as its consumer sees it, at its addresses and, `_address`, at the device's.
struct WorkRing {
  const cco_work_item* items = nullptr;
  uint64_t* completed = nullptr;
  uint64_t* error = nullptr;
  uint64_t items_address = 0;
  uint64_t completed_address = 0;
  uint64_t error_address = 0;
  uint32_t depth = 0;
  uint64_t next = 0;        ///< Position of the next item.
  bool has_failed = false;  ///< An item has: completions say so from now on.

  /// For kernels. `words`: address of WorkRingWords.
  cco_work_ring device(uint64_t words) const;
};

/// Owner of the host memory of some rings.
class WorkRings {
 public:
  static absl::StatusOr<WorkRings> allocate(GpuContext* context, uint32_t count, uint32_t depth);
  const std::vector<WorkRing>& rings() const { return rings_; }

 private:
  HostMemory memory_;
  std::vector<WorkRing> rings_;
};

/// Serves rings from one thread. An item is valid or not by what it held when it was read, once:
/// whoever posted it may scribble on it any time. One that is refused or fails moves nothing,
/// raises nothing, is told in the ring's error word (the first one is), and counts as completed;
/// from then on the ring's completions carry CCO_WORK_FAILED.
///
/// Signals and completions that follow each other without a copy between them are one call of the
/// back-end. Where that fails, it is told, and what the signals rose by comes with their next rise.
class WorkConsumer {
 public:
  struct Options {
    uint32_t max_in_flight = 256;  ///< Items of one ring that the back-end holds at once.
    uint64_t max_copy_bytes = uint64_t{1} << 30;  ///< Longer items become several copies.
  };
  /// `team` and `backend` outlive it.
  WorkConsumer(const TransportTeam& team, WorkMeaning meaning, std::vector<WorkRing> rings,
               WorkBackend* backend, const Options& options);

  /// Hands on what is waiting, a bounded number of items; returns whether there were any. Waits for
  /// nothing.
  bool step();

  /// Signals count from zero again: their words are. From any thread, while no item is under way.
  void restart_signals();

  /// The first failure of any ring. From any thread.
  struct Failure {
    uint32_t ring = 0;
    uint32_t reason = 0;  ///< CCO_WORK_*; 0: none.
    uint32_t peer = 0;    ///< As the item has it.
  };
  Failure failure() const;

 private:
  /// What a sound item touches.
  struct Places {
    uint64_t destination = 0;
    uint64_t source = 0;
    uint64_t remote_signal = 0;  ///< 0: not raised.
    uint64_t local_signal = 0;
  };

  bool serve(uint32_t ring);
  bool take(const WorkRing& ring, cco_work_item* item) const;
  /// Whether the back-end got something to do.
  bool perform(uint32_t ring, const cco_work_item& item);
  /// 0, or why not.
  uint32_t check(uint32_t ring, const cco_work_item& item, Places* places) const;
  uint32_t check_ranges(const cco_work_item& item, uint32_t peer, Places* places) const;
  absl::Status move(uint32_t ring, const cco_work_item& item, const Places& places);
  absl::Status store_value(uint32_t ring, const cco_work_item& item, uint64_t destination);
  absl::Status copy(uint32_t ring, uint64_t destination, uint64_t source, uint64_t bytes);
  void raise(uint64_t signal, uint64_t delta, uint32_t peer);
  /// Asks for a word behind all that was asked for; it goes with the next hand_on().
  void ask(StreamWord word, uint32_t peer);
  bool hand_on(uint32_t ring);
  void publish(uint32_t ring, uint32_t last_peer);
  void publish_directly(const WorkRing& ring);
  void fail(uint32_t ring, uint32_t reason, uint32_t peer);

  const TransportTeam& team_;
  const WorkMeaning meaning_;
  const Options options_;
  WorkBackend* const backend_;
  std::vector<WorkRing> rings_;
  std::vector<StreamWord> words_;  ///< Of the ring that is being served: asked for.
  uint32_t words_peer_ = 0;        ///< Of the last of them.
  std::mutex mutex_;
  /// By a signal's address: its value.
  std::unordered_map<uint64_t, uint64_t> raised_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> failure_{0};  ///< Ring, peer, reason: 16, 16, 32 bits.
};

/// For people.
const char* describe_work_error(uint32_t reason);

}  // namespace cco
