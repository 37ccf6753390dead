// Who a client is, as the kernel says.
#pragma once

#include <cstdint>
#include <string>

namespace cco::memd {

/// A process as the kernel described it. `pid` is in the daemon's namespace; 0: not visible there.
struct Identity {
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t pid = 0;
  bool is_operator = false;
  std::string cgroup = {};  // As it was when the process came; empty: not known.
  friend bool operator==(const Identity&, const Identity&) = default;
};

}  // namespace cco::memd
