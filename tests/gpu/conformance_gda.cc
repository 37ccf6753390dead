// GDA under the contract of all transports; its counters and values; what it refuses.
#include "cco/device/gda.h"
#include "tests/gpu/conformance_body.h"

namespace cco::device::conformance {
namespace {

CCO_DEVICE uint32_t last_context(const DeviceComm& comm) {
  return global_pointer<const cco_gda_device>(comm.gda)->context_count - 1;
}

/// On the last context; signal `s` counts what sender s has raised.
template <typename C>
class GdaWay {
 public:
  using ByThread = std::true_type;

  CCO_DEVICE GdaWay(C coop, const Given& given) : coop_(coop), comm_(given.comm) {}

  CCO_DEVICE WaitResult put(uint32_t peer, Place to, Place from, uint64_t bytes,
                            const Deadline& deadline) const {
    return gda().put(coop_, peer, to, from, bytes, {deadline});
  }
  CCO_DEVICE WaitResult get(uint32_t peer, Place from, Place to, uint64_t bytes,
                            const Deadline& deadline) const {
    return gda().get(coop_, peer, from, to, bytes, {deadline});
  }
  CCO_DEVICE WaitResult put_and_signal(uint32_t peer, Place to, Place from, uint64_t bytes,
                                       const Deadline& deadline) const {
    return gda().put(coop_, peer, to, from, bytes, {deadline, SignalInc{comm_.rank}});
  }
  template <typename T>
  CCO_DEVICE WaitResult put_value(uint32_t peer, Place to, T value,
                                  const Deadline& deadline) const {
    return gda().template put_value<T>(coop_, peer, to, value,
                                       {deadline, NoSignal{}, kGdaAggregate});
  }
  CCO_DEVICE WaitResult signal(uint32_t peer, const Deadline& deadline) const {
    return gda().signal(coop_, peer, SignalInc{comm_.rank}, deadline);
  }
  CCO_DEVICE WaitResult flush(uint32_t peer, const Deadline& deadline) const {
    return gda().flush(coop_, peer, deadline);
  }
  CCO_DEVICE WaitResult wait_signals(uint32_t sender, uint64_t total,
                                     const Deadline& deadline) const {
    return gda().wait_signal_at_least(coop_, sender, total, deadline);
  }

 private:
  /// Anew for each use: clang 22 does not survive one that is kept, for gfx9.
  CCO_DEVICE Gda gda() const { return Gda(comm_, last_context(comm_)); }

