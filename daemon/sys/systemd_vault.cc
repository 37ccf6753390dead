#include "daemon/sys/systemd_vault.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/status_macros.h"
#include "daemon/sys/notify.h"

namespace cco::memd {
namespace {

constexpr int kFirstFd = 3;  // sd_listen_fds(3)

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<uint64_t> read_limit() {
  const std::string text = variable("FDSTORE");
  if (text.empty()) {
    return absl::FailedPreconditionError(
        "there is no $FDSTORE: the unit needs FileDescriptorStoreMax=, and with a systemd before "
        "254 also Environment=FDSTORE= with the same number");
  }
  uint64_t limit = 0;
  if (!absl::SimpleAtoi(text, &limit) || limit == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "$FDSTORE is '", text, "': the unit needs FileDescriptorStoreMax= of at least 1"));
  }
  return limit;
}

bool is_listening(BorrowedFd fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 &&
         listening != 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SystemdVault>> SystemdVault::open() {
  if (variable("NOTIFY_SOCKET").empty()) {
    return absl::FailedPreconditionError(
        "there is no $NOTIFY_SOCKET: systemd did not start us, or the unit is not Type=notify");
  }
  CCO_ASSIGN_OR_RETURN(const uint64_t limit, read_limit());
  std::unique_ptr<SystemdVault> vault(new SystemdVault(limit));
  CCO_RETURN_IF_ERROR(vault->receive_fds());
  return vault;
}

absl::Status SystemdVault::receive_fds() {
  if (variable("LISTEN_PID") != absl::StrCat(::getpid())) return absl::OkStatus();
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
      sockets_.emplace(names[i], std::move(fd));
    } else {
      names_.adopt(names[i]);
      kept_.emplace(names[i], std::move(fd));
    }
  }
  ::unsetenv("LISTEN_PID");  // They have an owner now.
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, UniqueFd>> SystemdVault::take_over() {
  return std::move(kept_);
}

absl::Status SystemdVault::put(const std::string& name, BorrowedFd fd) {
  CCO_RETURN_IF_ERROR(names_.add(name));
  // FDPOLL=0: without it systemd closes a descriptor that reports an end or an error.
  const absl::Status sent = send_to_systemd(absl::StrCat("FDSTORE=1\nFDPOLL=0\nFDNAME=", name), fd);
  if (!sent.ok()) names_.remove(name);
  return sent;
}

absl::Status SystemdVault::remove(const std::string& name) {
  if (!names_.has(name)) return absl::OkStatus();
  CCO_RETURN_IF_ERROR(
      send_to_systemd(absl::StrCat("FDSTOREREMOVE=1\nFDNAME=", name), std::nullopt));
  names_.remove(name);
  return absl::OkStatus();
}

}  // namespace cco::memd
