// Who is at the other end of a Unix socket, as the kernel says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "daemon/ports/identity.h"

namespace cco::memd {

struct Peer {
  Identity who;
  /// Becomes readable when the process has exited. Empty: this kernel gives none (see below), and
  /// only the end of the connection will tell.
  UniqueFd pidfd;
};

/// getsockopt(2), for tests.
using GetSockOpt =
    absl::FunctionRef<int(int fd, int level, int option, void* value, unsigned* size)>;

/// Reads credentials, groups and a pidfd. `operator_gid` < 0: there is no operators' group; root
/// and the daemon's own user are operators always.
///
/// SO_PEERPIDFD has three behaviours: kernels before 6.5 lack it (then pidfd_open of the pid that
/// SO_PEERCRED names, unless the pid is 0, that is, not visible in our pid namespace); some report
/// an error on a peer that has been reaped, which is UNAVAILABLE here; newer ones give a pidfd of
/// the dead peer, which is readable at once.
absl::StatusOr<Peer> read_peer(BorrowedFd socket, int64_t operator_gid);
absl::StatusOr<Peer> read_peer(BorrowedFd socket, int64_t operator_gid, GetSockOpt getsockopt);

/// The version 2 cgroup of a process, "/jobs.slice/a.scope". Empty: this machine has none, the
/// process is not visible here, or has exited.
std::string read_cgroup(const Peer& peer);

/// Of a group's name; NOT_FOUND.
absl::StatusOr<uint32_t> group_id(const std::string& name);

}  // namespace cco::memd
