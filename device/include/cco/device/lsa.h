// LSA: load/store access. Memory of every rank of the team is in this GPU's address space.
//
// One contract for all transports: a put followed by a signal to the same peer is visible in that
// order to whoever waits for the signal. Peers are LSA ranks. Offsets and lengths are bytes,
// 64-bit, of any alignment; zero bytes move nothing, and the signal after them still counts.
#pragma once

#include "cco/device/abi.h"
#include "cco/device/atomic.h"
#include "cco/device/coop.h"
#include "cco/device/deadline.h"
#include "cco/device/impl/copy.h"
#include "cco/device/platform.h"
#include "cco/device/team.h"

namespace cco::device {

/// Address of `offset` in LSA rank `lsa_rank`'s copy of the window.
///
/// Callers   any thread, host or device that maps the window
/// Checks    descriptor, rank, and that `bytes` from `offset` lie inside the window
template <typename T = void>
CCO_DEVICE T* peer_ptr(const Window& window, uint32_t lsa_rank, uint64_t offset = 0,
                       uint64_t bytes = 0);

/// The same in this rank's own copy.
template <typename T = void>
CCO_DEVICE T* local_ptr(const Window& window, uint64_t offset = 0, uint64_t bytes = 0) {
  return peer_ptr<T>(window, window.lsa_rank, offset, bytes);
}

/// A place in a window, the same on every rank.
struct Place {
  const Window& window;
  uint64_t offset;
};
CCO_DEVICE Place at(const Window& window, uint64_t offset) { return Place{window, offset}; }

/// Copies `bytes` into `peer`'s copy, from memory of this rank or from its own copy of a window.
/// Both ranges 16-byte aligned relative to each other is fastest; they must not overlap.
///
/// Callers   all threads of `coop`, with equal arguments; each moves a share
/// Ordering  none: a signal to the same peer by the same `coop` publishes it. Each thread reads its
///           share of `source` itself, hence its own earlier stores there, and another's only if
///           the two have synchronised since. (Engines read what the whole group stored: sdma.h.)
/// Blocking  never. `source` may be reused after the group has synchronised
template <CCO_COPY_COOP C>
CCO_DEVICE void put(C coop, uint32_t peer, Place destination, const void* source, uint64_t bytes);
template <CCO_COPY_COOP C>
CCO_DEVICE void put(C coop, uint32_t peer, Place destination, Place source, uint64_t bytes);

/// Copies `bytes` out of `peer`'s copy. The peer must have published them: wait for its signal
/// first.
///
/// Callers   all threads of `coop`, with equal arguments; each moves a share
/// Ordering  none: synchronise the group before other threads of it read
/// Blocking  until this thread's loads are back
template <CCO_COPY_COOP C>
CCO_DEVICE void get(C coop, uint32_t peer, Place source, void* destination, uint64_t bytes);
template <CCO_COPY_COOP C>
CCO_DEVICE void get(C coop, uint32_t peer, Place source, Place destination, uint64_t bytes);

/// Stores one value into `peer`'s copy.
///
/// Callers   one thread
/// Ordering  none, as put()
/// Alignment `destination.offset` to alignof(T)
template <typename T>
CCO_DEVICE void put_value(uint32_t peer, Place destination, same<T> value) {
  *peer_ptr<T>(destination.window, peer, destination.offset, sizeof(T)) = value;
}

/// Address of signal `index` of LSA rank `lsa_rank`, for kernels with a protocol of their own.
CCO_DEVICE uint64_t* signal_ptr(const DeviceComm& comm, uint32_t lsa_rank, uint32_t index);

/// Publishes what the group has stored, then adds `delta` to `peer`'s signal `index`.
///
/// Callers   all threads of `coop`, converged, with equal arguments
/// Ordering  release, system scope; pairs with wait_at_least(). Of every store that a thread of the
///           group made before the call, by put(), put_value() or plainly, whatever rank's memory
///           it went to; of other threads' stores, those that a thread of the group has
///           synchronised with. Not of what engines still move: see sdma.h and gda.h
/// Blocking  until the group's earlier stores have been performed
template <CCO_COOP C>
CCO_DEVICE void signal_add(C coop, const DeviceComm& comm, uint32_t peer, uint32_t index,
                           uint64_t delta);

/// Publishes what the group has stored, then sets `peer`'s signal `index`. Only for a signal that
/// has one writer, and never to less than it was: signals only grow.
///
/// Callers, Ordering, Blocking: as signal_add()
template <CCO_COOP C>
CCO_DEVICE void signal_set(C coop, const DeviceComm& comm, uint32_t peer, uint32_t index,
                           uint64_t value);

/// This rank's signal `index`.
///
/// Callers   one thread
/// Ordering  acquire, system scope
CCO_DEVICE uint64_t read_signal(const DeviceComm& comm, uint32_t index);

/// Waits until this rank's signal `index` is at least `target`, wrap-safe: values up to 2^63 apart
/// compare rightly.
///
/// Callers   all threads of `coop`, converged, with equal arguments
/// Ordering  acquire, system scope, for the whole group, on kArrived only
/// Blocking  until `deadline`, or until a peer is lost
/// Returns   one result for the group; a time-out names nobody, for anybody may signal
template <CCO_COOP C>
CCO_DEVICE WaitResult wait_at_least(C coop, const DeviceComm& comm, uint32_t index, uint64_t target,
                                    const Deadline& deadline);

/// A barrier of the LSA team, by one group of threads per rank. Construct, use, destroy; the epoch
/// lives in memory in between. One index serves one group at a time on every rank, and all ranks
/// make the same sequence of arrivals on it.
///
/// Callers   all threads of the group it was built with, converged, for every call
/// Ordering  arrive() releases and wait() acquires, system scope: what any rank's group stored
/// before
///           its arrive(), all groups see after their wait()
template <CCO_COOP C>
class LsaBarrier {
 public:
  CCO_DEVICE LsaBarrier(C coop, const DeviceComm& comm, uint32_t index);
  CCO_DEVICE ~LsaBarrier();
  LsaBarrier(const LsaBarrier&) = delete;
  LsaBarrier& operator=(const LsaBarrier&) = delete;

