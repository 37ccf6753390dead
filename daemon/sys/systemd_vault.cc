#include "daemon/sys/systemd_vault.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"
#include "daemon/sys/notify.h"

namespace cco::memd {
namespace {

// Once, until there is room: the event loop waits meanwhile.
constexpr std::chrono::milliseconds kSendTimeout{50};

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

// A socket with one message for ever: the descriptor. Nobody else has its other end.
absl::StatusOr<UniqueFd> pack(const std::string& name, BorrowedFd fd) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  UniqueFd carrier(ends[0]);
  const UniqueFd other(ends[1]);
  CCO_RETURN_IF_ERROR(send_datagram(other, name, "", fd));
  return carrier;
}

bool is_socket(BorrowedFd fd) {
  struct stat info {};
  return ::fstat(fd.get(), &info) == 0 && S_ISSOCK(info.st_mode);
}

// What the message holds, once more. Nothing: it is no socket of ours. An error: this process is at
// its limit.
absl::StatusOr<UniqueFd> unpack(BorrowedFd carrier) {
  char name[1];
  iovec part{name, sizeof name};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = ::recvmsg(carrier.get(), &message, MSG_PEEK | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* rights = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (got >= 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
    return absl::ResourceExhaustedError(
        "a descriptor of systemd's store cannot be taken out of the socket that holds it, and its "
        "memory would be lost: raise LimitNOFILE of the unit");
  }
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return UniqueFd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  return UniqueFd(fd);
}

}  // namespace

SystemdVault::FileId SystemdVault::file_id(BorrowedFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

absl::StatusOr<std::unique_ptr<SystemdVault>> SystemdVault::open(
    std::map<std::string, UniqueFd> kept) {
  if (variable("NOTIFY_SOCKET").empty()) {
    return absl::FailedPreconditionError(
        "there is no $NOTIFY_SOCKET: systemd did not start us, or the unit is not Type=notify");
  }
  CCO_ASSIGN_OR_RETURN(const uint64_t limit, read_limit());
  std::unique_ptr<SystemdVault> vault(new SystemdVault(limit));
  for (auto& [name, fd] : kept) {
    vault->names_.adopt(name);
    if (!is_socket(fd)) {
      vault->stored_[name] = file_id(fd);
      vault->kept_[name] = std::move(fd);
      continue;
    }
    CCO_ASSIGN_OR_RETURN(UniqueFd packed, unpack(fd));
    fd.reset();  // Or each would take two.
    if (packed) vault->kept_[name] = std::move(packed);
  }
  return vault;
}

absl::StatusOr<std::map<std::string, UniqueFd>> SystemdVault::take_over() {
  return std::move(kept_);
}

absl::Status SystemdVault::put(const std::string& name, BorrowedFd fd) {
  CCO_RETURN_IF_ERROR(names_.add(name));
  absl::Status sent = put_once(name, fd);
  if (!sent.ok()) names_.remove(name);
  return sent;
}

absl::Status SystemdVault::send(const std::string& message, std::optional<BorrowedFd> fd) {
  const absl::Status sent =
      send_to_systemd(message, fd, is_full_ ? std::chrono::milliseconds(0) : kSendTimeout);
  is_full_ = absl::IsUnavailable(sent);
  return sent;
}

absl::Status SystemdVault::put_once(const std::string& name, BorrowedFd fd) {
  // FDPOLL=0: without it systemd closes a descriptor that reports an end or an error.
  const std::string message = absl::StrCat("FDSTORE=1\nFDPOLL=0\nFDNAME=", name);
  const FileId file = file_id(fd);
  const bool may_be_there = std::any_of(stored_.begin(), stored_.end(),
                                        [&](const auto& entry) { return entry.second == file; });
  if (may_be_there) {
    CCO_ASSIGN_OR_RETURN(const UniqueFd carrier, pack(name, fd));
    return send(message, carrier);
  }
  CCO_RETURN_IF_ERROR(send(message, fd));
  stored_[name] = file;
  return absl::OkStatus();
}

absl::Status SystemdVault::remove(const std::string& name) {
  if (!names_.has(name)) return absl::OkStatus();
  CCO_RETURN_IF_ERROR(send(absl::StrCat("FDSTOREREMOVE=1\nFDNAME=", name), std::nullopt));
  names_.remove(name);
  stored_.erase(name);
  return absl::OkStatus();
}

}  // namespace cco::memd
