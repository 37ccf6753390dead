#include "daemon/sys/descriptors.h"

#include <dirent.h>
#include <sys/stat.h>

namespace cco::memd {

// Since Linux 6.2 the folder's size is their number. Before, they must be counted one by one, which
// takes longer than all the rest of a call.
uint32_t open_descriptors() {
  struct stat info {};
  if (::stat("/proc/self/fd", &info) == 0 && info.st_size > 0) {
    return static_cast<uint32_t>(info.st_size);
  }
  uint32_t count = 0;
  if (DIR* directory = ::opendir("/proc/self/fd"); directory != nullptr) {
    while (::readdir(directory) != nullptr) ++count;
    ::closedir(directory);
  }
  return count < 3 ? 0 : count - 3;  // ".", "..", and the directory's own.
}

}  // namespace cco::memd
