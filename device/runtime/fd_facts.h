// What error messages say about file descriptors.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "client/base/unique.h"

namespace cco {

/// "a pipe", "a directory", "a regular file of 4096 bytes (/tmp/x)", "no open file descriptor", ….
std::string describe_fd(BorrowedFd fd);

/// The S_IFMT bits of an fd: S_IFREG, S_IFIFO, …; 0 for anonymous inodes, such as dma-bufs, and for
/// no open fd.
mode_t fd_type(BorrowedFd fd);

/// True when this process cannot open one more file descriptor.
bool out_of_fds();

/// "no file descriptor left (RLIMIT_NOFILE is 1024): …": the cause and what to do.
std::string fd_shortage();

/// The status of a system call that failed with `error`; `what` says what was tried. Lack of memory
/// or of file descriptors is RESOURCE_EXHAUSTED and says which.
absl::Status system_error(int error, const std::string& what);

}  // namespace cco
