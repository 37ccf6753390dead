#include "daemon/sys/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

constexpr int kBacklog = 1024;

absl::Status failure(const std::string& what, const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " ", path, ": ", std::strerror(errno),
                   ". Does the directory exist, and may this user write there?"));
}

// Whether `path` still leads to the file behind `fd`: a daemon that ends removes its lock file.
bool is_same_file(const UniqueFd& fd, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd.get(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

absl::StatusOr<UniqueFd> take_lock(const std::string& path) {
  constexpr int kTries = 100;  // Each one more daemon that ended just now.
  for (int i = 0; i < kTries; ++i) {
    UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
    if (!lock) return failure("open the lock file", path);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      char pid[32] = {};
      const ssize_t size = ::pread(lock.get(), pid, sizeof pid - 1, 0);
      return absl::AlreadyExistsError(
          absl::StrCat("another cco-memd (pid ", size > 0 ? std::string(pid, size) : "unknown",
                       ") holds ", path, ". Stop it, or choose another socket_path"));
    }
    if (!is_same_file(lock, path)) continue;
    const std::string pid = absl::StrCat(::getpid());
    if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0) {
      return failure("write the lock file", path);
    }
    return lock;
  }
  return absl::UnavailableError(absl::StrCat(path, " was removed under us ", kTries, " times"));
}

// A stale socket is replaced, a live one never: with the lock held, whoever still listens is not
// one of ours.
absl::Status remove_stale(const std::string& path, int type) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0)
    return errno == ENOENT ? absl::OkStatus() : failure("look at", path);
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " exists and is no socket. Remove it, or choose another socket_path"));
  }
  if (connect_unix(path, type).ok()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "something listens on ", path, " already. Stop it, or choose another socket_path"));
  }
  return ::unlink(path.c_str()) == 0 ? absl::OkStatus() : failure("remove the stale socket", path);
}

struct Place {
  int type;
  std::string path;  // Empty: none in the file system.
};

Place place_of(BorrowedFd socket) {
  Place place{-1, ""};
  socklen_t size = sizeof place.type;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &place.type, &size);
  sockaddr_un address{};
  size = sizeof address - 1;  // A path of full length has no end of its own.
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
      address.sun_family == AF_UNIX) {
    place.path = address.sun_path;
  }
  return place;
}

}  // namespace

absl::StatusOr<UniqueFd> listen_on(const std::string& path, int type,
                                   const ListenerOptions& options) {
  CCO_RETURN_IF_ERROR(remove_stale(path, type));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return failure("make a socket for", path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  // The socket is never there with wider permissions than asked for: it is born with none for
  // others, and its group is set before they are widened.
  const mode_t before = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  const int bind_error = errno;
  ::umask(before);
  errno = bind_error;
  if (bound != 0) return failure("bind", path);
  if (options.gid >= 0 &&
      ::chown(path.c_str(), static_cast<uid_t>(-1), static_cast<gid_t>(options.gid)) != 0) {
    return failure("change the group of", path);
  }
  if (::chmod(path.c_str(), options.mode) != 0) return failure("change the mode of", path);
  if (::listen(fd.get(), kBacklog) != 0) return failure("listen on", path);
  return fd;
}

absl::StatusOr<Listeners> Listeners::create(const ListenerOptions& options) {
  CCO_RETURN_IF_ERROR(check_socket_path(options.socket_path));
  Listeners listeners;
  CCO_ASSIGN_OR_RETURN(listeners.lock_, take_lock(options.socket_path + ".lock"));
  listeners.path_ = options.socket_path;
  // The fd channel first: who can connect to the RPC socket finds both.
  CCO_ASSIGN_OR_RETURN(listeners.fds_,
                       listen_on(fd_socket_path(options.socket_path), SOCK_SEQPACKET, options));
  CCO_ASSIGN_OR_RETURN(listeners.rpc_, listen_on(options.socket_path, SOCK_STREAM, options));
  return listeners;
}

absl::StatusOr<Listeners> Listeners::adopt(const std::string& socket_path,
                                           std::vector<UniqueFd> sockets) {
  const std::string fd_path = fd_socket_path(socket_path);
  const auto refusal = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("systemd listens ", what, ". Its socket unit needs ListenStream=", socket_path,
                     " and ListenSequentialPacket=", fd_path,
                     ", and nothing else; or change socket_path in the configuration of cco-memd"));
  };
  Listeners listeners;
  for (UniqueFd& fd : sockets) {
    const Place place = place_of(fd);
    UniqueFd* member = place.type == SOCK_STREAM && place.path == socket_path  ? &listeners.rpc_
                       : place.type == SOCK_SEQPACKET && place.path == fd_path ? &listeners.fds_
                                                                               : nullptr;
    if (member == nullptr || *member) {
      return refusal(absl::StrCat("on a socket of type ", place.type, " at '", place.path, "'"));
    }
    if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return failure("set up", place.path);
    *member = std::move(fd);
  }
  if (!listeners.rpc_) return refusal(absl::StrCat("on ", fd_path, " alone"));
  if (!listeners.fds_) return refusal(absl::StrCat("on ", socket_path, " alone"));
  return listeners;
}

Listeners::~Listeners() {
  if (!lock_) return;
  if (rpc_) ::unlink(path_.c_str());
  if (fds_) ::unlink(fd_socket_path(path_).c_str());
  ::unlink((path_ + ".lock").c_str());
}

}  // namespace cco::memd
