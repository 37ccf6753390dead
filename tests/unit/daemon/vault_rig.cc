#include "tests/unit/daemon/vault_rig.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace cco::test {

KeeperRig::KeeperRig() {
  options.state_dir = folder_.path();
  options.keeper_program = CCO_KEEPER_PROGRAM;
}

KeeperRig::~KeeperRig() {
  const UniqueFd lock(::open(file("keeper.lock").c_str(), O_RDWR | O_CLOEXEC));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return;  // There is none.
  ::kill(keeper_pid(), SIGKILL);
}

std::unique_ptr<VaultActor> KeeperRig::start() {
  auto actor = std::make_unique<VaultActor>(options);
  const absl::Status status = actor->open();
  EXPECT_TRUE(status.ok()) << status;
  return actor;
}

void KeeperRig::stop() { ASSERT_EQ(::kill(keeper_pid(), SIGSTOP), 0); }
void KeeperRig::resume() { ASSERT_EQ(::kill(keeper_pid(), SIGCONT), 0); }

pid_t KeeperRig::keeper_pid() const {
  pid_t pid = 0;
  std::ifstream(file("keeper.lock")) >> pid;
  EXPECT_GT(pid, 1);
  return pid > 1 ? pid : ::getpid();
}

void SystemdRig::set_limit(size_t limit) {
  limit_ = limit;
  systemd_.reset();
  ::unlink(folder_.file("notify").c_str());
  systemd_ = std::make_unique<FakeSystemd>(folder_.file("notify"), limit);
}

std::unique_ptr<VaultActor> SystemdRig::start() {
  VaultActor::Options options;
  options.environment = {{"NOTIFY_SOCKET", folder_.file("notify")},
                         {"FDSTORE", absl::StrCat(limit_)}};
  auto actor = std::make_unique<VaultActor>(options);
  for (const auto& [name, fd] : systemd_->stored()) actor->give(name, fd);
  systemd_->resume();
  const absl::Status status = actor->open();
  EXPECT_TRUE(status.ok()) << status;
  return actor;
}

}  // namespace cco::test
