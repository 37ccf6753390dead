// Tells whether a descriptor's number still means the file that it did.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace cco {

/// Of the open file; 0: there is none. Async-signal-safe.
inline uint64_t inode_of(int fd) noexcept {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace cco
