// GDA: a kernel hands operations to a NIC, or to a thread of the CPU in its place (the proxy).
//
// The contract of all transports: a put followed by a signal to the same peer on the same context
// is visible in that order to whoever waits for the signal. Contexts are not ordered with each
// other. Peers are WORLD ranks. Offsets and lengths are bytes, 64-bit, of any alignment; zero bytes
// move nothing, take their turn among the others, and the signal after them still counts.
//
// Which NIC it is stands in the communicator (abi_gda.h): kernels are the same for all.
#pragma once

#include "cco/device/abi_gda.h"
#include "cco/device/coop.h"
#include "cco/device/deadline.h"
#include "cco/device/impl/work_ring.h"
#include "cco/device/lanes.h"
#include "cco/device/lsa.h"
#include "cco/device/platform.h"

namespace cco::device {

namespace impl {
template <CCO_COOP C>
class GdaExchange;
}  // namespace impl

/// What happens at the peer once the bytes have landed.
struct RemoteAction {
  bool raises;
  uint32_t id;  ///< Of the peer's GDA signals; these are not LSA's.
  uint64_t value;
};
struct NoSignal {
  CCO_DEVICE operator RemoteAction() const { return RemoteAction{false, 0, 0}; }
};
struct SignalInc {
  uint32_t id;
  CCO_DEVICE operator RemoteAction() const { return RemoteAction{true, id, 1}; }
};
struct SignalAdd {
  uint32_t id;
  uint64_t value;
  CCO_DEVICE operator RemoteAction() const { return RemoteAction{true, id, value}; }
};

/// Do not ring the NIC: a later post without this flag, or a flush, does it for all before it. The
/// NIC is rung all the same when half of its queue waits.
constexpr uint32_t kGdaAggregate = 0x1;
/// The caller, a ThreadCoop, promises that all threads which make the call together name the same
/// peer; saves sorting them.
constexpr uint32_t kGdaSamePeer = 0x2;

/// How to post.
struct GdaPost {
  const Deadline& deadline;
  RemoteAction action = NoSignal{};
  uint32_t flags = 0;
};

/// What flush_async() hands to wait().
struct GdaRequest {
  uint32_t peer;
  uint64_t target;
};

/// One context of one rank: for each peer a queue that keeps order. One thread's own, made in the
/// kernel that uses it; it remembers how far it has come, so one object for a loop is faster than
/// one for each turn. Not to be kept as a member of a class: clang 22 may crash on it for gfx9.
///
/// All calls that post or wait end by their deadline, or when a peer is lost, and return one result
/// for the group (for each thread of a ThreadCoop, its own):
///   kRefused   no GDA or no such context; no such peer, or one that `connection` leaves out; a
///              window that was never registered or has no key; a range outside it; no such signal
///              or counter. Nothing was posted.
///   kFailed    the NIC or the proxy reports an error of this peer's queue. It stays; the host
///   reads
///              it as the provider's status.
///   kTimedOut  the queue had no room, or what was waited for has not come, and the peer. Posts of
///              more than fits into the queue may have been posted in part, without the signal;
///              posting them again is safe.
///
/// A ThreadCoop posts for each thread. Threads of a warp that make the call together are sorted by
/// peer: each set posts what all of it bring at once, rings once, and raises ONE signal, that of
/// its last thread. A WarpCoop or BlockCoop posts once, by its leader.
class Gda {
 public:
  /// `comm` must outlive it.
  CCO_DEVICE Gda(const DeviceComm& comm, uint32_t context);

  /// Copies `bytes` from this rank's copy of a window into `peer`'s copy of one; then the signal.
  ///
  /// Callers   all threads of `coop`, converged, with equal arguments
  /// Ordering  release, system scope: what the group stored before is what is sent. The source may
  ///           be reused after flush(); the signal pairs with wait_signal() there
  /// Blocking  while the queue is full
  template <CCO_COOP C>
  CCO_DEVICE WaitResult put(C coop, uint32_t peer, Place destination, Place source, uint64_t bytes,
                            const GdaPost& how) const;

