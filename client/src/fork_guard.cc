#include "client/src/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/inode.h"

namespace cco {
namespace {

// Lives as long as the process: calls may still come from destructors at exit.
struct GuardState {
  std::atomic<bool> forked{false};
  std::mutex mutex;  // Held across fork(), so that the child finds `sockets` whole.
  std::vector<const ForkRegistration*> sockets;
};

GuardState& state() {
  static GuardState& state = *new GuardState;
  return state;
}

void before_fork() { state().mutex.lock(); }
void after_fork_in_parent() { state().mutex.unlock(); }
void after_fork_in_child() {
  state().forked.store(true, std::memory_order_relaxed);
  for (const ForkRegistration* socket : state().sockets) socket->close_in_child();
  state().mutex.unlock();
}

}  // namespace

absl::Status arm_fork_guard() {
  static const int error = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("pthread_atfork: ", std::strerror(error), ", so fork() could not be guarded"));
}

absl::Status check_not_forked() {
  if (!state().forked.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process was forked after its parent had attached to cco-memd; it can use neither the "
      "parent's handles nor a client of its own. Fork before the first client is made, or exec");
}

ForkRegistration::ForkRegistration(BorrowedFd socket)
    : socket_(socket), inode_(inode_of(socket.get())) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().sockets.push_back(this);
}

ForkRegistration::~ForkRegistration() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto& sockets = state().sockets;
  sockets.erase(std::remove(sockets.begin(), sockets.end(), this), sockets.end());
}

void ForkRegistration::close_in_child() const noexcept {
  if (inode_ != 0 && inode_of(socket_.get()) == inode_) ::close(socket_.get());
}

}  // namespace cco
