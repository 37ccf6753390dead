// Processes as /proc shows them.
#pragma once

#include "daemon/ports/processes.h"

namespace cco::memd {

class ProcProcesses final : public Processes {
 public:
  bool is_stopped(int64_t pid, BorrowedFd pidfd) const override;
};

}  // namespace cco::memd
