// Proof that every rank reaches every other's memory, by bytes rather than by return codes.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cco/device/abi.h"
#include "client/src/deadline.h"

namespace cco::client {

class Group;

inline constexpr uint64_t kSelfTestSlotBytes = 16;
/// The daemon keeps the first bytes of every control region free for it: one slot per LSA rank.
inline constexpr uint64_t kSelfTestBytes = CCO_MAX_RANKS * kSelfTestSlotBytes;

/// Collective, in a group whose control region is mapped and whose own part is zero. Every rank
/// writes a nonce into every control region, its own included; each checks what arrived in its own
/// and reads back what it wrote elsewhere. Reports the result to the daemon.
/// FAILED_PRECONDITION: names the first peer that is not reached, and how that showed.
absl::Status run_self_test(Group& group, const Deadline& deadline);

}  // namespace cco::client
