// How transports prove themselves when a communicator is made: a put, a signal and a read-back to
// every peer by every queue. One thread; see client/src/transports.cc.
#include "device/kernels/proof.h"

#include "cco/device.hpp"
#include "cco/device/gda.h"
#include "cco/device/sdma.h"

namespace cco::device {
namespace {

using kernels::ProofStep;
using kernels::ProofWords;

CCO_DEVICE uint64_t* own_word(const DeviceComm& comm, uint64_t offset) {
  return local_ptr<uint64_t>(comm.control, offset, 8);
}

/// Another nonce for each queue, so that none proves what one before it has done.
CCO_DEVICE void renew_nonce(const DeviceComm& comm, const ProofWords& words, uint32_t peer) {
  *own_word(comm, words.nonce() + 8) += 1;
  *own_word(comm, words.echo(peer)) = 0;
  *own_word(comm, words.echo(peer) + 8) = 0;
}

CCO_DEVICE bool came_back(const DeviceComm& comm, const ProofWords& words, uint32_t peer) {
  const uint64_t* const sent = own_word(comm, words.nonce());
  const uint64_t* const echo = own_word(comm, words.echo(peer));
  return sent[0] == echo[0] && sent[1] == echo[1];
}

/// What a step of queue `queue` came to.
struct Proof {
  const uint32_t queue;
  uint64_t result = 0;

