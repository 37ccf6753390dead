#include "daemon/sys/acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

namespace cco::memd {
namespace {

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

UniqueFd accept_one(BorrowedFd listener) {
  return UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace

Acceptor::Acceptor() : spare_(open_spare()) {}

UniqueFd Acceptor::accept(BorrowedFd listener,
                          absl::FunctionRef<void(const UniqueFd& socket)> refuse) {
  UniqueFd socket = accept_one(listener);
  if (socket || (errno != EMFILE && errno != ENFILE)) return socket;
  spare_.reset();
  socket = accept_one(listener);
  refuse(socket);
  socket.reset();
  spare_ = open_spare();
  return socket;
}

}  // namespace cco::memd
