// TDM: copies between windows and a block's shared memory that run beside the group: bulk copies on
// sm_90, tensor instructions on gfx1250, a loop of loads and stores elsewhere. Who has few blocks
// to spend on a put spends them here: 8 blocks that drive a mover do what 132 blocks of stores do.
//
// The common contract holds: a put followed by signal_add() (lsa.h) to the same peer by the same
// group is visible in that order to whoever waits for the signal. Peers are LSA ranks.
//
//   __shared__ or dynamic memory of Tdm<BlockCoop, 6>::shared_bytes(32 << 10) bytes, then
//   Tdm<BlockCoop, 6> tdm(BlockCoop{}, dynamic_shared_memory(), shared_bytes);
//   WaitResult result = tdm.put(peer, at(window, 0), at(window, n), n, deadline, grid_share());
//   if (result.status == WaitStatus::kArrived) signal_add(BlockCoop{}, comm, peer, 0, 1);
//
// Alignment  load_async() and store_async(): addresses on both sides, lengths and strides are
//            multiples of 16 bytes. put() and get() take any; where source and destination are not
//            aligned alike to 16 they copy as lsa.h does.
// Time-outs  a copy that was issued cannot be called back. After kTimedOut or kPeerLost it may
// still
//            write: its shared memory, or its destination, is not the caller's until a later wait
//            or the destructor has seen it end.
#pragma once

#include "cco/device/deadline.h"
#include "cco/device/impl/tdm_loop.h"
#include "cco/device/impl/tdm_tile.h"
#include "cco/device/lsa.h"

#if CCO_SM90
#include "cco/device/impl/tdm_bulk.h"
#elif CCO_GFX12
#include "cco/device/impl/tdm_tensor.h"
#elif CCO_HOST
#include "cco/device/impl/tdm_host.h"
#endif

namespace cco::device {

namespace impl {
#if CCO_SM90
template <uint32_t kSlots>
using TdmMover = TdmBulk<kSlots>;
#elif CCO_GFX12
template <uint32_t kSlots>
using TdmMover = TdmTensor<kSlots>;
#elif CCO_HOST
template <uint32_t kSlots>
using TdmMover = TdmLate<kSlots>;
#else
template <uint32_t kSlots>
using TdmMover = TdmLoop<kSlots>;
#endif
}  // namespace impl

/// Of a range that `count` groups move together, what group `index` moves: every count-th chunk.
struct TdmShare {
  uint32_t index;
  uint32_t count;
};
/// One group per block, all blocks of the grid.
CCO_DEVICE TdmShare grid_share() { return TdmShare{block_index(), block_count()}; }

/// What a group has under way between windows and its block's shared memory. One per group and at
/// most one group per warp; groups of one block need memory of their own. Methods are called by all
/// threads of the group, converged, with equal arguments.
///
/// kStages  of shared memory, which is the number of loads that may be outstanding
/// Mover    who copies: by architecture, unless a test says otherwise
template <CCO_COOP C, uint32_t kStages, typename Mover = impl::TdmMover<kStages>>
class Tdm {
 public:
  static_assert(kStages >= 1 && kStages <= 32, "a ring of 1 to 32 stages");

  /// Shared memory for stages of `stage_bytes`, the same for every target.
  static CCO_HOST_DEVICE constexpr uint32_t shared_bytes(uint32_t stage_bytes) {
    return kWordsBytes + kStages * ((stage_bytes + 127) / 128 * 128);
  }

  /// Alignment `shared` to 16 bytes, better 128
  /// Units     bytes at `shared`, at least shared_bytes(128)
  /// Ordering  a barrier of the group: everybody is done with that memory
  CCO_DEVICE Tdm(C coop, void* shared, uint32_t bytes);

  /// Ordering  a barrier of the group: the memory is free again. Publishes nothing.
  /// Blocking  until no copy uses the memory. No deadline: a block must not end, and its memory not
  ///           serve another, while a copy may write to it; and the hardware ends every copy.
  CCO_DEVICE ~Tdm();
  Tdm(const Tdm&) = delete;
  Tdm& operator=(const Tdm&) = delete;

  /// Shared memory to copy to and from, stage_bytes() of it at each `index` below kStages. put()
  /// and get() use all stages. load_async() and store_async() take any shared memory.
  CCO_DEVICE void* stage(uint32_t index) const {
    return shared_ + kWordsBytes + uint64_t{index} * stage_bytes_;
  }
  CCO_DEVICE uint32_t stage_bytes() const { return stage_bytes_; }

  /// Begins to copy a range or a tile of `peer`'s copy to `shared`. The peer must have published
  /// it: wait for its signal first. At most kStages loads may be outstanding.
  ///
  /// Ordering  a barrier of the group: what its threads did to `shared` comes before the copy
  /// Blocking  never but for that
  /// Checks    window, rank, range, alignment, number of loads
  CCO_DEVICE void load_async(void* shared, uint32_t peer, Place source, uint32_t bytes) {
    load_async(shared, peer, source, TdmTile{1, bytes, bytes});
  }
  CCO_DEVICE void load_async(void* shared, uint32_t peer, Place source, const TdmTile& tile);

