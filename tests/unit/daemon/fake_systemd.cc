#include "tests/unit/daemon/fake_systemd.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/base/status_macros.h"

namespace cco::test {
namespace {

struct Notification {
  std::map<std::string, std::string> fields;
  std::vector<UniqueFd> fds;
};

std::vector<UniqueFd> take_fds(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

bool receive(const UniqueFd& socket, Notification* notification) {
  char text[4096];
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  iovec part{text, sizeof text};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return false;
  EXPECT_EQ(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0) << "systemd drops what is cut off";
  notification->fds = take_fds(message);
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(std::string(text, size), '\n'))) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits('=', 1));
    EXPECT_TRUE(notification->fields.insert(field).second) << "twice: " << line;
  }
  return true;
}

bool is_same_open_file(const UniqueFd& a, const UniqueFd& b) {
  constexpr int kKcmpFile = 0;  // <linux/kcmp.h>
  const long order = ::syscall(SYS_kcmp, ::getpid(), ::getpid(), kKcmpFile, a.get(), b.get());
  CCO_ASSERT(order >= 0);  // What systemd does without it differs.
  return order == 0;
}

}  // namespace

FakeSystemd::FakeSystemd(const std::string& path, size_t limit)
    : limit_(limit),
      socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      wake_(::eventfd(0, EFD_CLOEXEC)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  CCO_ASSERT(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  resume();
}

FakeSystemd::~FakeSystemd() { stop(); }

void FakeSystemd::stop() {
  if (!thread_.joinable()) return;
  CCO_ASSERT(::eventfd_write(wake_.get(), 1) == 0);
  thread_.join();
}

void FakeSystemd::resume() {
  thread_ = std::thread([this] { serve(); });
}

const std::map<std::string, UniqueFd>& FakeSystemd::stored() {
  stop();
  while (take_one()) {
  }
  return stored_;
}

void FakeSystemd::serve() {
  for (;;) {
    pollfd ready[2] = {{wake_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    CCO_ASSERT(::poll(ready, 2, -1) > 0 || errno == EINTR);
    eventfd_t value = 0;
    if (ready[0].revents != 0 && ::eventfd_read(wake_.get(), &value) == 0) return;
    if (ready[1].revents != 0) take_one();
  }
}

bool FakeSystemd::take_one() {
  Notification notification;
  if (!receive(socket_, &notification)) return false;
  auto& fields = notification.fields;
  const std::string name = fields["FDNAME"];
  if (fields["FDSTORE"] == "1") {
    EXPECT_EQ(notification.fds.size(), 1u);
    EXPECT_EQ(fields["FDPOLL"], "0") << "without it systemd lets go of a descriptor that hangs up";
    EXPECT_FALSE(name.empty());
    const bool is_there = std::any_of(stored_.begin(), stored_.end(), [&](const auto& entry) {
      return is_same_open_file(entry.second, notification.fds.at(0));
    });
    if (!is_there && stored_.size() < limit_) {
      stored_.emplace(name, std::move(notification.fds.at(0)));
    }
  } else {
    EXPECT_EQ(fields["FDSTOREREMOVE"], "1");
    stored_.erase(name);
  }
  return true;
}

}  // namespace cco::test
