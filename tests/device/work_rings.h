// Rings of work items over the memory of an emulated node, for tests that look at each item.
#pragma once

#include <cstring>
#include <vector>

#include "cco/device/impl/work_ring.h"
#include "device/transport/work_consumer.h"
#include "tests/device/emulated_node.h"

namespace cco::testing {

/// A team whose transport words are the room of an EmulatedNode, without a GPU context.
inline TransportTeam team_of(const EmulatedNode& node, uint32_t rank,
                             const WindowRegistry* windows) {
  const device::DeviceComm comm = node.comm(rank);
  TransportTeam team;
  team.is_host = true;
  team.rank = rank;
  team.size = node.options().ranks;
  team.lsa_rank = comm.lsa_rank;
  team.lsa_size = comm.lsa_size;
  team.lsa_first = comm.lsa_first;
  team.words = node.control_bases();
  team.words_generation = EmulatedNode::kWordsGeneration;
  team.windows = windows;
  return team;
}

/// One ring in ordinary memory that begins at any position.
class TestRing {
 public:
  explicit TestRing(uint32_t depth, uint64_t first = 0)
      : first_(first), items_(depth), completed_(first), words_{first, first} {}

  cco_work_ring device() { return host().device(reinterpret_cast<uint64_t>(&words_)); }
  WorkRing host() {
    WorkRing ring;
    ring.items = items_.data();
    ring.completed = &completed_;
    ring.error = &error_;
    ring.items_address = reinterpret_cast<uint64_t>(items_.data());
    ring.completed_address = reinterpret_cast<uint64_t>(&completed_);
    ring.error_address = reinterpret_cast<uint64_t>(&error_);
    ring.depth = static_cast<uint32_t>(items_.size());
    ring.next = first_;
    return ring;
  }
  std::vector<cco_work_item>& items() { return items_; }
  /// As if a consumer had performed so many.
  void complete(uint64_t count) { __atomic_store_n(&completed_, count, __ATOMIC_RELEASE); }
  uint64_t posted() const { return __atomic_load_n(&words_.posted, __ATOMIC_ACQUIRE); }
  uint64_t completed() const { return CCO_WORK_DONE(completion()); }
  bool has_failed() const { return (completion() & CCO_WORK_FAILED) != 0; }
  uint64_t error() const { return __atomic_load_n(&error_, __ATOMIC_ACQUIRE); }

 private:
  uint64_t completion() const { return __atomic_load_n(&completed_, __ATOMIC_ACQUIRE); }

  const uint64_t first_;
  std::vector<cco_work_item> items_;
  uint64_t completed_;
  uint64_t error_ = 0;
  WorkRingWords words_;
};

/// Performs everything at once, in the caller's thread.
class DirectBackend : public WorkBackend {
 public:
  absl::Status copy(uint32_t, uint64_t destination, uint64_t source, uint64_t bytes) override {
    std::memmove(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source),
                 bytes);
    return absl::OkStatus();
  }
  absl::Status write_words(uint32_t, absl::Span<const StreamWord> words) override {
    for (const StreamWord& word : words) {
      __atomic_store_n(reinterpret_cast<uint64_t*>(word.address), word.value, __ATOMIC_RELEASE);
    }
    return absl::OkStatus();
  }
};

/// Peers are world ranks, and signal i is word i of the transports' room.
inline WorkMeaning plain_meaning(const EmulatedNode& node, uint32_t signal_count) {
  WorkMeaning meaning;
  meaning.world_rank = [size = node.options().ranks](uint32_t peer) {
    return peer < size ? std::optional<uint32_t>(peer) : std::nullopt;
  };
  meaning.signal_offset = [first = node.transport_offset(), signal_count](
                              uint32_t, uint64_t index) -> std::optional<uint64_t> {
    if (index >= signal_count) return std::nullopt;
    return first + 8 * index;
  };
  return meaning;
}

}  // namespace cco::testing
