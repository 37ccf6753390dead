// A forked child may use neither its parent's connections nor gRPC: gRPC's threads do not exist
// there, and its epoll set is still the parent's. The child is told so, and loses the inherited
// sockets at once, so that the daemon notices when the parent dies.
#pragma once

#include "absl/status/status.h"

namespace cco {

class Connection;

/// To be called before the process's first use of gRPC: from then on forked children are marked.
absl::Status arm_fork_guard();

/// FAILED_PRECONDITION in a child that was forked after arm_fork_guard(). Takes no lock.
absl::Status check_not_forked();

/// While alive, a forked child abandons `connection`.
class ForkRegistration {
 public:
  explicit ForkRegistration(Connection* connection);
  ~ForkRegistration();
  ForkRegistration(const ForkRegistration&) = delete;
  ForkRegistration& operator=(const ForkRegistration&) = delete;

 private:
  Connection* connection_;
};

}  // namespace cco