  const C coop_;
  const DeviceComm& comm_;
};

/// In every round: values of each size, a counter for their completion, and a signal that is
/// consumed.
template <typename C>
CCO_DEVICE void count(C coop, const Given& given, uint64_t rounds) {
  const Deadline deadline = Deadline::after(given.comm, given.deadline_ns);
  const Findings findings(given);
  const Gda gda(given.comm, 0);
  constexpr uint32_t kSignal = 2, kCounter = 3;
  const Place bytes = at(given.window, 0), twos = at(given.window, 2);
  const Place fours = at(given.window, 4), eights = at(given.window, 8);
  const GdaPost quietly{deadline, NoSignal{}, kGdaAggregate};
  bool good = true;
  for (uint64_t round = 1; round <= rounds && good; ++round) {
    const uint64_t value = round * 0x0101010101010101u + given.comm.rank;
    const uint64_t expected = round * 0x0101010101010101u + given.peer;
    good = findings.arrived(gda.put_value<uint8_t>(coop, given.peer, bytes, value, quietly), 1) &&
           findings.arrived(gda.put_value<uint16_t>(coop, given.peer, twos, value, quietly), 2) &&
           findings.arrived(gda.put_value<uint32_t>(coop, given.peer, fours, value, quietly), 3) &&
           findings.arrived(gda.put_value<uint64_t>(coop, given.peer, eights, value,
                                                    {deadline, SignalAdd{kSignal, 5}}),
                            4) &&
           findings.arrived(round % 2 == 0 ? gda.counter(coop, kCounter, deadline)
                                           : gda.counter(coop, kCounter, given.peer, deadline),
                            5) &&
           findings.arrived(gda.wait_counter(coop, kCounter, round, deadline), 6) &&
           findings.holds(gda.read_counter(kCounter) == round, 7, gda.read_counter(kCounter)) &&
           findings.arrived(gda.wait_signal(coop, kSignal, 5, deadline), 8);
    const auto* const seen = local_ptr<const uint8_t>(given.window, 0, 16);
    good = good && findings.holds(seen[0] == static_cast<uint8_t>(expected), 9, seen[0]) &&
           findings.holds(
               *reinterpret_cast<const uint16_t*>(seen + 2) == static_cast<uint16_t>(expected), 10,
               round) &&
           findings.holds(
               *reinterpret_cast<const uint32_t*>(seen + 4) == static_cast<uint32_t>(expected), 11,
               round) &&
           findings.holds(*reinterpret_cast<const uint64_t*>(seen + 8) == expected, 12, round);
    // The peer's next values come when this rank has seen these.
    coop.sync();
    GdaRequest request{};
    good = good &&
           findings.arrived(gda.signal(coop, given.peer, SignalInc{kSignal + 1}, deadline), 13) &&
           findings.arrived(gda.flush_async(coop, given.peer, &request, deadline), 14) &&
           findings.arrived(gda.wait_signal(coop, kSignal + 1, 1, deadline), 15) &&
           findings.arrived(gda.wait(coop, request, deadline), 16);
  }
  coop.sync();
  findings.holds(gda.read_signal(kSignal) == 0, 17, gda.read_signal(kSignal));
  coop.sync();
  if (!coop.is_leader()) return;
  gda.reset_counter(kCounter);
  findings.holds(gda.read_counter(kCounter) == 0, 18, 0);
}

template <typename C>
CCO_DEVICE void refuse(C coop, const Given& given, const Window& stale) {
  const Deadline deadline = Deadline::after(given.comm, given.deadline_ns);
  const Findings findings(given);
  const Gda gda(given.comm, 0), no_context(given.comm, last_context(given.comm) + 1);
  const Window& window = given.window;
  const uint32_t size = given.comm.world_size, peer = given.peer;
  const Place good = at(window, 0);
  const auto put = [&](uint32_t to_peer, Place to, Place from, uint64_t bytes) {
    return gda.put(coop, to_peer, to, from, bytes, {deadline, SignalInc{1}});
  };
  findings.refused(put(size, good, good, 8), size, 1);
  findings.refused(put(~0u, good, good, 8), ~0u, 2);
  findings.refused(no_context.put(coop, peer, good, good, 8, {deadline}), peer, 3);
  findings.refused(put(peer, at(window, window.size_bytes + 1), good, 0), peer, 4);
  findings.refused(put(peer, good, at(window, window.size_bytes - 7), 8), peer, 5);
  findings.refused(put(peer, at(window, 8), good, ~uint64_t{7}), peer, 6);
  findings.refused(put(peer, at(stale, 0), good, 8), peer, 7);
  findings.refused(put(peer, good, at(stale, 0), 0), peer, 8);
  findings.refused(gda.get(coop, peer, at(window, window.size_bytes), good, 1, {deadline}), peer,
                   9);
  findings.refused(gda.get(coop, peer, good, good, 8, {deadline, SignalInc{1}}), peer, 10);
  const uint32_t no_signal = gda.device()->signal_count;
  findings.refused(gda.signal(coop, peer, SignalInc{no_signal}, deadline), peer, 11);
  findings.refused(gda.signal(coop, peer, NoSignal{}, deadline), peer, 12);
  findings.refused(gda.flush(coop, size, deadline), size, 13);
  findings.refused(gda.wait_signal(coop, no_signal, 1, deadline), kNoRank, 14);
  findings.refused(gda.wait_signal_at_least(coop, no_signal, 1, deadline), kNoRank, 15);
  findings.refused(gda.counter(coop, gda.device()->counter_count, deadline), kNoRank, 16);
  findings.refused(no_context.flush(coop, deadline), kNoRank, 17);
  findings.refused(gda.put_value<uint64_t>(coop, peer, at(window, window.size_bytes - 4), 1,
                                           {deadline, SignalInc{1}}),
                   peer, 18);
  // None of that was posted, and the queue works.
  findings.arrived(put(peer, at(window, 64), at(window, 0), 8), 19);
  findings.arrived(gda.wait_signal_at_least(coop, 1, 1, deadline), 20);
  findings.arrived(gda.flush(coop, deadline), 21);
  findings.holds(gda.read_signal(1) == 1, 22, gda.read_signal(1));
}

}  // namespace

CCO_KERNEL void gda_cells(Given given, uint32_t get_instead) {
  run_cells<GdaWay>(given, get_instead != 0);
}
CCO_KERNEL void gda_ping(Given given, uint64_t rounds) { run_ping<GdaWay>(given, rounds); }
CCO_KERNEL void gda_producers(Given given, uint32_t puts) { run_producers<GdaWay>(given, puts); }
CCO_KERNEL void gda_count(Given given, uint64_t rounds) { count(BlockCoop{}, given, rounds); }
CCO_KERNEL void gda_refuse(Given given, const Window* stale) { refuse(BlockCoop{}, given, *stale); }

CCO_KERNEL_TABLE(conformance_gda, gda_cells, gda_ping, gda_producers, gda_count, gda_refuse);

}  // namespace cco::device::conformance
