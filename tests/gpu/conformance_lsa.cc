// LSA under the contract of all transports.
#include "tests/gpu/conformance_body.h"

namespace cco::device::conformance {
namespace {

/// Signal `s` counts what sender s has raised.
template <typename C>
class LsaWay {
 public:
  using ByThread = std::true_type;

  CCO_DEVICE LsaWay(C coop, const Given& given) : coop_(coop), comm_(given.comm) {}

  CCO_DEVICE WaitResult put(uint32_t peer, Place to, Place from, uint64_t bytes,
                            const Deadline&) const {
    coop_.sync();  // Each thread moves a share of what all have written.
    device::put(coop_, lsa_rank(comm_, peer), to, from, bytes);
    return done();
  }
  CCO_DEVICE WaitResult get(uint32_t peer, Place from, Place to, uint64_t bytes,
                            const Deadline&) const {
    device::get(coop_, lsa_rank(comm_, peer), from, to, bytes);
    return done();
  }
  CCO_DEVICE WaitResult put_and_signal(uint32_t peer, Place to, Place from, uint64_t bytes,
                                       const Deadline& deadline) const {
    put(peer, to, from, bytes, deadline);
    return signal(peer, deadline);
  }
  template <typename T>
  CCO_DEVICE WaitResult put_value(uint32_t peer, Place to, T value, const Deadline&) const {
    if (coop_.is_leader()) device::put_value<T>(lsa_rank(comm_, peer), to, value);
    return done();
  }
  CCO_DEVICE WaitResult signal(uint32_t peer, const Deadline&) const {
    signal_add(coop_, comm_, lsa_rank(comm_, peer), comm_.rank, 1);
    return done();
  }
  CCO_DEVICE WaitResult flush(uint32_t, const Deadline&) const {
    coop_.sync();
    return done();
  }
  CCO_DEVICE WaitResult wait_signals(uint32_t sender, uint64_t total,
                                     const Deadline& deadline) const {
    return wait_at_least(coop_, comm_, sender, total, deadline);
  }

 private:
  static CCO_DEVICE WaitResult done() { return WaitResult{WaitStatus::kArrived, kNoRank}; }

  const C coop_;
  const DeviceComm& comm_;
};

}  // namespace

CCO_KERNEL void lsa_cells(Given given, uint32_t get_instead) {
  run_cells<LsaWay>(given, get_instead != 0);
}
CCO_KERNEL void lsa_ping(Given given, uint64_t rounds) { run_ping<LsaWay>(given, rounds); }
CCO_KERNEL void lsa_producers(Given given, uint32_t puts) { run_producers<LsaWay>(given, puts); }

CCO_KERNEL_TABLE(conformance_lsa, lsa_cells, lsa_ping, lsa_producers);

}  // namespace cco::device::conformance
