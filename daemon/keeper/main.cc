// cco-keeper LINGER_MS: started by cco-memd (daemon/sys/keeper_vault.cc), which hands it a
// listening socket as descriptor 3 and a locked file as 4. The lock ends with this process.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/keeper/keeper.h"

namespace {

constexpr int kBadUsage = 64, kOsError = 71;  // sysexits(3)
constexpr int kListener = 3, kLock = 4;
// Bounded, since some systems allow a billion.
constexpr rlim_t kMaxDescriptors = 1 << 20;
constexpr rlim_t kOwnDescriptors = 16;  // Standard streams, lock, sockets, one on its way.

bool is_listening(int fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

uint64_t raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMaxDescriptors));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur - std::min(limit.rlim_cur, kOwnDescriptors);
}

// For whoever wonders whose lock it is.
bool write_pid() {
  const std::string pid = absl::StrCat(::getpid());
  return ::ftruncate(kLock, 0) == 0 && ::pwrite(kLock, pid.data(), pid.size(), 0) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  int linger_ms = 0;
  if (argc != 2 || !absl::SimpleAtoi(argv[1], &linger_ms) || linger_ms < 0 ||
      !is_listening(kListener)) {
    std::fputs("cco-keeper: cco-memd starts it, with a listening socket; by hand it is of no use\n",
               stderr);
    return kBadUsage;
  }
  // Nobody's child, session or folder: it outlives the daemon that started it.
  const pid_t child = ::fork();
  if (child != 0) return child > 0 ? 0 : kOsError;
  if (::chdir("/") != 0 || !write_pid()) return kOsError;
  cco::memd::Keeper keeper(cco::UniqueFd(kListener), raise_descriptor_limit(),
                           std::chrono::milliseconds(linger_ms));
  keeper.run();
  return 0;
}
