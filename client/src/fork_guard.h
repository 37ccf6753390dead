// A forked child may use neither its parent's connections nor gRPC: gRPC's threads do not exist
// there, and its epoll set is still the parent's. The child is told so, and loses the inherited
// sockets at once, so that the daemon notices when the parent dies.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "client/base/unique.h"

namespace cco {

/// To be called before the process's first use of gRPC: from then on forked children are marked.
absl::Status arm_fork_guard();

/// FAILED_PRECONDITION in a child that was forked after arm_fork_guard(). Takes no lock.
absl::Status check_not_forked();

/// While alive, a forked child closes its copy of `socket` without a word to the daemon.
class ForkRegistration {
 public:
  explicit ForkRegistration(BorrowedFd socket);
  ~ForkRegistration();
  ForkRegistration(const ForkRegistration&) = delete;
  ForkRegistration& operator=(const ForkRegistration&) = delete;

  /// In the child. Async-signal-safe.
  void close_in_child() const noexcept;

 private:
  // Whoever owns the descriptor may close it earlier; the inode tells whether the number still
  // means that socket.
  BorrowedFd socket_;
  uint64_t inode_;
};

}  // namespace cco
