// Four transports in one kernel, all under way at once.
#include "cco/device/gda.h"
#include "cco/device/sdma.h"
#include "tests/gpu/conformance_body.h"

namespace cco::device::conformance {
namespace {

constexpr uint32_t kStages = 4, kStageBytes = 2048;

CCO_DEVICE Place from(const Given& given, mix::Part part) { return at(given.window, part.offset); }
CCO_DEVICE Place to(const Given& given, mix::Part part) {
  return at(given.window, mix::kHalfBytes + part.offset);
}

}  // namespace

/// Between two ranks, one block each.
CCO_KERNEL void mix_all(Given given) {
  const BlockCoop coop{};
  const DeviceComm& comm = given.comm;
  const Deadline deadline = Deadline::after(comm, given.deadline_ns);
  const Findings findings(given);
  const Sdma sdma(comm);
  const Gda gda(comm, 0);
  using Mover = Tdm<BlockCoop, kStages>;
  Mover tdm(coop, dynamic_shared_memory(), Mover::shared_bytes(kStageBytes));
  const uint32_t peer = lsa_rank(comm, given.peer);

  findings.arrived(
      sdma.put<kSdmaSignalRemote>(coop, peer, to(given, mix::kSdma), from(given, mix::kSdma),
                                  mix::kSdma.bytes, 0, deadline),
      1);
  findings.arrived(gda.put(coop, given.peer, to(given, mix::kGda), from(given, mix::kGda),
                           mix::kGda.bytes, {deadline, SignalInc{0}}),
                   2);
  findings.arrived(
      tdm.put(peer, to(given, mix::kTdm), from(given, mix::kTdm), mix::kTdm.bytes, deadline), 3);
  put(coop, peer, to(given, mix::kLsa), from(given, mix::kLsa), mix::kLsa.bytes);
  signal_add(coop, comm, peer, 0, 1);

  findings.arrived(wait_at_least(coop, comm, 0, 1, deadline), 4);
  findings.arrived(gda.wait_signal(coop, 0, 1, deadline), 5);
  findings.arrived(sdma.wait_signal(coop, peer, 0, 1, deadline), 6);
  findings.arrived(gda.flush(coop, deadline), 7);
  findings.arrived(sdma.quiet(coop, peer, deadline), 8);
}

CCO_KERNEL_TABLE(conformance_mix, mix_all);

}  // namespace cco::device::conformance
