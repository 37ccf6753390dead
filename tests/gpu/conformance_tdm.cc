// TDM under the contract of all transports. Its signals are LSA's.
#include "tests/gpu/conformance_body.h"

namespace cco::device::conformance {
namespace {

constexpr uint32_t kStages = 4, kStageBytes = 1024;

template <typename C>
class TdmWay {
 public:
  using ByThread = std::false_type;  // At most one group per warp.
  using Mover = Tdm<C, kStages>;

  CCO_DEVICE TdmWay(C coop, const Given& given)
      : coop_(coop),
        comm_(given.comm),
        tdm_(coop, share(given.scope), Mover::shared_bytes(kStageBytes)) {}

  CCO_DEVICE WaitResult put(uint32_t peer, Place to, Place from, uint64_t bytes,
                            const Deadline& deadline) {
    return tdm_.put(lsa_rank(comm_, peer), to, from, bytes, deadline);
  }
  CCO_DEVICE WaitResult get(uint32_t peer, Place from, Place to, uint64_t bytes,
                            const Deadline& deadline) {
    return tdm_.get(lsa_rank(comm_, peer), from, to, bytes, deadline);
  }
  CCO_DEVICE WaitResult put_and_signal(uint32_t peer, Place to, Place from, uint64_t bytes,
                                       const Deadline& deadline) {
    const WaitResult result = put(peer, to, from, bytes, deadline);
    return result.status == WaitStatus::kArrived ? signal(peer, deadline) : result;
  }
  template <typename T>
  CCO_DEVICE WaitResult put_value(uint32_t peer, Place to, T value, const Deadline&) const {
    if (coop_.is_leader()) device::put_value<T>(lsa_rank(comm_, peer), to, value);
    return WaitResult{WaitStatus::kArrived, kNoRank};
  }
  CCO_DEVICE WaitResult signal(uint32_t peer, const Deadline&) const {
    signal_add(coop_, comm_, lsa_rank(comm_, peer), comm_.rank, 1);
    return WaitResult{WaitStatus::kArrived, kNoRank};
  }
  CCO_DEVICE WaitResult flush(uint32_t, const Deadline&) const {
    coop_.sync();
    return WaitResult{WaitStatus::kArrived, kNoRank};
  }
  CCO_DEVICE WaitResult wait_signals(uint32_t sender, uint64_t total,
                                     const Deadline& deadline) const {
    return wait_at_least(coop_, comm_, sender, total, deadline);
  }

 private:
  /// Groups of one block need memory of their own.
  static CCO_DEVICE void* share(Scope scope) {
    const uint32_t group = scope == Scope::kBlock ? 0 : thread_index() / warp_size();
    return static_cast<char*>(dynamic_shared_memory()) +
           uint64_t{group} * Mover::shared_bytes(kStageBytes);
  }

  const C coop_;
  const DeviceComm& comm_;
  Mover tdm_;
};

}  // namespace

CCO_KERNEL void tdm_cells(Given given, uint32_t get_instead) {
  run_cells<TdmWay>(given, get_instead != 0);
}
CCO_KERNEL void tdm_ping(Given given, uint64_t rounds) { run_ping<TdmWay>(given, rounds); }

CCO_KERNEL_TABLE(conformance_tdm, tdm_cells, tdm_ping);

}  // namespace cco::device::conformance
