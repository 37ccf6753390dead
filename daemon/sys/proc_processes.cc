#include "daemon/sys/proc_processes.h"

#include <poll.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace cco::memd {

bool ProcProcesses::is_stopped(int64_t pid, BorrowedFd pidfd) const {
  if (pid == 0 || pidfd.get() < 0) return false;
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // proc(5): "71 (its name) S ...", and the name may hold anything.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  // Once the process has exited its pid may be another's.
  pollfd exited{pidfd.get(), POLLIN, 0};
  return (state == 'T' || state == 't') && ::poll(&exited, 1, 0) == 0;
}

}  // namespace cco::memd
