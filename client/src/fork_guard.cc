#include "client/src/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/connection.h"

namespace cco {
namespace {

// Lives as long as the process: calls may still come from destructors at exit.
struct GuardState {
  std::atomic<bool> forked{false};
  std::mutex mutex;  // Held across fork(), so that the child finds `connections` whole.
  std::vector<Connection*> connections;
};

GuardState& state() {
  static GuardState& state = *new GuardState;
  return state;
}

void before_fork() { state().mutex.lock(); }
void after_fork_in_parent() { state().mutex.unlock(); }
void after_fork_in_child() {
  state().forked.store(true, std::memory_order_relaxed);
  for (Connection* connection : state().connections) connection->abandon();
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

ForkRegistration::ForkRegistration(Connection* connection) : connection_(connection) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().connections.push_back(connection);
}

ForkRegistration::~ForkRegistration() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto& connections = state().connections;
  connections.erase(std::remove(connections.begin(), connections.end(), connection_),
                    connections.end());
}

}  // namespace cco