  /// Blocking  until the group's earlier stores have been performed
  CCO_DEVICE void arrive();

  /// Blocking  until every rank has arrived, `deadline`, or a peer is lost
  /// Returns   one result for the group. After kTimedOut, which names the lowest missing rank,
  /// wait()
  ///           may be called again: this rank has arrived, and stays so.
  CCO_DEVICE WaitResult wait(const Deadline& deadline);

  /// arrive(), then wait(). After kTimedOut either of sync() and wait() goes on with the same
  /// round.
  CCO_DEVICE WaitResult sync(const Deadline& deadline) {
    arrive();
    return wait(deadline);
  }

  /// Rounds that this rank has completed on this index.
  CCO_DEVICE uint64_t epoch() const { return epoch_; }

 private:
  CCO_DEVICE uint64_t* word_of(uint32_t lsa_rank, uint32_t index) const;
  CCO_DEVICE uint32_t peer_count() const { return comm_.lsa_size - 1; }
  /// By index, ascending: all LSA ranks but this one.
  CCO_DEVICE uint32_t peer(uint32_t index) const {
    return index + (index >= comm_.lsa_rank ? 1 : 0);
  }
  /// Where this rank tells a peer, and where the peer tells this rank.
  CCO_DEVICE uint64_t* outbox(uint32_t index) const {
    return word_of(peer(index), 1 + comm_.lsa_rank);
  }
  CCO_DEVICE const uint64_t* inbox(uint32_t index) const {
    return word_of(comm_.lsa_rank, 1 + peer(index));
  }

  C coop_;
  const DeviceComm& comm_;
  uint64_t words_offset_;  // In the control window: this rank's epoch, then one inbox per sender.
  uint64_t epoch_;         // Rounds this rank has completed.
  uint64_t* first_outbox_ = nullptr;  // Of the first peer that this thread serves, if any.
  const uint64_t* first_inbox_ = nullptr;
};

}  // namespace cco::device

#include "cco/device/impl/lsa_impl.h"
