// SDMA under the contract of all transports, and what it refuses.
#include "cco/device/sdma.h"
#include "tests/gpu/conformance_body.h"

namespace cco::device::conformance {
namespace {

/// On the last queue.
template <typename C>
class SdmaWay {
 public:
  using ByThread = std::true_type;

  CCO_DEVICE SdmaWay(C coop, const Given& given)
      : coop_(coop),
        comm_(given.comm),
        window_(given.window),
        sdma_(given.comm),
        queue_(sdma_.queue_count() - 1) {}

  CCO_DEVICE WaitResult put(uint32_t peer, Place to, Place from, uint64_t bytes,
                            const Deadline& deadline) const {
    return sdma_.put(coop_, lsa_rank(comm_, peer), to, from, bytes, queue_, deadline);
  }
  CCO_DEVICE WaitResult get(uint32_t peer, Place from, Place to, uint64_t bytes,
                            const Deadline& deadline) const {
    return sdma_.get(coop_, lsa_rank(comm_, peer), from, to, bytes, queue_, deadline);
  }
  CCO_DEVICE WaitResult put_and_signal(uint32_t peer, Place to, Place from, uint64_t bytes,
                                       const Deadline& deadline) const {
    return sdma_.template put<kSdmaSignalRemote>(coop_, lsa_rank(comm_, peer), to, from, bytes,
                                                 queue_, deadline);
  }
  /// SDMA has none: from where the value would lie in the source.
  template <typename T>
  CCO_DEVICE WaitResult put_value(uint32_t peer, Place to, T, const Deadline& deadline) const {
    return put(peer, to, at(window_, to.offset - ping::kSlots * ping::kSlotBytes), sizeof(T),
               deadline);
  }
  CCO_DEVICE WaitResult signal(uint32_t peer, const Deadline& deadline) const {
    return sdma_.signal(coop_, lsa_rank(comm_, peer), queue_, deadline);
  }
  CCO_DEVICE WaitResult flush(uint32_t peer, const Deadline& deadline) const {
    return sdma_.quiet(coop_, lsa_rank(comm_, peer), deadline);
  }
  CCO_DEVICE WaitResult wait_signals(uint32_t sender, uint64_t total,
                                     const Deadline& deadline) const {
    return sdma_.wait_signal(coop_, lsa_rank(comm_, sender), queue_, total, deadline);
  }

 private:
  const C coop_;
  const DeviceComm& comm_;
  const Window& window_;
  const Sdma sdma_;
  const uint32_t queue_;
};

template <typename C>
CCO_DEVICE void refuse(C coop, const Given& given, const Window& stale) {
  const Deadline deadline = Deadline::after(given.comm, given.deadline_ns);
  const Findings findings(given);
  const Sdma sdma(given.comm);
  const Window& window = given.window;
  const uint32_t size = given.comm.lsa_size, peer = lsa_rank(given.comm, given.peer);
  const uint32_t world = given.peer;
  const Place good = at(window, 0);
  const auto put = [&](uint32_t to_peer, Place to, Place from, uint64_t bytes, uint32_t queue) {
    return sdma.put<kSdmaSignalRemote>(coop, to_peer, to, from, bytes, queue, deadline);
  };
  findings.refused(put(size, good, good, 8, 0), kNoRank, 1);
  findings.refused(put(~0u, good, good, 8, 0), kNoRank, 2);
  findings.refused(put(peer, good, good, 8, sdma.queue_count()), world, 3);
  findings.refused(put(peer, at(window, window.size_bytes + 1), good, 0, 0), world, 4);
  findings.refused(put(peer, good, at(window, window.size_bytes - 7), 8, 0), world, 5);
  findings.refused(put(peer, at(window, 8), good, ~uint64_t{7}, 0), world, 6);
  findings.refused(put(peer, at(stale, 0), good, 8, 0), world, 7);
  findings.refused(put(peer, good, at(stale, 0), 0, 0), world, 8);
  findings.refused(sdma.get(coop, peer, at(window, window.size_bytes), good, 1, 0, deadline), world,
                   9);
  findings.refused(sdma.signal(coop, peer, sdma.queue_count(), deadline), world, 10);
  findings.refused(sdma.commit(coop, size, 0, deadline), kNoRank, 11);
  findings.refused(sdma.quiet(coop, size, deadline), kNoRank, 12);
  findings.refused(sdma.quiet_queue(coop, peer, 99, deadline), world, 13);
  findings.refused(sdma.wait_signal(coop, size, 0, 1, deadline), kNoRank, 14);
  findings.holds(sdma.read_signal(size, 0) == 0, 15, 0);
  // None of that was posted, and the queue works.
  findings.arrived(put(peer, at(window, 64), at(window, 0), 8, 0), 16);
  findings.arrived(sdma.wait_signal(coop, peer, 0, 1, deadline), 17);
  findings.arrived(sdma.quiet(coop, peer, deadline), 18);
  findings.holds(sdma.read_signal(peer, 0) == 1, 19, sdma.read_signal(peer, 0));
}

}  // namespace

CCO_KERNEL void sdma_cells(Given given, uint32_t get_instead) {
  run_cells<SdmaWay>(given, get_instead != 0);
}
CCO_KERNEL void sdma_ping(Given given, uint64_t rounds) { run_ping<SdmaWay>(given, rounds); }
CCO_KERNEL void sdma_producers(Given given, uint32_t puts) { run_producers<SdmaWay>(given, puts); }
CCO_KERNEL void sdma_refuse(Given given, const Window* stale) {
  refuse(BlockCoop{}, given, *stale);
}

CCO_KERNEL_TABLE(conformance_sdma, sdma_cells, sdma_ping, sdma_producers, sdma_refuse);

}  // namespace cco::device::conformance
