#include "daemon/sys/notify.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

absl::StatusOr<UniqueFd> connect_to_systemd(std::chrono::milliseconds wait) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || path[0] == '\0') {
    return absl::FailedPreconditionError("there is no $NOTIFY_SOCKET: systemd did not start us");
  }
  const std::string text(path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (text.size() >= sizeof address.sun_path) {
    return absl::FailedPreconditionError(absl::StrCat("$NOTIFY_SOCKET is too long: ", text));
  }
  text.copy(address.sun_path, text.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int no_wait = wait.count() == 0 ? SOCK_NONBLOCK : 0;
  const timeval timeout{wait.count() / 1000, wait.count() % 1000 * 1000};
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | no_wait, 0));
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("connect to $NOTIFY_SOCKET ", text, ": ", std::strerror(errno)));
  }
  return fd;
}

}  // namespace

void notify_systemd(const std::string& state) {
  (void)send_to_systemd(state, std::nullopt, std::chrono::seconds(1));
}

absl::Status send_to_systemd(const std::string& state, std::optional<BorrowedFd> fd,
                             std::chrono::milliseconds wait) {
  CCO_ASSIGN_OR_RETURN(const UniqueFd socket, connect_to_systemd(wait));
  return send_datagram(socket, state, {}, fd);
}

}  // namespace cco::memd
