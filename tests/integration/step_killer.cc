// sendmsg(2) of this program, in front of the C library's: gRPC and the fd channel both use it.
#include "tests/integration/step_killer.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<int64_t> messages_left{-1};
std::atomic<bool> dies_after{false};

using SendMessage = ssize_t (*)(int, const msghdr*, int);

}  // namespace

namespace cco::test {

void die_at_message(uint32_t number, bool after_it) {
  dies_after = after_it;
  messages_left = number;
}

}  // namespace cco::test

extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message,
                                                                  int flags) {
  static const auto real = reinterpret_cast<SendMessage>(::dlsym(RTLD_NEXT, "sendmsg"));
  const bool is_last = messages_left >= 0 && messages_left-- == 0;
  if (is_last && !dies_after) ::kill(::getpid(), SIGKILL);
  const ssize_t sent = real(fd, message, flags);
  if (is_last) ::kill(::getpid(), SIGKILL);
  return sent;
}
