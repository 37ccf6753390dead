#include "daemon/sys/given_fds.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cco::memd {
namespace {

constexpr int kFirstFd = 3;  // sd_listen_fds(3)

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_listening(BorrowedFd fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 &&
         listening != 0;
}

}  // namespace

absl::StatusOr<GivenFds> take_given_fds() {
  GivenFds given;
  if (variable("LISTEN_PID") != absl::StrCat(::getpid())) return given;
  int count = 0;
  const std::vector<std::string> names = absl::StrSplit(variable("LISTEN_FDNAMES"), ':');
  if (!absl::SimpleAtoi(variable("LISTEN_FDS"), &count) || count < 0 ||
      (count > 0 && names.size() != static_cast<size_t>(count))) {
    return absl::InvalidArgumentError(absl::StrCat("$LISTEN_FDS is '", variable("LISTEN_FDS"),
                                                   "', and $LISTEN_FDNAMES has ", names.size(),
                                                   " names; systemd sends as many as descriptors"));
  }
  for (int i = 0; i < count; ++i) {
    const int raw = kFirstFd + i;
    if (::fcntl(raw, F_SETFD, FD_CLOEXEC) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("descriptor ", raw, " ('", names[i],
                                                     "') from systemd: ", std::strerror(errno)));
    }
    UniqueFd fd(raw);
    if (is_listening(fd)) {
      given.sockets.push_back(std::move(fd));
    } else {
      given.kept.emplace(names[i], std::move(fd));
    }
  }
  ::unsetenv("LISTEN_PID");  // They have an owner now.
  return given;
}

}  // namespace cco::memd
