#include "device/runtime/fd_facts.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace cco {

std::string describe_fd(BorrowedFd fd) {
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return "no open file descriptor";
  switch (facts.st_mode & S_IFMT) {
    case S_IFIFO:
      return "a pipe";
    case S_IFSOCK:
      return "a socket";
    case S_IFDIR:
      return "a directory";
    case S_IFBLK:
      return "a block device";
    case S_IFLNK:
      return "a symbolic link";
  }
  std::array<char, 256> target{};
  const std::string link = absl::StrCat("/proc/self/fd/", fd.get());
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  const std::string path(target.data(), length > 0 ? static_cast<size_t>(length) : 0);
  if (S_ISCHR(facts.st_mode)) return absl::StrCat("a character device (", path, ")");
  if (S_ISREG(facts.st_mode)) {
    return absl::StrCat("a regular file of ", facts.st_size, " bytes (", path, ")");
  }
  return absl::StrCat("an anonymous file (", path, ")");
}

mode_t fd_type(BorrowedFd fd) {
  struct stat facts {};
  return ::fstat(fd.get(), &facts) == 0 ? facts.st_mode & S_IFMT : 0;
}

bool out_of_fds() {
  const UniqueFd probe(::eventfd(0, EFD_CLOEXEC));
  return !probe && (errno == EMFILE || errno == ENFILE);
}

std::string fd_shortage() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return absl::StrCat("no file descriptor left: RLIMIT_NOFILE of this process is ", limit.rlim_cur,
                      " (at most ", limit.rlim_max, "); raise it (ulimit -n, LimitNOFILE=)");
}

absl::Status system_error(int error, const std::string& what) {
  if (error == EMFILE) return absl::ResourceExhaustedError(absl::StrCat(what, ": ", fd_shortage()));
  if (error == ENFILE) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, ": the machine has no file descriptors left; raise the sysctl fs.file-max"));
  }
  if (error == ENOMEM || error == ENOSPC) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": the machine has no memory left (errno ", error, ")"));
  }
  return absl::ErrnoToStatus(error, what);
}

}  // namespace cco