  /// Begins to copy `shared`, as the group's threads have written it, to a range or a tile of
  /// `peer`'s copy.
  ///
  /// Ordering  as load_async(); finish_stores() makes it publishable
  /// Blocking  never but for that
  /// Checks    window, rank, range, alignment
  CCO_DEVICE void store_async(uint32_t peer, Place destination, const void* shared,
                              uint32_t bytes) {
    store_async(peer, destination, shared, TdmTile{1, bytes, bytes});
  }
  CCO_DEVICE void store_async(uint32_t peer, Place destination, const void* shared,
                              const TdmTile& tile);

  /// Waits until all loads but the newest kNewest have arrived: every thread of the group may read
  /// them.
  ///
  /// Ordering  a barrier of the group
  /// Blocking  until `deadline` or until a peer is lost; on gfx1250 until the hardware is done
  /// Returns   one result for the group, which names nobody. After kTimedOut it may be called
  /// again.
  template <uint32_t kNewest>
  CCO_DEVICE WaitResult wait_loads(const Deadline& deadline);

  /// Waits until all stores but the newest kNewest have read their shared memory: the group may
  /// write there. They need not have reached the peer.
  ///
  /// Ordering  a barrier of the group
  /// Blocking  until the hardware has read
  template <uint32_t kNewest>
  CCO_DEVICE void wait_stores();

  /// wait_stores() and wait_loads(): at most kNewest of each are outstanding.
  template <uint32_t kNewest>
  CCO_DEVICE WaitResult wait(const Deadline& deadline) {
    wait_stores<kNewest>();
    return wait_loads<kNewest>(deadline);
  }

  /// Waits until all stores have been performed. A signal by this group then publishes them, and
  /// threads of the group may read what they stored.
  ///
  /// Ordering  a barrier of the group
  /// Blocking  until the hardware is done
  CCO_DEVICE void finish_stores();

  /// Copies `bytes` into `peer`'s copy, from memory of this rank or from its own copy of a window,
  /// through the stages: half of them fill while the others drain. Loads and stores begun before by
  /// hand are waited for. The ranges must not overlap.
  ///
  /// Ordering  what the group has stored before is what moves. On kArrived all is performed: a
  ///           signal by the same group publishes this group's share.
  /// Blocking  until `deadline` or until a peer is lost, and then for copies already issued
  /// Returns   one result for the group, which names nobody. After kTimedOut any part may have
  ///           moved; the same call may be made again.
  CCO_DEVICE WaitResult put(uint32_t peer, Place destination, const void* source, uint64_t bytes,
                            const Deadline& deadline, TdmShare share = TdmShare{0, 1}) {
    void* const to = peer_ptr(destination.window, peer, destination.offset, bytes);
    return copy(to, source, bytes, deadline, share);
  }
  CCO_DEVICE WaitResult put(uint32_t peer, Place destination, Place source, uint64_t bytes,
                            const Deadline& deadline, TdmShare share = TdmShare{0, 1}) {
    return put(peer, destination, local_ptr(source.window, source.offset, bytes), bytes, deadline,
               share);
  }

  /// Copies `bytes` out of `peer`'s copy, as put() does. The peer must have published them. On
  /// kArrived every thread of the group may read what its share brought.
  CCO_DEVICE WaitResult get(uint32_t peer, Place source, void* destination, uint64_t bytes,
                            const Deadline& deadline, TdmShare share = TdmShare{0, 1}) {
    const void* const from = peer_ptr(source.window, peer, source.offset, bytes);
    return copy(destination, from, bytes, deadline, share);
  }
  CCO_DEVICE WaitResult get(uint32_t peer, Place source, Place destination, uint64_t bytes,
                            const Deadline& deadline, TdmShare share = TdmShare{0, 1}) {
    return get(peer, source, local_ptr(destination.window, destination.offset, bytes), bytes,
               deadline, share);
  }

 private:
  static constexpr uint32_t kWordsBytes = (8 * kStages + 127) / 128 * 128;  // Of the mover.
  static constexpr uint32_t kAhead = (kStages + 1) / 2;  // Loads that a pipeline keeps outstanding.

  /// A place in the ring, and how often it has come round, modulo 2.
  struct Cursor {
    uint32_t slot = 0;
    uint32_t phase = 0;
    CCO_DEVICE void advance() {
      if (++slot != kStages) return;
      slot = 0;
      phase ^= 1;
    }
  };
  /// One group's chunks of an aligned range.
  struct Chunks;

  CCO_DEVICE WaitResult copy(void* to, const void* from, uint64_t bytes, const Deadline& deadline,
                             TdmShare share);
  CCO_DEVICE bool pump(const Chunks& chunks, Poll& poll);
  CCO_DEVICE void begin_load(void* shared, const void* global, const TdmTile& tile);
  CCO_DEVICE bool await_loads(uint32_t newest, Poll& poll);
  static CCO_DEVICE void check(const void* shared, const void* global, const TdmTile& tile);

  const C coop_;
  unsigned char* const shared_;
  uint32_t stage_bytes_;
  // Of the threads that issue alone.
  Mover mover_;
  Cursor issued_;
  Cursor arrived_;
  uint32_t outstanding_ = 0;  // Loads.
};

}  // namespace cco::device

#include "cco/device/impl/tdm_impl.h"
