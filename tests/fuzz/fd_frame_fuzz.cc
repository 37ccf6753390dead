// Goal    no datagram on the fd channel makes the receiver crash, keep a descriptor, or take a
//         frame that it should not.
// Method  the input's first byte says how many descriptors travel along; the rest is the datagram.
//         A frame that is accepted must be one that its sender would build from its parts.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr size_t kMaxFds = 16, kMaxDatagram = 4096;

struct Pair {
  Pair() {
    int ends[2];
    CCO_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    sender.reset(ends[0]);
    receiver.reset(ends[1]);
  }
  cco::UniqueFd sender, receiver;
};

void send(const Pair& pair, const std::string& datagram, size_t fd_count) {
  iovec part{const_cast<char*>(datagram.data()), datagram.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  if (fd_count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    for (size_t i = 0; i < fd_count; ++i) {
      const int fd = pair.sender.get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  CCO_ASSERT(::sendmsg(pair.sender.get(), &message, MSG_NOSIGNAL) >= 0);
}

int lowest_free_fd() {
  const cco::UniqueFd probe(::dup(0));
  return probe.get();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  const Pair pair;
  const size_t fd_count = bytes[0] % (kMaxFds + 1);
  const std::string datagram(reinterpret_cast<const char*>(bytes) + 1,
                             std::min(size - 1, kMaxDatagram));
  send(pair, datagram, fd_count);
  const int before = lowest_free_fd();
  {
    const absl::StatusOr<cco::FdFrame> frame = cco::receive_frame(pair.receiver);
    if (frame.ok()) {
      CCO_ASSERT(fd_count <= 1 && static_cast<bool>(frame->fd) == (fd_count == 1));
      CCO_ASSERT(datagram.size() >= 16 && datagram.substr(16) == frame->payload);
      CCO_ASSERT(frame->payload.size() <= cco::kMaxPayloadBytes);
    } else {
      CCO_ASSERT(!frame.status().message().empty());
    }
  }
  CCO_ASSERT(lowest_free_fd() == before);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string magic("CCO1", 4), hello("\x01\x00\x00\x00\x00\x00\x00\x00", 8);
  const auto length = [](uint32_t size) {
    return std::string(reinterpret_cast<const char*>(&size), sizeof size);
  };
  const std::string none(1, '\0'), one(1, '\1'), two(1, '\2');
  return {none + magic + hello + length(0), one + magic + hello + length(16) + std::string(16, 't'),
          two + magic + hello + length(0),
          none + magic + hello + length(1024) + std::string(1024, 'x'), none};
}
