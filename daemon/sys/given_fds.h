// The descriptors that systemd gives to a service as it starts it: sd_listen_fds(3).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco::memd {

struct GivenFds {
  std::vector<UniqueFd> sockets;         ///< Those that listen, of the socket unit.
  std::map<std::string, UniqueFd> kept;  ///< The rest, of the descriptor store, by name.
};

/// Once, before anything else opens a descriptor. Empty if systemd gave none. INVALID_ARGUMENT:
/// $LISTEN_FDS and what belongs to it contradict each other.
absl::StatusOr<GivenFds> take_given_fds();

}  // namespace cco::memd
