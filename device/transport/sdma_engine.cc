#include "device/transport/sdma_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "client/base/status_macros.h"
#include "device/transport/peer_status.h"

namespace cco {
namespace {

constexpr uint64_t kDwordBytes = sizeof(uint32_t);
constexpr uint32_t kPacketsPerTurn = 64;  // So that a busy queue does not starve the others.
constexpr uint32_t kPacketsPerRandomTurn = 5;
constexpr size_t kMostOverlapping = 8;

}  // namespace

SdmaEngine::SdmaEngine(uint32_t packets, MemoryPort* port, std::vector<SdmaRing> rings,
                       MayTouch may_touch, SdmaSchedule schedule)
    : packets_(packets),
      port_(port),
      may_touch_(std::move(may_touch)),
      schedule_(schedule),
      random_(schedule.seed) {
  for (SdmaRing& ring : rings) {
    const uint64_t begin = *ring.read_index;
    queues_.push_back({std::move(ring), begin, begin, false, {}});
  }
}

absl::Status SdmaEngine::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

bool SdmaEngine::step() {
  bool did_something = false;
  const size_t first = is_random() ? random_() % queues_.size() : 0;
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (serve(queues_[(first + i) % queues_.size()])) did_something = true;
  }
  return did_something;
}

bool SdmaEngine::serve(Queue& queue) {
  if (queue.is_stopped) return false;
  const uint64_t write = __atomic_load_n(queue.ring.doorbell, __ATOMIC_ACQUIRE);
  if (write == queue.read) {
    // Idle: nothing may be held back any longer.
    if (queue.overlapping.empty() && queue.published == queue.read) return false;
    const absl::Status ended = end_copies(queue);
    publish(queue);
    if (!ended.ok()) stop(queue, ended);
    return true;
  }
  absl::Status status = check_doorbell(queue, write);
  const uint64_t most = is_random() ? 1 + random_() % kPacketsPerRandomTurn : kPacketsPerTurn;
  for (uint64_t taken = 0; status.ok() && queue.read != write && taken < most; ++taken) {
    status = take_packet(queue, write);
  }
  if (!chance()) publish(queue);
  if (!status.ok()) stop(queue, status);
  return true;
}

absl::Status SdmaEngine::check_doorbell(const Queue& queue, uint64_t write) const {
  const uint64_t waiting = write - queue.read;  // Huge if the doorbell went back.
  const uint64_t behind = __atomic_load_n(queue.ring.write_index, __ATOMIC_ACQUIRE) - write;
  if (waiting <= queue.ring.ring_bytes && write % kDwordBytes == 0 &&
      behind <= queue.ring.ring_bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("doorbell %#x with read index %#x, write index %#x and a ring of %d bytes",
                      write, queue.read, write + behind, queue.ring.ring_bytes));
}

absl::Status SdmaEngine::take_packet(Queue& queue, uint64_t write) {
  const uint64_t place = queue.read & (queue.ring.ring_bytes - 1);
  const uint64_t readable = std::min(write - queue.read, queue.ring.ring_bytes - place);
  const absl::Span<const uint32_t> dwords(queue.ring.dwords + place / kDwordBytes,
                                          readable / kDwordBytes);
  CCO_ASSIGN_OR_RETURN(const SdmaPacket packet, decode_sdma(packets_, dwords));
  CCO_RETURN_IF_ERROR(perform(queue, packet));
  queue.read += packet.dwords * kDwordBytes;
  return absl::OkStatus();
}

absl::Status SdmaEngine::perform(Queue& queue, const SdmaPacket& packet) {
  switch (packet.kind) {
    case SdmaPacket::Kind::kNop:
      return end_copies(queue);
    case SdmaPacket::Kind::kCopy:
      CCO_RETURN_IF_ERROR(check_range("COPY from", packet.source, packet.value));
      CCO_RETURN_IF_ERROR(check_range("COPY to", packet.destination, packet.value));
      if (!is_random() || packets_ != CCO_SDMA_PACKETS_GFX1250) {
        return port_->copy(packet.destination, packet.source, packet.value);
      }
      queue.overlapping.push_back(packet);
      return queue.overlapping.size() < kMostOverlapping ? absl::OkStatus() : end_copies(queue);
    case SdmaPacket::Kind::kAdd:
      CCO_RETURN_IF_ERROR(check_range("ATOMIC on", packet.destination, sizeof(uint64_t)));
      return port_->fetch_add(packet.destination, packet.value).status();
    case SdmaPacket::Kind::kFence:
      CCO_RETURN_IF_ERROR(check_range("FENCE to", packet.destination, sizeof(uint32_t)));
      return store_half(packet.destination, packet.value);
  }
  return absl::InternalError("a packet of no kind");
}

absl::Status SdmaEngine::check_range(const char* what, uint64_t address, uint64_t bytes) const {
  if (may_touch_(address, bytes)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("%s %#x, %d bytes: not inside one window", what, address, bytes));
}

/// Of a 64-bit word that has no other writer. Kernels read it whole, so it is changed whole.
absl::Status SdmaEngine::store_half(uint64_t address, uint64_t value) {
  const uint64_t word = address / sizeof(uint64_t) * sizeof(uint64_t);
  const uint32_t shift = address == word ? 0 : 32;
  CCO_ASSIGN_OR_RETURN(const uint64_t before, port_->fetch_add(word, 0));
  const uint64_t after = (before & ~(uint64_t{0xffffffff} << shift)) | value << shift;
  return port_->fetch_add(word, after - before).status();
}

absl::Status SdmaEngine::end_copies(Queue& queue) {
  std::shuffle(queue.overlapping.begin(), queue.overlapping.end(), random_);
  absl::Status result;
  for (const SdmaPacket& copy : queue.overlapping) {
    result.Update(port_->copy(copy.destination, copy.source, copy.value));
  }
  queue.overlapping.clear();
  return result;
}

void SdmaEngine::publish(Queue& queue) {
  if (queue.published == queue.read) return;
  queue.published = queue.read;
  __atomic_store_n(queue.ring.read_index, queue.read, __ATOMIC_RELEASE);
}

void SdmaEngine::stop(Queue& queue, const absl::Status& why) {
  queue.is_stopped = true;
  const std::string text = absl::StrFormat("SDMA %s stopped at %#x: %s", queue.ring.name,
                                           queue.read, std::string(why.message()));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = about_peer(absl::Status(why.code(), text), queue.ring.peer);
  }
  // Last: whoever sees it finds the reason.
  __atomic_store_n(queue.ring.read_index, CCO_SDMA_STOPPED, __ATOMIC_RELEASE);
}

}  // namespace cco
