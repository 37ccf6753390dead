#include "device/transport/work_consumer.h"

#include <algorithm>
#include <utility>

#include "client/base/status_macros.h"

namespace cco {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint32_t kBatchItems = 16;
// An item asks for a value and two signals, a batch for its completion.
static_assert(3 * kBatchItems + 1 <= kMaxStreamWords);
/// Beyond it a batch ends: whoever waits for one item should not wait for much behind it.
constexpr uint64_t kBatchBytes = uint64_t{1} << 20;

uint32_t reason_of(WindowRegistry::Fault fault) {
  switch (fault) {
    case WindowRegistry::Fault::kNone:
      return 0;
    case WindowRegistry::Fault::kNoWindow:
      return CCO_WORK_BAD_WINDOW;
    case WindowRegistry::Fault::kNoRank:
      return CCO_WORK_BAD_PEER;
    case WindowRegistry::Fault::kRange:
      break;
  }
  return CCO_WORK_BAD_RANGE;
}

uint64_t completion_of(const WorkRing& ring) {
  return ring.next | (ring.has_failed ? CCO_WORK_FAILED : 0);
}

bool is_value_size(uint64_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

}  // namespace

cco_work_ring WorkRing::device(uint64_t words) const {
  cco_work_ring ring{};
  ring.items = items_address;
  ring.posted = words + offsetof(WorkRingWords, posted);
  ring.completed = completed_address;
  ring.seen = words + offsetof(WorkRingWords, seen);
  ring.error = error_address;
  ring.depth = depth;
  return ring;
}

absl::StatusOr<WorkRings> WorkRings::allocate(GpuContext* context, uint32_t count, uint32_t depth) {
  // Items, then a line for `completed` and one for `error`: kernels poll the former.
  const uint64_t ring_bytes = uint64_t{depth} * sizeof(cco_work_item) + 2 * kLineBytes;
  WorkRings rings;
  CCO_ASSIGN_OR_RETURN(rings.memory_, HostMemory::allocate(context, count * ring_bytes));
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t words = (i + 1) * ring_bytes - 2 * kLineBytes;
    char* const data = rings.memory_.data();
    const uint64_t address = rings.memory_.address();
    WorkRing ring;
    ring.items = reinterpret_cast<const cco_work_item*>(data + i * ring_bytes);
    ring.completed = reinterpret_cast<uint64_t*>(data + words);
    ring.error = reinterpret_cast<uint64_t*>(data + words + kLineBytes);
    ring.items_address = address + i * ring_bytes;
    ring.completed_address = address + words;
    ring.error_address = address + words + kLineBytes;
    ring.depth = depth;
    rings.rings_.push_back(ring);
  }
  return rings;
}

WorkConsumer::WorkConsumer(const TransportTeam& team, WorkMeaning meaning,
                           std::vector<WorkRing> rings, WorkBackend* backend,
                           const Options& options)
    : team_(team),
      meaning_(std::move(meaning)),
      options_(options),
      backend_(backend),
      rings_(std::move(rings)) {}

bool WorkConsumer::step() {
  bool any = false;
  for (uint32_t ring = 0; ring < rings_.size(); ++ring) any = serve(ring) || any;
  return any;
}

void WorkConsumer::restart_signals() {
  const std::lock_guard<std::mutex> lock(mutex_);
  raised_.clear();
}

bool WorkConsumer::serve(uint32_t index) {
  WorkRing& ring = rings_[index];
  const uint64_t completed = CCO_WORK_DONE(__atomic_load_n(ring.completed, __ATOMIC_ACQUIRE));
  const uint64_t first = ring.next;
  uint64_t bytes = 0;
  bool handed_on = false;
  cco_work_item item{};
  while (ring.next - first < kBatchItems && bytes < kBatchBytes &&
         ring.next - completed < options_.max_in_flight && take(ring, &item)) {
    handed_on = perform(index, item) || handed_on;
    ++ring.next;
    bytes += item.bytes;
  }
  if (ring.next == first) return false;
  if (handed_on || completed != first) {
    publish(index, CCO_WORK_PEER(item.header));
  } else {
    // Nothing of this ring is under way. The way through the back-end would take far longer.
    publish_directly(ring);
  }
  return true;
}

