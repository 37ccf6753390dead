// SDMA: a copy engine moves the bytes; the kernel only asks for it. Peers are LSA ranks, this rank
// among them.
//
// The contract is that of lsa.h: a put followed by a signal to the same peer, on the same queue, is
// visible in that order to whoever waits for the signal. Queues are not ordered among each other.
// Lengths are 64-bit and split inside; zero bytes move nothing, and the signal after them counts.
// Every call returns one result for its group:
//
//   kArrived   done, or posted
//   kTimedOut  no room in the queue, or not done, until the deadline; names the peer
//   kPeerLost  the group is ending
//   kRefused   no SDMA in this communicator, peer or queue out of range, a window that is not
//              registered, or a range that leaves it: nothing was posted
//   kFailed    the copy engine could not perform an earlier operation; names that one's peer
//
// A call of ThreadCoop is made by each thread for itself, with arguments of its own. Threads of a
// warp that make it together for the same peer and queue post as one: one doorbell, one signal.
#pragma once

#include "cco/device/abi_sdma.h"
#include "cco/device/coop.h"
#include "cco/device/deadline.h"
#include "cco/device/lanes.h"
#include "cco/device/lsa.h"

namespace cco::device {

// Options of put(), get() and signal(); bits.

/// This rank's signal of (this rank, queue) rises by one once the bytes have landed.
constexpr uint32_t kSdmaSignalLocal = 0x1;
/// The peer's signal of (this rank, queue) does.
constexpr uint32_t kSdmaSignalRemote = 0x2;
/// The engine need not start before the next call on the queue that has not this option, or
/// commit() or quiet(). It may.
constexpr uint32_t kSdmaAggregate = 0x4;
/// Threads that post as one raise a signal each, not one together. Only for ThreadCoop.
constexpr uint32_t kSdmaSignalPerCopy = 0x8;
/// All threads that make the call together give the same peer and queue, which saves finding that
/// out. Only for ThreadCoop; checked if CCO_DEVICE_CHECKS.
constexpr uint32_t kSdmaSameQueue = 0x10;

namespace impl {
struct SdmaTransfer;
}

/// Made in the kernel, from the communicator. Holds a reference to it.
class Sdma {
 public:
  explicit CCO_DEVICE Sdma(const DeviceComm& comm);

  /// Queues per peer; 0 without SDMA.
  CCO_DEVICE uint32_t queue_count() const { return device_ == nullptr ? 0 : device_->queue_count; }

  /// Copies from this rank's copy of a window into `peer`'s copy of a window.
  ///
  /// Callers   all threads of `coop`, converged; warp and block with equal arguments
  /// Ordering  release, system scope: the engine reads what the group stored before
  /// Blocking  until the queue has room, `deadline`, or a peer is lost. `source` may be reused
  ///           after quiet() or after the signal. After kTimedOut a put whose packets do not fit
  ///           half of the queue may have moved a part, without a signal; retrying is safe.
  template <uint32_t options = 0, CCO_COOP C>
  CCO_DEVICE WaitResult put(C coop, uint32_t peer, Place destination, Place source, uint64_t bytes,
                            uint32_t queue, const Deadline& deadline) const;

  /// Copies from `peer`'s copy of a window, whose bytes it must have published, into this rank's
  /// copy of a window. They are there after quiet() or after the local signal.
  ///
  /// Callers, Ordering, Blocking: as put()
  template <uint32_t options = 0, CCO_COOP C>
  CCO_DEVICE WaitResult get(C coop, uint32_t peer, Place source, Place destination, uint64_t bytes,
                            uint32_t queue, const Deadline& deadline) const;

  /// A put of no bytes.
  ///
  /// Callers, Ordering, Blocking: as put()
  template <uint32_t options = kSdmaSignalRemote, CCO_COOP C>
  CCO_DEVICE WaitResult signal(C coop, uint32_t peer, uint32_t queue,
                               const Deadline& deadline) const;

  /// Starts what was aggregated on the queue.
  ///
  /// Callers   all threads of `coop`, converged; warp and block with equal arguments
  /// Ordering  none
  /// Blocking  as put()
  template <CCO_COOP C>
  CCO_DEVICE WaitResult commit(C coop, uint32_t peer, uint32_t queue,
                               const Deadline& deadline) const;

  /// Waits until everything that was posted to `peer` before, on all queues and by any thread of
  /// this rank that the caller has synchronised with, has landed. Commits.
  ///
  /// Callers   all threads of `coop`, converged; warp and block with equal arguments
  /// Ordering  acquire, system scope, on kArrived: what a get() fetched may be read
  /// Blocking  until then, `deadline`, or a peer is lost
  template <CCO_COOP C>
  CCO_DEVICE WaitResult quiet(C coop, uint32_t peer, const Deadline& deadline) const;

  /// The same for one queue.
  template <CCO_COOP C>
  CCO_DEVICE WaitResult quiet_queue(C coop, uint32_t peer, uint32_t queue,
                                    const Deadline& deadline) const;

  /// How often the signal of (sender, queue) has risen here; 0 if there is no such signal.
  ///
  /// Callers   one thread
  /// Ordering  acquire, system scope
  CCO_DEVICE uint64_t read_signal(uint32_t sender, uint32_t queue) const;

  /// Waits until that is at least `target`, wrap-safe. It is never reset.
  ///
  /// Callers   all threads of `coop`, converged; warp and block with equal arguments
  /// Ordering  acquire, system scope, for the whole group, on kArrived
  /// Blocking  until then, `deadline`, or a peer is lost
  /// Returns   after kTimedOut, the sender's world rank
  template <CCO_COOP C>
  CCO_DEVICE WaitResult wait_signal(C coop, uint32_t sender, uint32_t queue, uint64_t target,
                                    const Deadline& deadline) const;

 private:
  CCO_DEVICE bool has_queue(uint32_t peer, uint32_t queue) const;
  CCO_DEVICE bool has_range(Place place, uint32_t peer, uint64_t bytes) const;
  CCO_DEVICE WaitResult result_of(WaitStatus status, uint32_t peer, const Deadline& deadline) const;
  CCO_DEVICE uint64_t* signal_word(uint32_t receiver, uint32_t sender, uint32_t queue) const;

  template <uint32_t options, CCO_COOP C>
  CCO_DEVICE WaitResult transfer(C coop, impl::SdmaTransfer what, const Deadline& deadline) const;
  template <uint32_t options>
  CCO_DEVICE WaitResult post(const ActiveLanes& group, const impl::SdmaTransfer& what,
                             const Deadline& deadline) const;
  template <uint32_t options>
  CCO_DEVICE WaitStatus post_items(const ActiveLanes& group, const impl::SdmaTransfer& what,
                                   const Deadline& deadline) const;
  CCO_DEVICE bool post_item(const impl::SdmaTransfer& what, uint32_t signals, Poll& poll) const;
  template <CCO_COOP C, typename F>
  CCO_DEVICE WaitResult by_leader(C coop, uint64_t key, F act) const;
  CCO_DEVICE WaitResult land(uint32_t peer, uint32_t queue, const Deadline& deadline) const;

  const DeviceComm& comm_;
  const cco_sdma_device* device_;  // Null: no SDMA, or of a kind unknown here.
};

}  // namespace cco::device

#include "cco/device/impl/sdma_impl.h"
