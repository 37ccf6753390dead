// One group: its ranks, its heap, its windows, and the collective calls in progress.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/core/heap.h"
#include "daemon/core/ids.h"
#include "daemon/core/rendezvous.h"
#include "daemon/core/reports.h"
#include "daemon/core/session_table.h"
#include "daemon/core/slab_table.h"
#include "daemon/ports/notice_board.h"
#include "device/runtime/gpu_driver.h"

namespace cco::memd {

/// Of a group or a window.
inline constexpr size_t kMaxNameBytes = 127;
/// INVALID_ARGUMENT: too long, or with control characters, by which a tenant could write lines into
/// logs and on terminals of operators. `what` has the name.
absl::Status check_name(const std::string& what, const std::string& name);
inline constexpr size_t kMaxProblemBytes = 1024;

enum class MemberState { kLive, kLost, kLeft };

struct PeerReport {
  uint32_t rank = 0;
  bool reachable = false;
  std::string detail;
};

/// What a rank may report of, in the order in which it is shown.
inline constexpr std::array kReportedTransports{"gda", "lsa", "sdma", "tdm"};

struct TransportReport {
  uint32_t peer = 0;
  std::string transport;
  bool usable = false;
  std::string provider;
  std::string detail;
};

struct Rank {
  SessionId session{};
  Identity who;
  int gpu = 0;
  MemberState state = MemberState::kLive;
  bool may_map = true;  // Until it has left, or its process has exited.
  std::shared_ptr<NoticePage> notice;
  Reports peers;
  Reports transports;  // By peer * kReportedTransports.size() + index of the transport.
};

/// One slab of the group: its memory on every rank, and where it is mapped.
struct SlabSet {
  std::vector<SlabId> ids;        // By rank.
  std::vector<uint64_t> offsets;  // In each rank's slot; equal unless external.
  std::vector<uint64_t> sizes;
  bool is_external = false;
  uint64_t reserved_offset = 0;  // Address space taken from the slot.
  uint64_t reserved_bytes = 0;
  bool is_kept = false;                               // It is of one window, which will be kept.
  std::vector<SlabTable::SharedCharge> revoked = {};  // Of it; as long as it may be mapped.
};

enum class Placement { kHeap, kControl, kExternal };

/// Processes of the tenant may attach to the window.
struct Grant {
  std::string token;   // Secret.
  std::string tenant;  // Its name, which means the same under the next configuration.
  Access access = Access::kReadOnly;
};

struct Window {
  WindowId id{};
  std::string name;
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  Placement placement = Placement::kHeap;
  Heap::Place place{};
  uint64_t descriptor_offset = 0;
  std::vector<uint64_t> peer_offsets;  // External only.
  std::vector<bool> users;             // Ranks that have not given it up.
  Milliseconds keep{};                 // Once nobody uses it; 0: it ends then.
  bool found = false;                  // It was kept when it was made. Not recorded.
  std::vector<Grant> grants;

  bool is_used() const { return std::find(users.begin(), users.end(), true) != users.end(); }
};

struct JoinRequest {
  std::string unique_id;
  std::string name;
  uint32_t rank = 0;
  uint32_t size = 0;
  std::string gpu_uuid;
  uint64_t slot_bytes = 0;
  uint32_t lsa_size = 0;  // 0: all ranks.
  std::string lease;  // A token, secret; empty: the one that takes the process's cgroup, if any.
  Milliseconds timeout{};
  // Filled in by the broker.
  LeaseId lease_id{};  // 0: none.
  SessionId session{};
  Identity who;
  int gpu = 0;
};
struct JoinResult {
  GroupId group{};
  uint64_t generation = 0;
  uint64_t slot_bytes = 0;
  uint64_t control_bytes = 0;
  uint32_t lsa_size = 0;
  std::vector<std::string> gpu_uuids;  // By rank.
  std::vector<int64_t> pids;
};

struct ShrinkRequest {
  GroupId group{};
  uint32_t rank = 0;
  Milliseconds timeout{};
};
struct ShrinkResult {
  JoinResult joined;
  uint32_t rank = 0;
};

struct WindowRequest {
  GroupId group{};
  uint32_t rank = 0;
  std::string name;
  uint64_t sequence = 0;
  uint64_t size_bytes = 0;
  uint64_t alignment = kWindowAlignment;
  Placement placement = Placement::kHeap;
  Milliseconds timeout{};
  std::string offer;
  uint64_t allocation_bytes = 0;
  uint64_t allocation_offset = 0;
  Milliseconds wait_for_memory{};  // 0: it fails at once.
  Milliseconds keep{};
  // Filled in by the broker.
  std::shared_ptr<UniqueFd> external_fd;  // Shared: requests are copied with their rendezvous.
};
struct WindowResult {
  WindowId window{};
  uint64_t generation = 0;
  uint64_t offset = 0;
  uint32_t slab_index = 0;
  uint64_t descriptor_offset = 0;
  std::vector<uint64_t> peer_offsets;
  bool found = false;
};

struct BarrierRequest {
  GroupId group{};
  uint32_t rank = 0;
  uint64_t sequence = 0;
  Milliseconds timeout{};
  std::string problem;  // Why this rank can not go on; empty: it can.
};
struct BarrierResult {
  uint64_t epoch = 0;
};

using WindowCall = Rendezvous<WindowRequest, WindowResult>;
using BarrierCall = Rendezvous<BarrierRequest, BarrierResult>;
using ShrinkCall = Rendezvous<ShrinkRequest, ShrinkResult>;

struct Group {
  Group(GroupId id, Heap heap) : id(id), heap(std::move(heap)) {}

  GroupId id;
  uint64_t generation = 0;
  TenantId tenant{};
  LeaseId lease{};  // It may have ended; 0: none.
  std::string name;
  std::string unique_id;
  uint64_t epoch = 0;
  uint64_t abort_word = 0;
  std::string abort_reason;  // For messages; set with abort_word, or when a rank has left.
  std::optional<uint32_t> abort_rank;
  std::vector<Rank> ranks;
  uint32_t lsa_size = 0;  // Ranks per LSA team.
  Heap heap;
  std::map<uint32_t, SlabSet> slabs;  // By index; 0 is the control region.
  uint32_t next_slab_index = 0;
  std::map<WindowId, Window> windows;
  std::map<std::string, std::unique_ptr<WindowCall>> window_calls;
  std::map<uint64_t, std::unique_ptr<BarrierCall>> barrier_calls;
  std::unique_ptr<ShrinkCall> shrink_call;  // Null before the first, and after each that ended.

  uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
  std::vector<int> gpus() const {  // By rank.
    std::vector<int> gpus;
    for (const Rank& rank : ranks) gpus.push_back(rank.gpu);
    return gpus;
  }
  /// A lost rank's process has not exited yet.
  bool is_touched_by_lost() const {
    return std::any_of(ranks.begin(), ranks.end(), [](const Rank& rank) {
      return rank.state == MemberState::kLost && rank.may_map;
    });
  }
  /// Of a window: the struct, an address per LSA rank and a remote key per world rank.
  uint64_t descriptor_bytes() const {
    return sizeof(cco_window_device) + 12 * static_cast<uint64_t>(size());
  }
};

}  // namespace cco::memd