  /// Stores one value of 1, 2, 4 or 8 bytes into `peer`'s copy; then the signal.
  ///
  /// Callers, Ordering, Blocking: as put(); the value may be forgotten at once
  template <typename T, CCO_COOP C>
  CCO_DEVICE WaitResult put_value(C coop, uint32_t peer, Place destination, same<T> value,
                                  const GdaPost& how) const;

  /// Copies `bytes` out of `peer`'s copy. It raises no signal: an action is refused.
  ///
  /// Callers   as put()
  /// Ordering  the bytes may be read after flush() or wait(). With a NIC this relies on the queue's
  ///           completions taking the way of its data into this GPU's memory
  /// Blocking  while the queue is full
  template <CCO_COOP C>
  CCO_DEVICE WaitResult get(C coop, uint32_t peer, Place source, Place destination, uint64_t bytes,
                            const GdaPost& how) const;

  /// Raises a signal after all that this context has put to `peer`. Always rings.
  ///
  /// Callers, Ordering, Blocking: as put()
  template <CCO_COOP C>
  CCO_DEVICE WaitResult signal(C coop, uint32_t peer, RemoteAction action,
                               const Deadline& deadline) const;

  /// What this rank's signal `id` has beyond what waits have consumed; its low `bits`.
  ///
  /// Callers   one thread
  /// Ordering  acquire, system scope
  CCO_DEVICE uint64_t read_signal(uint32_t id, uint32_t bits = 64) const;

  /// Waits until read_signal() is at least `least`, and consumes that much. One group waits on a
  /// signal at a time.
  ///
  /// Callers   all threads of `coop`, converged, with equal arguments
  /// Ordering  acquire, system scope, for the whole group, on kArrived only
  /// Blocking  until `deadline`; a time-out names nobody, for anybody may signal
  template <CCO_COOP C>
  CCO_DEVICE WaitResult wait_signal(C coop, uint32_t id, uint64_t least, const Deadline& deadline,
                                    uint32_t bits = 64) const;

  /// Waits until all that was ever added to this rank's signal `id` is at least `target`,
  /// wrap-safe, and consumes nothing.
  ///
  /// Callers, Ordering, Blocking: as wait_signal(), but any number of groups may wait
  template <CCO_COOP C>
  CCO_DEVICE WaitResult wait_signal_at_least(C coop, uint32_t id, uint64_t target,
                                             const Deadline& deadline) const;

  /// Consumes whatever is there. Nothing is ever taken from the signal itself, to which NICs may be
  /// adding.
  ///
  /// Callers   one thread, while nobody waits on it
  CCO_DEVICE void reset_signal(uint32_t id) const;

  /// Waits until the peers have acknowledged what this context has posted to them.
  ///
  /// Callers   all threads of `coop`, converged, with equal arguments
  /// Ordering  acquire, system scope: sources may be overwritten, and what get() fetched be read
  /// Blocking  until `deadline`; a time-out names the lowest peer that is missing
  template <CCO_COOP C>
  CCO_DEVICE WaitResult flush(C coop, const Deadline& deadline) const;
  template <CCO_COOP C>
  CCO_DEVICE WaitResult flush(C coop, uint32_t peer, const Deadline& deadline) const;

  /// flush() in two steps. `request` is each thread's own.
  template <CCO_COOP C>
  CCO_DEVICE WaitResult flush_async(C coop, uint32_t peer, GdaRequest* request,
                                    const Deadline& deadline) const;
  template <CCO_COOP C>
  CCO_DEVICE WaitResult wait(C coop, const GdaRequest& request, const Deadline& deadline) const;

