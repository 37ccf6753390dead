#include "daemon/sys/peer.h"

#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5, include/uapi/asm-generic/socket.h
#endif

namespace cco::memd {
namespace {

bool is_in_group(int socket, int64_t gid, uint32_t primary_gid, GetSockOpt getsockopt) {
  if (gid < 0) return false;
  if (primary_gid == gid) return true;
  std::vector<gid_t> groups(1024);
  unsigned size = static_cast<unsigned>(groups.size() * sizeof(gid_t));
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) return false;
  groups.resize(size / sizeof(gid_t));
  return std::find(groups.begin(), groups.end(), static_cast<gid_t>(gid)) != groups.end();
}

absl::StatusOr<UniqueFd> peer_pidfd(int socket, pid_t pid, GetSockOpt getsockopt) {
  int raw = -1;
  unsigned size = sizeof raw;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &raw, &size) == 0) return UniqueFd(raw);
  if (errno == EMFILE || errno == ENFILE) {
    return absl::ResourceExhaustedError(
        "no file descriptor left for the peer's pidfd; raise RLIMIT_NOFILE");
  }
  if (errno != ENOPROTOOPT) {
    return absl::UnavailableError(
        absl::StrCat("the peer (pid ", pid, ") has gone: ", std::strerror(errno)));
  }
  if (pid == 0) return UniqueFd();
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (fd || errno == ENOSYS) return fd;
  return absl::UnavailableError(
      absl::StrCat("pidfd_open of pid ", pid, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<Peer> read_peer(BorrowedFd socket, int64_t operator_gid, GetSockOpt getsockopt) {
  ucred credentials{};
  unsigned size = sizeof credentials;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return absl::UnavailableError(absl::StrCat("SO_PEERCRED: ", std::strerror(errno)));
  }
  Peer peer;
  peer.who = {credentials.uid, credentials.gid, credentials.pid, false};
  peer.who.is_operator = credentials.uid == 0 || credentials.uid == ::geteuid() ||
                         is_in_group(socket.get(), operator_gid, credentials.gid, getsockopt);
  CCO_ASSIGN_OR_RETURN(peer.pidfd, peer_pidfd(socket.get(), credentials.pid, getsockopt));
  return peer;
}

absl::StatusOr<Peer> read_peer(BorrowedFd socket, int64_t operator_gid) {
  return read_peer(socket, operator_gid,
                   [](int fd, int level, int option, void* value, unsigned* size) {
                     return ::getsockopt(fd, level, option, value, size);
                   });
}

std::string read_cgroup(const Peer& peer) {
  if (peer.who.pid == 0 || !peer.pidfd) return "";
  std::ifstream file(absl::StrCat("/proc/", peer.who.pid, "/cgroup"));
  std::string line;
  while (std::getline(file, line) && !absl::StartsWith(line, "0::")) {
  }
  // Once the process has exited its pid may be another's.
  pollfd exited{peer.pidfd.get(), POLLIN, 0};
  if (!file || ::poll(&exited, 1, 0) != 0) return "";
  return line.substr(3);
}

absl::StatusOr<uint32_t> group_id(const std::string& name) {
  group entry{};
  group* found = nullptr;
  std::vector<char> buffer(64 * 1024);
  if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "there is no group '", name, "' on this machine; create it, or change the configuration"));
  }
  return found->gr_gid;
}

}  // namespace cco::memd