  CCO_DEVICE bool holds(ProofStep step, WaitResult seen) {
    if (seen.status == WaitStatus::kArrived) return true;
    result = kernels::proof_result(step, queue, static_cast<uint32_t>(seen.status));
    return false;
  }
  CCO_DEVICE bool holds(ProofStep step, bool sound) {
    if (!sound) result = kernels::proof_result(step, queue, 0);
    return sound;
  }
};

/// Without the user's signals there is none to prove; barriers then rely on it unproved.
CCO_DEVICE bool prove_signal(const Gda& gda, const ProofWords& words, uint32_t peer, Proof* proof,
                             const Deadline& deadline) {
  const DeviceComm& comm = gda.comm();
  if (gda.device()->signal_count == 0) return true;
  const Place theirs = at(comm.control, impl::signal_place(*gda.device(), 0, comm.rank));
  const Place echo = at(comm.control, words.echo(peer));
  return proof->holds(ProofStep::kSignal, gda.signal(ThreadCoop{}, peer, SignalInc{0}, deadline)) &&
         proof->holds(ProofStep::kSignal, gda.flush(ThreadCoop{}, peer, deadline)) &&
         proof->holds(ProofStep::kSignal,
                      gda.get(ThreadCoop{}, peer, theirs, echo, 8, {deadline})) &&
         proof->holds(ProofStep::kSignal, gda.flush(ThreadCoop{}, peer, deadline)) &&
         // With NICs other ranks add to the same word.
         proof->holds(ProofStep::kSignal, *own_word(comm, echo.offset) > proof->queue);
}

CCO_DEVICE uint64_t prove_context(const Gda& gda, const ProofWords& words, uint32_t peer,
                                  const Deadline& deadline) {
  const DeviceComm& comm = gda.comm();
  Proof proof{gda.context()};
  renew_nonce(comm, words, peer);
  const Place inbox = at(comm.control, words.inbox(comm.rank));
  const Place nonce = at(comm.control, words.nonce());
  const Place echo = at(comm.control, words.echo(peer));
  const uint64_t bytes = ProofWords::kNonceBytes;
  const bool sound =
      proof.holds(ProofStep::kPut, gda.put(ThreadCoop{}, peer, inbox, nonce, bytes, {deadline})) &&
      prove_signal(gda, words, peer, &proof, deadline) &&
      proof.holds(ProofStep::kRead, gda.get(ThreadCoop{}, peer, inbox, echo, bytes, {deadline})) &&
      proof.holds(ProofStep::kRead, gda.flush(ThreadCoop{}, peer, deadline)) &&
      proof.holds(ProofStep::kContent, came_back(comm, words, peer));
  return sound ? 0 : proof.result;
}

/// Puts with both signals, then reads back the peer's signal and what was put. To itself a rank
/// has but one signal.
CCO_DEVICE uint64_t prove_queue(const Sdma& sdma, const DeviceComm& comm, const ProofWords& words,
                                uint32_t peer, uint32_t queue, const Deadline& deadline) {
  constexpr uint32_t kBoth = kSdmaSignalLocal | kSdmaSignalRemote;
  const bool self = peer == comm.lsa_rank;
  const uint32_t rank = world_rank(comm, peer);
  const uint64_t index = uint64_t{comm.lsa_rank} * sdma.queue_count() + queue;
  const auto* const device = global_pointer<const cco_sdma_device>(comm.sdma);
  const Place theirs = at(comm.control, device->signal_offset + 8 * index);
  const Place inbox = at(comm.control, words.inbox(comm.rank));
  const Place nonce = at(comm.control, words.nonce());
  const Place echo = at(comm.control, words.echo(rank));
  const uint64_t bytes = ProofWords::kNonceBytes;
  const ThreadCoop coop{};
  Proof proof{queue};
  renew_nonce(comm, words, rank);
  const uint64_t risen = sdma.read_signal(comm.lsa_rank, queue) + 1;
  const bool sound =
      proof.holds(ProofStep::kPut,
                  self
                      ? sdma.put<kSdmaSignalLocal>(coop, peer, inbox, nonce, bytes, queue, deadline)
                      : sdma.put<kBoth>(coop, peer, inbox, nonce, bytes, queue, deadline)) &&
      proof.holds(ProofStep::kSignal,
                  sdma.wait_signal(coop, comm.lsa_rank, queue, risen, deadline)) &&
      proof.holds(ProofStep::kSignal, sdma.get(coop, peer, theirs, echo, 8, queue, deadline)) &&
      proof.holds(ProofStep::kSignal, sdma.quiet(coop, peer, deadline)) &&
      proof.holds(ProofStep::kSignal, *own_word(comm, echo.offset) != 0) &&
      proof.holds(ProofStep::kRead, sdma.get(coop, peer, inbox, echo, bytes, queue, deadline)) &&
      proof.holds(ProofStep::kRead, sdma.quiet(coop, peer, deadline)) &&
      proof.holds(ProofStep::kContent, came_back(comm, words, rank));
  return sound ? 0 : proof.result;
}

}  // namespace

// The budget is for each queue of each peer: processes that share a GPU get it in turns of
// milliseconds, and every operation of a queue may wait for one. A peer costs it once at most.

CCO_KERNEL void prove_sdma(DeviceComm comm, ProofWords words, uint64_t budget_ns) {
  const Sdma sdma(comm);
  for (uint32_t peer = 0; peer < comm.lsa_size; ++peer) {
    uint64_t result = 0;
    for (uint32_t queue = 0; queue < sdma.queue_count() && result == 0; ++queue) {
      const Deadline deadline = Deadline::after(comm, budget_ns);
      result = prove_queue(sdma, comm, words, peer, queue, deadline);
    }
    *own_word(comm, words.result(world_rank(comm, peer))) = result;
  }
}

CCO_KERNEL void prove_gda(DeviceComm comm, ProofWords words, uint64_t budget_ns) {
  for (uint32_t peer = 0; peer < comm.world_size; ++peer) {
    uint64_t result = 0;
    for (uint32_t context = 0; result == 0; ++context) {
      const Gda gda(comm, context);
      if (gda.device() == nullptr || context == gda.device()->context_count) break;
      const Deadline deadline = Deadline::after(comm, budget_ns);
      if (gda.connected(peer)) result = prove_context(gda, words, peer, deadline);
    }
    *own_word(comm, words.result(peer)) = result;
  }
}

CCO_KERNEL_TABLE(proof, prove_sdma, prove_gda);

}  // namespace cco::device
