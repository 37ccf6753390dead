// One rank's membership in a group: the flat map, the notice page, and the calls in order.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/src/client.h"
#include "client/src/gate.h"
#include "client/src/heap.h"
#include "client/src/notice_page.h"
#include "device/transport/window_registry.h"

namespace cco::client {

struct Topology {
  uint64_t group_id = 0;
  uint64_t generation = 0;
  uint32_t rank = 0;  ///< World, and of the node: a group is on one node.
  uint32_t size = 0;  ///< Also the slots of the flat map.
  // The team that kernels reach by loads and stores: all ranks, unless the group plays several
  // nodes (Options::lsa_size). Slots of the others are mapped all the same, for what moves their
  // bytes in a NIC's place.
  uint32_t lsa_rank = 0;
  uint32_t lsa_size = 0;
  uint32_t lsa_first = 0;
  uint64_t slot_bytes = 0;
  uint64_t control_bytes = 0;
};

/// Thread safe.
class Group {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t size = 0;
    int device = 0;    ///< Index into the driver's devices.
    std::string name;  ///< Or:
    std::string unique_id;
    uint64_t slot_bytes = 0;
    uint32_t lsa_size = 0;  ///< A divisor of `size`; 0: all ranks.
    std::string lease;      ///< A token of 16 bytes; empty: none was given.
    std::chrono::milliseconds timeout{};
  };

  /// Joins, maps the control region, and proves that the peers' memory is reached. Collective.
  static absl::StatusOr<std::shared_ptr<Group>> create(std::shared_ptr<Client> client,
                                                       const Options& options);

  /// The ranks that are live go on in a new group, with the same memory. Collective over them. On
  /// success this one has been left, and can only be destroyed. On an error it can be tried again,
  /// even if the daemon had made the next group: then that one is shrunk.
  static absl::StatusOr<std::shared_ptr<Group>> shrink(Group& old,
                                                       std::chrono::milliseconds timeout);

  /// Unmaps everything, then tells the daemon.
  ~Group();

  const Topology& topology() const { return topology_; }
  int device() const { return device_; }
  /// By world rank.
  const std::vector<std::string>& gpu_uuids() const { return gpu_uuids_; }
  Client& client() { return *client_; }
  GpuContext& context() { return *context_; }
  /// Address of the team's first slot.
  uint64_t flat_base() const { return heap_->address(topology_.lsa_first, 0); }
  uint32_t slab_count() const { return slab_count_.load(std::memory_order_relaxed); }
  /// Address of `offset` in a world rank's slot. The control region lies at offset 0.
  uint64_t address(uint32_t rank, uint64_t offset) const { return heap_->address(rank, offset); }
  uint64_t own_address(uint64_t offset) const { return address(topology_.rank, offset); }
  /// The windows that transports of this rank may touch.
  WindowRegistry& windows() { return windows_; }
  /// Of the abort word, for kernels.
  uint64_t abort_word_address() const { return abort_word_address_; }

  /// Maps the slab unless it is mapped, and checks that it holds `size_bytes` at `offsets[r]` of
  /// world rank r's slot.
  absl::Status map_range(uint32_t slab_index, absl::Span<const uint64_t> offsets,
                         uint64_t size_bytes);
  void unmap_slab(uint32_t slab_index);

  /// Calls that are matched by their order among a rank's calls: one at a time.
  /// FAILED_PRECONDITION: another thread is in one.
  absl::StatusOr<Gate::Pass> take_turn();
  absl::Status barrier_in_turn(const Gate::Pass& turn, std::chrono::milliseconds timeout,
                               const std::string& problem = "");
  /// How many unnamed windows this rank has made; read and changed in turn only.
  uint64_t& unnamed_count(const Gate::Pass& turn);

  /// `problem`: why this rank can not go on, for all; empty: it can.
  absl::Status barrier(std::chrono::milliseconds timeout, const std::string& problem = "");

  /// ABORTED with the cause and the rank, once the group is out of order.
  absl::Status check() const;
  /// CCO_CONDITION_* that hold for this rank's GPU.
  uint32_t conditions() const { return notice_page_->conditions(); }
  absl::Status abort();

 private:
  Group(std::shared_ptr<Client> client, int device) : client_(std::move(client)), device_(device) {}
  absl::Status join(const Options& options);
  /// What the daemon says of the group that this rank is in now.
  absl::Status take(const v1::JoinGroupResponse& answer, uint32_t rank, uint32_t size);
  absl::Status map_control();
  /// Inside map_gate_: asks for tickets and redeems them. With slab 0 comes the notice page.
  absl::Status fetch_slab(uint32_t slab_index);

  const std::shared_ptr<Client> client_;  // Co-owned by all its groups and the handle table.
  const int device_;
  Topology topology_;
  std::vector<std::string> gpu_uuids_;
  std::unique_ptr<GpuContext> context_;
  std::unique_ptr<Heap> heap_;  // Changed inside map_gate_.
  WindowRegistry windows_;
  std::optional<NoticePage> notice_page_;
  uint64_t abort_word_address_ = 0;
  std::atomic<uint32_t> slab_count_{0};
  Gate map_gate_;
  Gate turn_gate_;
  uint64_t barrier_count_ = 0;
  uint64_t unnamed_count_ = 0;
  // Made by the daemon in a shrink() that failed here afterwards; used in turn only. Co-owned by
  // calls in progress.
  std::shared_ptr<Group> successor_;
};

}  // namespace cco::client
