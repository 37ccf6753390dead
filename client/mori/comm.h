// One rank's communicator: what the functions of mori/cco/host.hpp do.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cco/client.hpp"
#include "client/mori/device_arena.h"
#include "client/mori/local_memory.h"
#include "client/mori/requirements.h"
#include "client/mori/window_table.h"
#include "mori/cco/host.hpp"

namespace cco::compat {

/// Thread safe; no lock is held while other ranks are waited for.
class Comm {
 public:
  static absl::StatusOr<std::unique_ptr<mori::cco::ccoComm>> create(
      const mori::cco::ccoUniqueId& id, int size, int rank, size_t slot_bytes);
  ~Comm();

  absl::StatusOr<void*> allocate(size_t size_bytes);
  absl::StatusOr<void*> import(const void* pointer, size_t size_bytes);
  absl::Status free(void* pointer);

  // Collective, as create_dev_comm(). `mine`: what is wrong with this rank's call so far; it takes
  // part nevertheless, so that the other ranks do not wait for it, and all hear of it.
  absl::StatusOr<mori::cco::ccoWindow_t> create_window(absl::Status mine, size_t size_bytes,
                                                       void** local);
  absl::StatusOr<mori::cco::ccoWindow_t> register_window(const absl::Status& mine, void* pointer,
                                                         size_t size_bytes);
  absl::Status deregister(mori::cco::ccoWindow_t window);
  /// Null: see ccoGetPeerPtr().
  void* peer_pointer(const void* local, int world_rank);

  absl::StatusOr<mori::cco::ccoDevComm> create_dev_comm(
      const absl::Status& mine, const mori::cco::ccoDevCommRequirements* given);
  absl::Status destroy_dev_comm(const mori::cco::ccoDevComm& dev_comm);
  absl::StatusOr<mori::cco::ccoDevComm*> copy_to_device(const mori::cco::ccoDevComm& dev_comm);
  /// False: no copy of this communicator.
  bool free_device_copy(const mori::cco::ccoDevComm* copy);

  absl::Status barrier();
  uint64_t flat_base() const { return info_.flat_base; }

 private:
  // What a pointer given to the caller stands for: one of the two.
  struct Block {
    std::unique_ptr<LocalPiece> piece;
    ::cco::Window window;
    uint64_t size_bytes = 0;
    bool registered = false;
    bool freed = false;  // By the caller; a registered window still uses it.
  };
  struct Registered {
    ::cco::Window own;  // Of a piece; else the block's.
    void* block = nullptr;
    uint64_t size_bytes = 0;
    uint64_t local_base = 0;
    uint64_t stride_bytes = 0;  // From one LSA rank's copy to the next.
  };
  struct DevComm {
    ::cco::detail::Owner<cco_comm, cco_comm_destroy> comm;
    ::cco::Window buffers;
    std::vector<uint64_t> placed;  // In the arena.
  };

  absl::Status attach(const mori::cco::ccoUniqueId& id, int size, int rank, size_t slot_bytes);
  /// OK: every rank can go on. Else `mine`, or the first rank's that can not.
  absl::Status agree(const absl::Status& mine);
  void* keep(std::unique_ptr<LocalPiece> piece);
  absl::Status check_room(uint64_t size_bytes);
  /// The block of `pointer`, marked as registered.
  absl::StatusOr<Block*> claim(void* pointer, size_t size_bytes);
  void unclaim(void* pointer);
  absl::StatusOr<::cco::Window> offer(const Block& block, size_t size_bytes);
  absl::StatusOr<mori::cco::ccoWindow_t> publish(void* pointer, ::cco::Window own,
                                                 size_t size_bytes);

  absl::StatusOr<cco_comm*> create_native(const Requirements& wanted);
  absl::StatusOr<mori::cco::ccoDevComm> describe(const Requirements& wanted, DevComm* made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status describe_sdma(DevComm* made, mori::cco::ccoDevComm* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status describe_gda(const Requirements& wanted, mori::cco::ccoDevComm* result);
  absl::StatusOr<uint64_t> place(const void* contents, uint64_t bytes, DevComm* made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ::cco::Client client_;
  ::cco::Group group_;
  cco_group_info info_{};
  std::unique_ptr<LocalMemory> memory_;
  std::mutex mutex_;
  std::unique_ptr<DeviceArena> arena_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<WindowTable> table_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  std::map<mori::cco::ccoWindow_t, Registered> windows_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, DevComm> dev_comms_ ABSL_GUARDED_BY(mutex_);  // By generation.
  std::set<const mori::cco::ccoDevComm*> copies_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cco::compat

struct mori::cco::ccoComm : ::cco::compat::Comm {};
