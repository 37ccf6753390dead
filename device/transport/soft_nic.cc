#include "device/transport/soft_nic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/peer_status.h"

namespace cco {
namespace {

constexpr uint32_t kPortion = 64;  // Operations of one queue in a step.
constexpr uint32_t kLongestDelaySteps = 8;
constexpr uint64_t kMostPieces = 64;
constexpr size_t kMostLateWrites = 16;
constexpr uint32_t kSwapAttempts = 1000;  // A word that changes each time starves nobody for ever.

// The pieces of a copy in random order.
std::vector<std::pair<uint64_t, uint64_t>> pieces_of(uint64_t bytes, uint64_t piece_bytes,
                                                     std::mt19937_64& random) {
  const uint64_t size = std::max(piece_bytes, (bytes + kMostPieces - 1) / kMostPieces);
  std::vector<std::pair<uint64_t, uint64_t>> pieces;
  for (uint64_t at = 0; at < bytes; at += size) pieces.emplace_back(at, std::min(size, bytes - at));
  std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

const char* describe(WindowRegistry::Fault fault) {
  switch (fault) {
    case WindowRegistry::Fault::kNone:
      return "is fine";
    case WindowRegistry::Fault::kNoWindow:
      return "names no window";
    case WindowRegistry::Fault::kNoRank:
      return "names a window that the rank does not have here";
    case WindowRegistry::Fault::kRange:
      return "names a window that the range leaves";
  }
  return "";
}

absl::Status range_error(std::string_view side, uint32_t key, uint64_t offset, uint64_t bytes,
                         WindowRegistry::Fault fault) {
  return absl::PermissionDeniedError(
      absl::StrFormat("%s range of %d bytes from offset %d: its key %#x %s", std::string(side),
                      bytes, offset, key, describe(fault)));
}

}  // namespace

SoftNic::SoftNic(const Options& options, std::vector<NicQueue> queues)
    : options_(options), format_(*options.format), random_(options.schedule.seed) {
  for (const NicQueue& queue : queues) {
    queues_.push_back({});
    static_cast<NicQueue&>(queues_.back()) = queue;
    queues_.back().producer_units = queue.consumed_units;
    queues_.back().random.seed(options.schedule.seed + queue.qpn);
  }
  turns_.resize(queues_.size());
  std::iota(turns_.begin(), turns_.end(), 0u);
}

absl::Status SoftNic::status() const {
  const std::lock_guard<std::mutex> lock(status_mutex_);
  return status_;
}

bool SoftNic::step() {
  const bool shuffles = options_.schedule.shuffles_queues;
  bool was_busy = false;
  if (shuffles) std::shuffle(turns_.begin(), turns_.end(), random_);
  for (const uint32_t turn : turns_) {
    was_busy |= serve(queues_[turn], shuffles ? 1 + random_() % 4 : kPortion);
  }
  return was_busy;
}

bool SoftNic::serve(Queue& queue, uint32_t portion) {
  const bool was_rung = notices_doorbell(queue);
  uint32_t done = 0;
  while (done < portion && queue.consumed_units != queue.producer_units) {
    if (queue.is_failed) {
      flush_next(queue);
    } else if (is_held_up(queue)) {
      return true;
    } else {
      perform_next(queue);
    }
    ++done;
  }
  // Nobody has to wait for what nothing follows.
  if (done == 0 && !queue.is_failed && !queue.late.empty()) {
    const Failure late = land_late_writes(queue);
    if (!late.reason.ok()) fail(queue, {}, late.syndrome, late.reason);
  }
  return was_rung || done != 0;
}

bool SoftNic::notices_doorbell(Queue& queue) {
  const uint64_t doorbell = __atomic_load_n(queue.doorbell, __ATOMIC_ACQUIRE);
  if (doorbell == queue.seen_doorbell) return false;
  if (!queue.is_doorbell_held) {
    queue.is_doorbell_held = true;
    queue.doorbell_delay_steps = chance(queue, options_.schedule.merge_percent)
                                     ? 1 + queue.random() % kLongestDelaySteps
                                     : 0;
  }
  if (queue.doorbell_delay_steps != 0) {
    --queue.doorbell_delay_steps;
    return true;
  }
  queue.is_doorbell_held = false;
  queue.seen_doorbell = doorbell;
  const absl::StatusOr<uint32_t> pending = format_.pending(queue, doorbell);
  if (pending.ok()) {
    queue.producer_units = queue.consumed_units + *pending;
  } else if (!queue.is_failed) {
    // Nothing says how far the queue is filled, so the error takes the place of the next entry.
    fail(queue, {}, format_.syndrome(NicFault::kQueueOperation), pending.status());
  }
  return true;
}

bool SoftNic::is_held_up(Queue& queue) {
  if (!queue.is_decided) {
    queue.is_decided = true;
    queue.delay_steps = chance(queue, options_.schedule.delay_percent)
                            ? 1 + queue.random() % kLongestDelaySteps
                            : 0;
  }
  if (queue.delay_steps == 0) return false;
  --queue.delay_steps;
  return true;
}

void SoftNic::perform_next(Queue& queue) {
  queue.is_decided = false;
  const absl::StatusOr<NicOperation> decoded = decode_next(queue);
  ++operations_;
  if (!decoded.ok()) {
    const NicFault fault =
        absl::IsOutOfRange(decoded.status()) ? NicFault::kLength : NicFault::kQueueOperation;
    // Where the next entry begins is not known: all that is announced ends here.
    NicOperation rest;
    rest.units = static_cast<uint32_t>(queue.producer_units - queue.consumed_units);
    fail(queue, rest, format_.syndrome(fault), decoded.status());
    return;
  }
  Failure failed;
  if (operations_ == options_.schedule.fail_operation) {
    failed = {options_.schedule.fail_syndrome, absl::UnavailableError("injected by the schedule")};
  } else {
    failed = perform(queue, *decoded);
  }
  if (!failed.reason.ok()) {
    fail(queue, *decoded, failed.syndrome, failed.reason);
    return;
  }
  if (decoded->signaled) {
    format_.complete(queue, *decoded, 0);
    ++queue.completions;
  }
  advance(queue, *decoded);
}

void SoftNic::flush_next(Queue& queue) {
  absl::StatusOr<NicOperation> operation = decode_next(queue);
  if (!operation.ok()) {
    queue.consumed_units = queue.producer_units - 1;
    operation = NicOperation{.signaled = true, .units = 1};
  }
  if (operation->signaled) {
    format_.complete(queue, *operation, format_.syndrome(NicFault::kFlushed));
    ++queue.completions;
  }
  advance(queue, *operation);
}

absl::StatusOr<NicOperation> SoftNic::decode_next(const Queue& queue) const {
  const uint64_t unit = format_.unit_bytes();
  const uint64_t ring_bytes = queue.depth_units * unit;
  const uint64_t announced = (queue.producer_units - queue.consumed_units) * unit;
  const uint64_t start = queue.consumed_units % queue.depth_units * unit;
  std::array<uint8_t, kNicWqeBytes> entry;
  const uint64_t bytes = std::min<uint64_t>(announced, entry.size());
  const uint64_t before_end = std::min(bytes, ring_bytes - start);
  std::memcpy(entry.data(), queue.sq + start, before_end);
  std::memcpy(entry.data() + before_end, queue.sq, bytes - before_end);
  return format_.decode(queue, absl::MakeConstSpan(entry).first(bytes));
}

void SoftNic::fail(Queue& queue, const NicOperation& operation, uint32_t syndrome,
                   const absl::Status& reason) {
  queue.is_failed = true;
  queue.late.clear();
  {
    const std::lock_guard<std::mutex> lock(status_mutex_);
    if (status_.ok()) {
      const std::string text = absl::StrFormat(
          "%s queue pair %#x to rank %d, index %d: %s (syndrome %#x)", std::string(format_.name()),
          queue.qpn, queue.peer, queue.consumed_units, std::string(reason.message()), syndrome);
      status_ = about_peer(absl::Status(reason.code(), text), queue.peer);
    }
  }
  format_.complete(queue, operation, syndrome);
  ++queue.completions;
  if (operation.units != 0) advance(queue, operation);
}

void SoftNic::advance(Queue& queue, const NicOperation& operation) {
  queue.consumed_units += operation.units;
  ++queue.operations;
  queue.psn = (queue.psn + nic_packets(operation.bytes, queue.mtu_bytes)) & 0xffffff;
}

SoftNic::Failure SoftNic::perform(Queue& queue, const NicOperation& operation) {
  const bool is_write =
      operation.opcode == NicOpcode::kWrite || operation.opcode == NicOpcode::kInlineWrite;
  if (is_write && operation.bytes != 0 && !operation.signaled &&
      queue.late.size() < kMostLateWrites && chance(queue, options_.schedule.late_percent)) {
    // Its ranges are checked now, for an error belongs to this operation.
    uint64_t address = 0;
    Failure failed = find_remote(queue, operation, &address);
    if (failed.reason.ok() && operation.opcode == NicOpcode::kWrite) {
      failed = find_local(operation, &address);
    }
    if (failed.reason.ok()) queue.late.push_back(operation);
    return failed;
  }
  if (!is_write || operation.signaled) {
    Failure failed = land_late_writes(queue);
    if (!failed.reason.ok()) return failed;
  }
  switch (operation.opcode) {
    case NicOpcode::kNop:
      return {};
    case NicOpcode::kFetchAdd:
    case NicOpcode::kCompareSwap:
      return update(queue, operation);
    default:
      return move(queue, operation);
  }
}

SoftNic::Failure SoftNic::land_late_writes(Queue& queue) {
  std::shuffle(queue.late.begin(), queue.late.end(), queue.random);
  for (const NicOperation& operation : std::exchange(queue.late, {})) {
    Failure failed = move(queue, operation);
    if (!failed.reason.ok()) return failed;
  }
  return {};
}

SoftNic::Failure SoftNic::move(Queue& queue, const NicOperation& operation) {
  if (operation.bytes == 0) return {};  // Neither key nor address is looked at.
  uint64_t local = 0;
  uint64_t remote = 0;
  Failure failed;
  if (operation.opcode != NicOpcode::kInlineWrite) {
    failed = find_local(operation, &local);
    if (!failed.reason.ok()) return failed;
  }
  if (operation.opcode == NicOpcode::kLocalRead) return {};
  failed = find_remote(queue, operation, &remote);
  if (!failed.reason.ok()) return failed;
  absl::Status moved;
  if (operation.opcode == NicOpcode::kWrite) {
    moved = copy(queue, remote, local, operation.bytes);
  } else if (operation.opcode == NicOpcode::kRead) {
    moved = copy(queue, local, remote, operation.bytes);
  } else {
    moved = options_.memory->write(
        remote, absl::MakeConstSpan(operation.inline_data).first(operation.bytes));
  }
  if (!moved.ok()) return failure(NicFault::kRemoteOperation, moved);
  return {};
}

SoftNic::Failure SoftNic::update(Queue& queue, const NicOperation& operation) {
  uint64_t local = 0;
  uint64_t remote = 0;
  Failure failed = find_local(operation, &local);
  if (!failed.reason.ok()) return failed;
  failed = find_remote(queue, operation, &remote);
  if (!failed.reason.ok()) return failed;
  if (remote % sizeof(uint64_t) != 0 || operation.remote_offset % sizeof(uint64_t) != 0) {
    return failure(NicFault::kRemoteInvalid,
                   absl::InvalidArgumentError(absl::StrFormat("an atomic on offset %d, not aligned",
                                                              operation.remote_offset)));
  }
  const absl::StatusOr<uint64_t> before =
      operation.opcode == NicOpcode::kFetchAdd
          ? options_.memory->fetch_add(remote, operation.operand)
          : compare_swap(remote, operation);
  if (!before.ok()) return failure(NicFault::kRemoteOperation, before.status());
  std::array<uint8_t, sizeof(uint64_t)> result;
  std::memcpy(result.data(), &*before, sizeof result);
  const absl::Status written = options_.memory->write(local, result);
  if (!written.ok()) return failure(NicFault::kRemoteOperation, written);
  return {};
}

SoftNic::Failure SoftNic::find_local(const NicOperation& operation, uint64_t* address) const {
  const WindowRegistry::Range range = options_.windows->find_by_key(
      operation.local_key, options_.rank, operation.local_offset, operation.bytes);
  *address = range.address;
  if (range.fault == WindowRegistry::Fault::kNone) return {};
  return failure(NicFault::kLocalProtection,
                 range_error("local", operation.local_key, operation.local_offset, operation.bytes,
                             range.fault));
}

SoftNic::Failure SoftNic::find_remote(const Queue& queue, const NicOperation& operation,
                                      uint64_t* address) const {
  const WindowRegistry::Range range = options_.windows->find_by_key(
      operation.remote_key, queue.peer, operation.remote_offset, operation.bytes);
  *address = range.address;
  if (range.fault == WindowRegistry::Fault::kNone) return {};
  return failure(NicFault::kRemoteAccess,
                 range_error("remote", operation.remote_key, operation.remote_offset,
                             operation.bytes, range.fault));
}

SoftNic::Failure SoftNic::failure(NicFault fault, absl::Status reason) const {
  return {format_.syndrome(fault), std::move(reason)};
}

absl::Status SoftNic::copy(Queue& queue, uint64_t destination, uint64_t source, uint64_t bytes) {
  if (options_.schedule.piece_bytes == 0 || bytes <= options_.schedule.piece_bytes) {
    return options_.memory->copy(destination, source, bytes);
  }
  for (const auto& [at, size] : pieces_of(bytes, options_.schedule.piece_bytes, queue.random)) {
    CCO_RETURN_IF_ERROR(options_.memory->copy(destination + at, source + at, size));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SoftNic::compare_swap(uint64_t address, const NicOperation& operation) {
  // The word is learnt by swapping nothing for nothing.
  CCO_ASSIGN_OR_RETURN(uint64_t seen, options_.memory->compare_swap(address, 0, 0));
  for (uint32_t attempt = 0; attempt < kSwapAttempts; ++attempt) {
    if (((seen ^ operation.compare) & operation.compare_mask) != 0) return seen;
    const uint64_t desired =
        (seen & ~operation.swap_mask) | (operation.operand & operation.swap_mask);
    CCO_ASSIGN_OR_RETURN(const uint64_t before,
                         options_.memory->compare_swap(address, seen, desired));
    if (before == seen) return before;
    seen = before;
  }
  return absl::UnavailableError("the word changed at every attempt to swap it");
}

bool SoftNic::chance(Queue& queue, uint32_t percent) {
  return percent != 0 && queue.random() % 100 < percent;
}

}  // namespace cco