bool WorkConsumer::take(const WorkRing& ring, cco_work_item* item) const {
  const auto* const words = reinterpret_cast<const uint64_t*>(ring.items + ring.next % ring.depth);
  uint64_t copy[sizeof(cco_work_item) / sizeof(uint64_t)];
  copy[0] = __atomic_load_n(words, __ATOMIC_ACQUIRE);
  if (CCO_WORK_SEQUENCE(copy[0]) != static_cast<uint32_t>(ring.next + 1)) return false;
  const uint64_t lap = CCO_WORK_LAP(ring.next, ring.depth);
  for (size_t i = 1; i < std::size(copy); ++i) {
    copy[i] = __atomic_load_n(words + i, __ATOMIC_RELAXED);
    if ((copy[i] & CCO_WORK_TOP) != lap) return false;  // The header came first.
    copy[i] &= ~CCO_WORK_TOP;
  }
  constexpr uint64_t kDeltaTop = uint64_t{CCO_WORK_DELTA_TOP} << 40;
  if ((copy[0] & kDeltaTop) != 0) copy[7] |= CCO_WORK_TOP;
  copy[0] &= ~kDeltaTop;
  *item = {copy[0], copy[1], copy[2], copy[3], copy[4], copy[5], copy[6], copy[7]};
  return true;
}

bool WorkConsumer::perform(uint32_t ring, const cco_work_item& item) {
  Places places;
  const uint32_t peer = CCO_WORK_PEER(item.header);
  const uint32_t reason = check(ring, item, &places);
  if (reason != 0) {
    fail(ring, reason, peer);
    return false;
  }
  if (move(ring, item, places).ok()) {
    raise(places.remote_signal, item.signal_delta, peer);
    raise(places.local_signal, item.signal_delta, peer);
  } else {
    fail(ring, CCO_WORK_COPY_FAILED, peer);
  }
  return CCO_WORK_OPERATION(item.header) != CCO_WORK_NONE || CCO_WORK_SIGNALS(item.header) != 0;
}

uint32_t WorkConsumer::check(uint32_t ring, const cco_work_item& item, Places* places) const {
  const uint32_t operation = CCO_WORK_OPERATION(item.header);
  const uint32_t signals = CCO_WORK_SIGNALS(item.header);
  if (operation > CCO_WORK_VALUE || (operation == CCO_WORK_VALUE && !is_value_size(item.bytes)) ||
      (signals & ~(CCO_WORK_SIGNAL_REMOTE | CCO_WORK_SIGNAL_LOCAL)) != 0) {
    return CCO_WORK_BAD_OPERATION;
  }
  const std::optional<uint32_t> peer = meaning_.world_rank(CCO_WORK_PEER(item.header));
  if (!peer.has_value() || team_.words[*peer] == 0) return CCO_WORK_BAD_PEER;
  if (const uint32_t reason = check_ranges(item, *peer, places); reason != 0) return reason;
  if (signals == 0) return 0;
  const std::optional<uint64_t> offset = meaning_.signal_offset(ring, item.signal_index);
  if (!offset.has_value()) return CCO_WORK_BAD_SIGNAL;
  if ((signals & CCO_WORK_SIGNAL_REMOTE) != 0) places->remote_signal = team_.words[*peer] + *offset;
  if ((signals & CCO_WORK_SIGNAL_LOCAL) != 0) places->local_signal = team_.own_words() + *offset;
  return 0;
}

uint32_t WorkConsumer::check_ranges(const cco_work_item& item, uint32_t peer,
                                    Places* places) const {
  const uint32_t operation = CCO_WORK_OPERATION(item.header);
  if (operation == CCO_WORK_NONE) return 0;
  const WindowRegistry::Range remote =
      team_.windows->find(item.remote_generation, peer, item.remote_offset, item.bytes);
  if (const uint32_t reason = reason_of(remote.fault); reason != 0) return reason;
  if (operation == CCO_WORK_VALUE) {
    places->destination = remote.address;
    return 0;
  }
  const WindowRegistry::Range local =
      team_.windows->find(item.local_generation, team_.rank, item.local_offset, item.bytes);
  if (const uint32_t reason = reason_of(local.fault); reason != 0) return reason;
  const bool is_put = operation == CCO_WORK_PUT;
  places->destination = is_put ? remote.address : local.address;
  places->source = is_put ? local.address : remote.address;
  return 0;
}

absl::Status WorkConsumer::move(uint32_t ring, const cco_work_item& item, const Places& places) {
  if (CCO_WORK_OPERATION(item.header) == CCO_WORK_NONE) return absl::OkStatus();
  if (CCO_WORK_OPERATION(item.header) == CCO_WORK_VALUE) {
    return store_value(ring, item, places.destination);
  }
  for (uint64_t done = 0; done < item.bytes; done += options_.max_copy_bytes) {
    CCO_RETURN_IF_ERROR(copy(ring, places.destination + done, places.source + done,
                             std::min(item.bytes - done, options_.max_copy_bytes)));
  }
  return absl::OkStatus();
}

