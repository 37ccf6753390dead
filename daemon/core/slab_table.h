// Physical memory the daemon owns, or holds for its owner: one slab is one allocation on one GPU,
// with one fd to export.
//
// States, by who is left (kTransitions in slab_table.cc is this table):
//
//   owner is...                      others may map it   nobody else does   and it is kept
//   live                             live                live               live
//   lost (process not yet gone)      quarantined         quarantined        quarantined
//   gone (left, or process exited)   held                freed, once        kept
//
// What would be freed while another tenant's session is attached to it is held until that has gone
// (attachments.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/core/changes.h"
#include "daemon/core/ids.h"
#include "daemon/core/limits.h"
#include "daemon/core/memory_ledger.h"
#include "daemon/ports/executor.h"
#include "daemon/ports/gpu_pool.h"

namespace cco::memd {

enum class OwnerState { kLive, kLost, kGone };
enum class SlabState { kLive, kQuarantined, kHeld, kKept, kFreed };

/// `is_kept`: its window is, once nobody uses it.
SlabState slab_state(OwnerState owner, bool others_may_map, bool is_kept);

class SlabTable {
 public:
  /// Bytes that are a payer's, and not free on the GPU, though no slab has them: processes may
  /// still map what was revoked. They are given back with the last of those who share it.
  class Charge;
  using SharedCharge = std::shared_ptr<const Charge>;

  using Done = absl::AnyInvocable<void(absl::StatusOr<std::vector<SlabId>>)>;

  /// `changes` outlives this.
  SlabTable(GpuPool& pool, const Limits& limits, Changes& changes);
  /// Gives all memory back.
  ~SlabTable();

  /// One slab on each of `gpus` (which may repeat), all or none. They count as the payer's bytes
  /// from now on; the caller has made sure that these are there.
  void create(const Payer& payer, const std::vector<int>& gpus, uint64_t size_bytes,
              MemoryKind kind, Done done);

  struct Import {
    int gpu;
    UniqueFd fd;
    uint64_t size_bytes;
  };
  /// Slabs of memory that others allocated, all or none. They do not count as bytes of the GPU.
  void adopt(std::vector<Import> imports, Done done);

  struct Slab {
    int gpu;
    bool is_external;
    uint64_t size_bytes;
    SlabState state;
    SlabMemory memory;  // Restored: an fd alone.
    Payer payer{};      // Nobody for external memory.
  };
  /// One that another table had. It counts, whatever the limit.
  void restore(SlabId id, Slab slab);
  const std::map<SlabId, Slab>& all() const { return slabs_; }
  uint64_t last_id() const { return last_id_; }
  void set_last_id(uint64_t id) { last_id_ = id; }

  /// Null: freed, or never was.
  const UniqueFd* fd(SlabId id) const;
  /// Called whenever memory has been given back on a GPU; it must not call this.
  void set_on_freed(absl::AnyInvocable<void(int gpu)> on_freed) { on_freed_ = std::move(on_freed); }

  /// As of GpuDriver.
  bool enforces_read_only() const { return pool_.enforces_read_only(); }
  absl::StatusOr<UniqueFd> read_only_fd(const UniqueFd& fd) const { return pool_.read_only_fd(fd); }
  /// kFreed gives the memory back; the id is void afterwards.
  void set_state(SlabId id, SlabState state);
  /// As kFreed, for memory that is mapped: its bytes stay charged. Null for external memory, which
  /// counts nowhere. Nothing that shares it may outlive this.
  SharedCharge revoke(SlabId id);
  /// For what another table has revoked.
  SharedCharge charge(const Payer& payer, int gpu, uint64_t size_bytes);

  /// Called after the last slab of a GPU has gone and nothing is being made there.
  void set_on_empty(absl::AnyInvocable<void(int gpu)> on_empty) { on_empty_ = std::move(on_empty); }
  /// No slab, and none in the making.
  bool is_empty(int gpu) const { return present_[gpu] == 0; }
  /// Calls `done` once what was released there has been closed.
  void when_idle(int gpu, absl::AnyInvocable<void()> done) {
    pool_.when_idle(gpu, std::move(done));
  }
  bool is_open(int gpu) const { return pool_.is_open(gpu); }

  /// UUID to index; NOT_FOUND lists what there is.
  absl::StatusOr<int> find_gpu(const std::string& uuid) const;
  const std::vector<GpuDevice>& gpus() const { return pool_.gpus(); }

  struct Usage {
    uint32_t slab_count = 0;
    uint64_t bytes = 0;  // Including those that are being allocated, but none that are revoked.
    uint64_t quarantined_bytes = 0;
    uint64_t held_bytes = 0;
    uint64_t kept_bytes = 0;
    uint64_t revoked_bytes = 0;
  };
  /// Of all, or of one tenant, among whose bytes those that were revoked are.
  Usage usage(int gpu, std::optional<TenantId> tenant = std::nullopt) const;
  /// What the tenant has there, including what is being allocated and what was revoked.
  uint64_t bytes(TenantId tenant, int gpu) const { return ledger_.tenant_bytes(tenant, gpu); }
  MemoryLedger& ledger() { return ledger_; }
  const MemoryLedger& ledger() const { return ledger_; }
  Milliseconds busy(int gpu) const { return pool_.busy(gpu); }
  size_t size() const { return slabs_.size(); }

 private:
  struct Batch;  // Several allocations that succeed or fail together.
  void take_away(int gpu);
  void give_back(const Payer& payer, int gpu, uint64_t size_bytes);
  void settle(const std::shared_ptr<Batch>& batch, size_t index, absl::StatusOr<SlabMemory> memory);

  GpuPool& pool_;
  Changes& changes_;
  absl::AnyInvocable<void(int gpu)> on_freed_ = [](int) {};
  MemoryLedger ledger_;
  std::map<SlabId, Slab> slabs_;
  std::vector<uint32_t> present_;        // By GPU: slabs, and those in the making.
  std::vector<uint64_t> revoked_bytes_;  // By GPU.
  absl::AnyInvocable<void(int gpu)> on_empty_;
  uint64_t last_id_ = 0;
};

}  // namespace cco::memd
