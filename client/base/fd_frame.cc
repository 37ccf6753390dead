#include "client/base/fd_frame.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/status_macros.h"

namespace cco {
namespace {

struct Header {
  uint32_t magic;
  uint16_t type;
  uint16_t reserved;
  uint32_t code;
  uint32_t payload_bytes;
};
static_assert(sizeof(Header) == 16);

// Room for more descriptors than are allowed, so that a sender of several is seen and all are
// closed.
constexpr size_t kControlBytes = CMSG_SPACE(8 * sizeof(int)) + CMSG_SPACE(sizeof(ucred));

std::string descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return absl::StrCat("RLIMIT_NOFILE=", limit.rlim_cur, " of at most ", limit.rlim_max);
}

// Every control message is looked at: credentials may precede the descriptors.
int take_fds(msghdr& message, UniqueFd* first) {
  int count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t bytes = part->cmsg_len - CMSG_LEN(0);
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      UniqueFd owner(fd);
      if (count++ == 0) *first = std::move(owner);
    }
  }
  return count;
}

absl::Status send_parts(BorrowedFd socket, FdFrameType type, absl::StatusCode code,
                        std::string_view payload, std::optional<BorrowedFd> fd) {
  payload = payload.substr(0, kMaxPayloadBytes);
  const Header header{kFdFrameMagic, static_cast<uint16_t>(type), 0, static_cast<uint32_t>(code),
                      static_cast<uint32_t>(payload.size())};
  return send_datagram(socket, {reinterpret_cast<const char*>(&header), sizeof header}, payload,
                       fd);
}

}  // namespace

absl::Status send_datagram(BorrowedFd socket, std::string_view head, std::string_view body,
                           std::optional<BorrowedFd> fd) {
  iovec parts[2] = {{const_cast<char*>(head.data()), head.size()},
                    {const_cast<char*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd.has_value()) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int raw = fd->get();
    std::memcpy(CMSG_DATA(part), &raw, sizeof raw);
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();
  const std::string text = absl::StrCat("send on a Unix socket: ", std::strerror(errno));
  if (errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS)
    return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

absl::Status send_frame(BorrowedFd socket, FdFrameType type, absl::StatusCode code,
                        std::string_view payload, const UniqueFd* fd) {
  return send_parts(socket, type, code, payload,
                    fd == nullptr ? std::nullopt : std::optional<BorrowedFd>(*fd));
}

absl::Status send_frame(BorrowedFd socket, FdFrameType type, std::string_view payload,
                        BorrowedFd fd) {
  return send_parts(socket, type, absl::StatusCode::kOk, payload, fd);
}

absl::StatusOr<FdFrame> receive_frame(BorrowedFd socket) {
  char buffer[sizeof(Header) + kMaxPayloadBytes + 1];
  alignas(cmsghdr) char control[kControlBytes];
  iovec part{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  // If the other side closed before it had read all, that is reported first, and once.
  int resets = 0;
  do {
    got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && (errno == EINTR || (errno == ECONNRESET && ++resets == 1)));
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return absl::UnavailableError("would block");
  if (got < 0)
    return absl::UnavailableError(
        absl::StrCat("receive on the fd channel: ", std::strerror(errno)));
  FdFrame frame;
  const int fd_count = take_fds(message, &frame.fd);
  if (got == 0 && fd_count == 0)
    return absl::UnavailableError("the other side closed the fd channel");
  if ((message.msg_flags & MSG_CTRUNC) != 0 && fd_count <= 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a file descriptor was sent but could not be received: this process is at its "
                     "limit of open file descriptors (",
                     descriptor_limit(), "); close some or raise the limit, then try again"));
  }
  if (fd_count > 1) {
    return absl::InvalidArgumentError(absl::StrCat("frame on the fd channel carries ", fd_count,
                                                   " file descriptors; at most one is allowed"));
  }
  Header header{};
  const size_t size = static_cast<size_t>(got);
  if (size < sizeof header || size > sizeof header + kMaxPayloadBytes ||
      (message.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("frame on the fd channel has ", size,
                                                   " bytes; it takes ", sizeof header, " to ",
                                                   sizeof header + kMaxPayloadBytes));
  }
  std::memcpy(&header, buffer, sizeof header);
  if (header.magic != kFdFrameMagic || header.payload_bytes != size - sizeof header) {
    return absl::InvalidArgumentError("not a frame of the fd channel (wrong magic or length)");
  }
  frame.type = static_cast<FdFrameType>(header.type);
  frame.code = static_cast<absl::StatusCode>(header.code);
  frame.payload.assign(buffer + sizeof header, header.payload_bytes);
  return frame;
}

absl::Status wait_readable(BorrowedFd socket, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{socket.get(), POLLIN, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (count > 0) return absl::OkStatus();
    if (count == 0)
      return absl::DeadlineExceededError(
          absl::StrCat("nothing came within ", timeout.count(), " ms"));
    if (errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
  }
}

absl::StatusOr<UniqueFd> connect_unix(const std::string& path, int socket_type,
                                      std::chrono::milliseconds timeout) {
  if (path.empty() || path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "' has ", path.size(),
                                                   " bytes; it takes 1 to ", kMaxSocketPathBytes,
                                                   ". Choose a shorter one"));
  }
  UniqueFd fd(::socket(AF_UNIX, socket_type | SOCK_CLOEXEC, 0));
  if (!fd) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "socket for ", path, ": ", std::strerror(errno), " (", descriptor_limit(), ")"));
  }
  const timeval send_timeout{timeout.count() / 1000, timeout.count() % 1000 * 1000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof send_timeout);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  int result;
  do {
    result = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  } while (result < 0 && errno == EINTR);
  if (result == 0) return fd;
  const int error = errno;
  const std::string what = absl::StrCat("connect to ", path, ": ", std::strerror(error), ". ");
  switch (error) {
    case ENOENT:
      return absl::UnavailableError(
          absl::StrCat(what, "Is cco-memd running, with this socket path?"));
    case ECONNREFUSED:
      return absl::UnavailableError(absl::StrCat(
          what, "The socket is there but no cco-memd listens on it; it has died or is starting"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "The socket's group does not include this user"));
    case EAGAIN:
      return absl::UnavailableError(
          absl::StrCat(what, "cco-memd accepts no more connections; it is overloaded or stopped"));
    default:
      return absl::UnavailableError(what);
  }
}

std::string fd_socket_path(const std::string& rpc_socket_path) {
  return absl::StrCat(absl::StripSuffix(rpc_socket_path, ".sock"), "-fd.sock");
}

absl::Status check_socket_path(const std::string& rpc_socket_path) {
  if (rpc_socket_path.empty()) return absl::InvalidArgumentError("the socket path is empty");
  if (rpc_socket_path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        "the socket path holds a zero byte: abstract sockets are not supported");
  }
  for (const std::string& path : {rpc_socket_path, fd_socket_path(rpc_socket_path)}) {
    if (path.size() > kMaxSocketPathBytes) {
      return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "' has ", path.size(),
                                                     " bytes, limit ", kMaxSocketPathBytes,
                                                     ". Choose a shorter directory"));
    }
  }
  return absl::OkStatus();
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t have = 0;
  while (have < count) {
    const ssize_t got = ::getrandom(bytes.data() + have, count - have, 0);
    CCO_ASSERT(got > 0 || errno == EINTR);
    if (got > 0) have += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace cco
