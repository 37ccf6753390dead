// The cgroup of a process is that process's, and no other's that has its pid now.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "daemon/sys/peer.h"

namespace cco::memd {
namespace {

UniqueFd pidfd_of(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

Peer peer_of(pid_t pid, UniqueFd pidfd) { return {{0, 0, pid, false}, std::move(pidfd)}; }

bool has_cgroup(const std::string& path) {
  std::ifstream file("/proc/self/cgroup");
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  return absl::StrCat("\n", all).find(absl::StrCat("\n0::", path, "\n")) != std::string::npos;
}

// Goal    a live process's cgroup is the one that the kernel shows.
TEST(Cgroup, IsTheKernels) {
  const std::string path = read_cgroup(peer_of(::getpid(), pidfd_of(::getpid())));
  if (path.empty()) {
    EXPECT_FALSE(has_cgroup("/")) << "it was not seen";
    GTEST_SKIP() << "no cgroups of version 2 here";
  }
  EXPECT_EQ(path[0], '/');
  EXPECT_TRUE(has_cgroup(path)) << path;
}

// Goal    after the process has exited its pid says nothing.
// Method  a pidfd of a dead child with a pid that is alive: ours.
TEST(Cgroup, OfNobodyElse) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_GT(child, 0);
  UniqueFd pidfd = pidfd_of(child);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(read_cgroup(peer_of(::getpid(), std::move(pidfd))), "");
  EXPECT_EQ(read_cgroup(peer_of(::getpid(), UniqueFd())), "");
  EXPECT_EQ(read_cgroup(peer_of(0, pidfd_of(::getpid()))), "");
}

}  // namespace
}  // namespace cco::memd