  /// flush(), of all peers or of one; then adds 1 to this rank's counter `id`.
  ///
  /// Callers, Ordering, Blocking: as flush(); the addition releases, system scope
  template <CCO_COOP C>
  CCO_DEVICE WaitResult counter(C coop, uint32_t id, const Deadline& deadline) const;
  template <CCO_COOP C>
  CCO_DEVICE WaitResult counter(C coop, uint32_t id, uint32_t peer, const Deadline& deadline) const;

  /// The low `bits` of this rank's counter `id`.
  ///
  /// Callers   one thread
  /// Ordering  acquire, system scope
  CCO_DEVICE uint64_t read_counter(uint32_t id, uint32_t bits = 56) const;

  /// Waits until read_counter() is at least `least`; consumes nothing.
  ///
  /// Callers, Ordering, Blocking: as wait_signal_at_least()
  template <CCO_COOP C>
  CCO_DEVICE WaitResult wait_counter(C coop, uint32_t id, uint64_t least, const Deadline& deadline,
                                     uint32_t bits = 56) const;

  /// Callers   one thread, while nobody counts
  CCO_DEVICE void reset_counter(uint32_t id) const;

  /// Whether posts to this world rank are possible.
  CCO_DEVICE bool connected(uint32_t peer) const;

  CCO_DEVICE const DeviceComm& comm() const { return comm_; }
  CCO_DEVICE uint32_t context() const { return context_; }
  /// Null: no GDA.
  CCO_DEVICE const cco_gda_device* device() const { return device_; }

 private:
  template <CCO_COOP C>
  friend class impl::GdaExchange;
  struct Work;

  template <CCO_COOP C>
  CCO_DEVICE WaitResult post(C coop, const Work& work, const Deadline& deadline,
                             uint32_t flags) const;
  /// `Group`: ActiveLanes or OneLane.
  template <typename Group>
  CCO_DEVICE WaitResult post_together(const Group& group, Work work, const Deadline& deadline,
                                      uint32_t flags) const;
  /// connected(), but that a NIC's queue may be missing, which whoever posts to it finds.
  CCO_DEVICE bool may_reach(uint32_t peer) const;
  CCO_DEVICE bool exists() const { return provider_ != 0; }
  CCO_DEVICE bool by_proxy() const { return provider_ == CCO_GDA_PROXY; }
  CCO_DEVICE const cco_gda_queue* queue(uint32_t peer) const;
  CCO_DEVICE bool usable(const Place& place, uint64_t bytes) const;
  CCO_DEVICE bool usable(const RemoteAction& action) const;
  /// Adds 1 to any signal, a barrier's included; by one thread.
  CCO_DEVICE WaitResult raise(uint32_t peer, uint32_t index, const Deadline& deadline) const;
  CCO_DEVICE uint64_t signal_total(uint32_t index) const;
  CCO_DEVICE void acquire_signal(uint32_t index) const;
  CCO_DEVICE uint64_t* own_word(uint64_t offset, uint32_t index) const;
  template <CCO_COOP C>
  CCO_DEVICE WaitResult count(C coop, uint32_t id, const WaitResult& flushed) const;

  /// How much this context has written to `peer`'s queue; `*waits`: some of it without a doorbell.
  CCO_DEVICE uint64_t written(uint32_t peer, bool* waits) const;
  CCO_DEVICE WaitResult wait_written(uint32_t peer, uint64_t target,
                                     const Deadline& deadline) const;

  const DeviceComm& comm_;
  const cco_gda_device* const device_;
  const uint32_t context_;
  // Read once: on GPUs an acquire empties the cache that would hold them.
  uint32_t provider_ = 0;  ///< 0: no GDA, or no such context.
  uint32_t connection_ = CCO_GDA_CONNECT_NONE;
  uint64_t queues_ = 0;            ///< Of a NIC: address of this context's to rank 0,
  uint64_t queue_stride_ = 0;      ///< and from one rank's to the next.
  cco_work_ring ring_{};           ///< Of the proxy,
  mutable impl::WorkGuess guess_;  ///< and where it was.
};

}  // namespace cco::device

#include "cco/device/impl/gda_impl.h"