absl::Status WorkConsumer::store_value(uint32_t ring, const cco_work_item& item,
                                       uint64_t destination) {
  if (item.bytes == sizeof(uint64_t) && destination % sizeof(uint64_t) == 0) {
    ask({destination, CCO_WORK_VALUE_OF(item.local_generation, item.local_offset)},
        CCO_WORK_PEER(item.header));
    // Its signal must not rise, now or with a later one, for a value that was not stored.
    if (CCO_WORK_SIGNALS(item.header) == 0 || hand_on(ring)) return absl::OkStatus();
    return absl::InternalError("the value was not stored");
  }
  // From the ring itself: the slot stays as it is until the item is completed.
  constexpr uint64_t kHalf = sizeof(uint32_t);
  const WorkRing& from = rings_[ring];
  const uint64_t slot = from.items_address + from.next % from.depth * sizeof(cco_work_item);
  CCO_RETURN_IF_ERROR(copy(ring, destination, slot + offsetof(cco_work_item, local_offset),
                           std::min(item.bytes, kHalf)));
  if (item.bytes <= kHalf) return absl::OkStatus();
  return copy(ring, destination + kHalf, slot + offsetof(cco_work_item, local_generation), kHalf);
}

absl::Status WorkConsumer::copy(uint32_t ring, uint64_t destination, uint64_t source,
                                uint64_t bytes) {
  hand_on(ring);  // Whoever waits for those words should not wait for this copy.
  return backend_->copy(ring, destination, source, bytes);
}

void WorkConsumer::raise(uint64_t signal, uint64_t delta, uint32_t peer) {
  if (signal == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ask({signal, raised_[signal] += delta}, peer);
}

void WorkConsumer::ask(StreamWord word, uint32_t peer) {
  words_.push_back(word);
  words_peer_ = peer;
}

bool WorkConsumer::hand_on(uint32_t ring) {
  if (words_.empty()) return true;
  const bool ok = backend_->write_words(ring, words_).ok();
  if (!ok) fail(ring, CCO_WORK_COPY_FAILED, words_peer_);
  words_.clear();
  return ok;
}

void WorkConsumer::publish(uint32_t index, uint32_t last_peer) {
  const WorkRing& ring = rings_[index];
  ask({ring.completed_address, completion_of(ring)}, last_peer);
  if (hand_on(index)) return;
  // A signal may have been in the way.
  const StreamWord completed{ring.completed_address, completion_of(ring)};
  if (backend_->write_words(index, absl::MakeConstSpan(&completed, 1)).ok()) return;
  // Nobody knows any more what has arrived. Whoever waits must not wait for ever, and was told.
  publish_directly(ring);
}

void WorkConsumer::publish_directly(const WorkRing& ring) {
  __atomic_store_n(ring.completed, completion_of(ring), __ATOMIC_RELEASE);
}

void WorkConsumer::fail(uint32_t index, uint32_t reason, uint32_t peer) {
  // The word is there for the client to read; that it also could have written it harms nobody else.
  rings_[index].has_failed = true;
  uint64_t none = 0;
  __atomic_compare_exchange_n(rings_[index].error, &none, CCO_WORK_ERROR(reason, peer), false,
                              __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  none = 0;
  failure_.compare_exchange_strong(none, uint64_t{index} << 48 | uint64_t{peer} << 32 | reason);
}

WorkConsumer::Failure WorkConsumer::failure() const {
  const uint64_t failure = failure_.load();
  return {.ring = static_cast<uint32_t>(failure >> 48),
          .reason = static_cast<uint32_t>(failure),
          .peer = static_cast<uint32_t>(failure >> 32 & 0xffff)};
}

const char* describe_work_error(uint32_t reason) {
  switch (reason) {
    case CCO_WORK_BAD_OPERATION:
      return "no such operation or signal bits, or a value of another size than 1, 2, 4 or 8";
    case CCO_WORK_BAD_PEER:
      return "no such rank, or not reached by this transport";
    case CCO_WORK_BAD_WINDOW:
      return "no window of that generation";
    case CCO_WORK_BAD_RANGE:
      return "offset and length leave the window";
    case CCO_WORK_BAD_SIGNAL:
      return "signal index out of range";
    case CCO_WORK_COPY_FAILED:
      return "the driver failed to copy";
    default:
      return "unknown error";
  }
}

}  // namespace cco
