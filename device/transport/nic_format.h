// The queue formats of NICs, as the NIC sees them: what is waiting, what an entry means, how its
// end is reported. Each is stateless; a queue's progress is in NicQueue.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/transport/nic_operation.h"

namespace cco {

/// One queue pair: where its memory is for the CPU, and how far the NIC has come. Units are the
/// format's, see NicOperation::units; counts never wrap.
struct NicQueue {
  uint32_t qpn = 0;
  uint32_t peer = 0;          ///< World rank.
  uint32_t depth_units = 0;   ///< A power of two.
  uint32_t mtu_bytes = 4096;  ///< A power of two.
  uint8_t* sq = nullptr;
  uint8_t* cq = nullptr;  ///< One entry, written over; 64 bytes aligned.
  const uint64_t* doorbell = nullptr;
  const uint32_t* doorbell_record = nullptr;  ///< mlx5: two words.
  const uint8_t* msn_table = nullptr;         ///< bnxt.
  uint32_t msn_depth = 0;                     ///< A power of two.

  uint64_t consumed_units = 0;
  uint64_t operations = 0;
  uint64_t completions = 0;
  uint32_t psn = 0;  ///< 24 bits: of the next packet.
};

class NicFormat {
 public:
  virtual ~NicFormat() = default;

  virtual std::string_view name() const = 0;
  virtual uint32_t unit_bytes() const = 0;
  /// Units of a queue that holds so many operations, each of one message.
  virtual uint32_t depth_units(uint32_t operations) const = 0;
  /// Entries of the table beside such a queue; 0: there is none.
  virtual uint32_t msn_depth(uint32_t /*depth_units*/) const { return 0; }
  /// Brings a new queue's completion entry into the state before any completion.
  virtual void reset_completion(const NicQueue& queue) const = 0;

  /// Units not yet consumed, after `doorbell` was seen. INVALID_ARGUMENT: it announces nothing
  /// sensible.
  virtual absl::StatusOr<uint32_t> pending(const NicQueue& queue, uint64_t doorbell) const = 0;
  /// The entry at queue.consumed_units, of which `bytes` are all that has been announced, up to
  /// kNicWqeBytes. INVALID_ARGUMENT: malformed. UNIMPLEMENTED: well-formed, but this NIC has no
  /// such operation. OUT_OF_RANGE: too long.
  virtual absl::StatusOr<NicOperation> decode(const NicQueue& queue,
                                              absl::Span<const uint8_t> bytes) const = 0;
  /// Reports the end of the operation at queue.consumed_units; `syndrome` 0 is success.
  virtual void complete(const NicQueue& queue, const NicOperation& operation,
                        uint32_t syndrome) const = 0;
  virtual uint32_t syndrome(NicFault fault) const = 0;
};

/// rdma-core, providers/mlx5/wqe.h and mlx5dv.h: ConnectX-5 to -8, collapsed CQ.
const NicFormat& nic_mlx5();
/// rdma-core, providers/bnxt_re/bnxt_re-abi.h: Thor2, entries of exact length, one-entry CQ.
const NicFormat& nic_bnxt();
/// rdma-core, providers/ionic/ionic_fw_types.h: second-generation operations, collapsed CQ.
const NicFormat& nic_ionic();

}  // namespace cco
