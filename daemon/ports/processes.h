// Port: what the kernel says of a client's process at the moment.
#pragma once

#include <cstdint>

#include "client/base/unique.h"

namespace cco::memd {

class Processes {
 public:
  virtual ~Processes() = default;
  /// Whether it is stopped: by SIGSTOP, by a terminal, or in a debugger. `pidfd`: so that `pid` is
  /// known to be still its own; false if either is missing, or it has exited.
  virtual bool is_stopped(int64_t pid, BorrowedFd pidfd) const = 0;
};

}  // namespace cco::memd
