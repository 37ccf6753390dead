// The fd channel against clients that send anything.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "client/base/fd_frame.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

// A frame's header, of which every field may be wrong.
struct Header {
  uint32_t magic = kFdFrameMagic;
  uint16_t type = static_cast<uint16_t>(FdFrameType::kHello);
  uint16_t reserved = 0;
  uint32_t code = 0;
  uint32_t payload_bytes = 0;
};

std::string frame(const Header& header, const std::string& payload = "") {
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
}

class Channel {
 public:
  explicit Channel(const std::string& socket_path) {
    auto connected = connect_unix(fd_socket_path(socket_path), SOCK_SEQPACKET);
    EXPECT_TRUE(connected.ok()) << connected.status();
    if (connected.ok()) socket_ = *std::move(connected);
  }

  void send(const std::string& bytes, const std::vector<int>& fds = {}) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))] = {};
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  }
  /// False: the daemon takes no more at the moment.
  bool try_send(const std::string& bytes) {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  }
  absl::StatusOr<FdFrame> receive() {
    const absl::Status ready = wait_readable(socket_, patience());
    if (!ready.ok()) return ready;
    return receive_frame(socket_);
  }
  void hello() {
    send(frame({}));
    const absl::StatusOr<FdFrame> welcome = receive();
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    ASSERT_EQ(welcome->type, FdFrameType::kWelcome);
  }
  /// The daemon answers with an error that holds `word`, and then hangs up.
  ::testing::AssertionResult refused_and_closed(const std::string& word) {
    const absl::StatusOr<FdFrame> answer = receive();
    if (!answer.ok() || answer->code == absl::StatusCode::kOk ||
        answer->payload.find(word) == std::string::npos) {
      return ::testing::AssertionFailure()
             << "no error with \"" << word << "\" but "
             << (answer.ok() ? answer->payload : answer.status().ToString());
    }
    return closed();
  }
  ::testing::AssertionResult closed() {
    const absl::StatusOr<FdFrame> end = receive();
    if (absl::IsUnavailable(end.status())) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "still open: " << end.status();
  }

 private:
  UniqueFd socket_;
};

class FdChannelTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
  void TearDown() override {
    attach();  // Whatever was sent, others are served.
    NodeTest::TearDown();
  }
};

// Goal    what is no frame ends the connection, with a reason, and nothing else.
// Method  too short, too long, wrong magic, a length that lies; before and after the hello.
TEST_F(FdChannelTest, NotAFrame) {
  const Header wrong_magic{.magic = 0x12345678};
  const Header too_much{.payload_bytes = 5};
  const Header far_too_much{.payload_bytes = UINT32_MAX};
  for (const bool attached : {false, true}) {
    for (const auto& [bytes, word] : std::vector<std::pair<std::string, std::string>>{
             {"x", "has 1 bytes"},
             {frame({}).substr(0, 15), "has 15 bytes"},
             {frame({.payload_bytes = 1025}, std::string(1025, 'x')), "has 1041 bytes"},
             {frame({.payload_bytes = 60000}, std::string(60000, 'x')), "it takes 16 to 1040"},
             {frame(wrong_magic), "wrong magic"},
             {frame(too_much, "1234"), "length"},
             {frame(far_too_much), "length"}}) {
      Channel channel(daemon->socket_path());
      if (attached) channel.hello();
      channel.send(bytes);
      EXPECT_TRUE(channel.refused_and_closed(word)) << bytes.size() << " bytes";
    }
  }
}

// Goal    frames of unknown types, or out of order, are refused in words.
// Method  a type of the daemon's own, an unknown one, a redeem before the hello, two hellos.
TEST_F(FdChannelTest, OutOfOrder) {
  Channel channel(daemon->socket_path());
  const auto ask = [&](uint16_t type) {
    channel.send(frame({.type = type, .payload_bytes = 16}, std::string(16, 'x')));
    const absl::StatusOr<FdFrame> answer = channel.receive();
    return answer.ok() ? absl::StrCat(static_cast<int>(answer->code), " ", answer->payload)
                       : answer.status().ToString();
  };
  EXPECT_NE(ask(2).find("9 the first frame must be kHello"), std::string::npos);
  channel.hello();
  EXPECT_NE(ask(1).find("9 this connection has a session already"), std::string::npos);
  EXPECT_NE(ask(129).find("3 frames of type 129"), std::string::npos);
  EXPECT_NE(ask(65535).find("3 frames of type 65535"), std::string::npos);
  EXPECT_NE(ask(3).find("3 an offer comes with one file descriptor"), std::string::npos);
  EXPECT_NE(ask(2).find("5 no such ticket"), std::string::npos);
}

// Goal    a session that ends in order has ended when the daemon says so, and its connection with
//         it.
TEST_F(FdChannelTest, EndInOrder) {
  Channel channel(daemon->socket_path());
  channel.hello();
  EXPECT_EQ(watch->now().sessions, before.sessions + 1);
  channel.send(frame({.type = static_cast<uint16_t>(FdFrameType::kEnd)}));
  const absl::StatusOr<FdFrame> ended = channel.receive();
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->type, FdFrameType::kEnded);
  EXPECT_EQ(ended->code, absl::StatusCode::kOk) << ended->payload;
  EXPECT_EQ(watch->now().sessions, before.sessions);
  EXPECT_TRUE(channel.closed());
}

// Goal    descriptors that nobody asked for are closed.
// Method  2, 8 and 64 of them in one frame, which is refused; one with a hello, which is not.
TEST_F(FdChannelTest, SeveralDescriptors) {
  const UniqueFd memory(::memfd_create("own", MFD_CLOEXEC));
  for (const size_t count : {2u, 8u, 64u}) {
    Channel channel(daemon->socket_path());
    channel.hello();
    channel.send(frame({.type = static_cast<uint16_t>(FdFrameType::kOffer)}),
                 std::vector<int>(count, memory.get()));
    EXPECT_TRUE(channel.refused_and_closed("file descriptors; at most one"));
    EXPECT_TRUE(nothing_left());
  }
  Channel channel(daemon->socket_path());
  channel.send(frame({}), {memory.get()});
  EXPECT_TRUE(channel.receive().ok());
  channel.send(frame({.type = 2}), {memory.get()});
  EXPECT_TRUE(channel.receive().ok());
  EXPECT_TRUE(watch->becomes([&](const NodeLedger& ledger) {
    return ledger.open_fds == before.open_fds + 2;  // This connection, and its pidfd.
  }));
}

// Goal    random bytes do no harm.
// Method  some hundred datagrams of a seeded generator, some with a good header.
TEST_F(FdChannelTest, Garbage) {
  std::mt19937 random(20240229);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 1100 + 1, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (round % 3 == 0 && bytes.size() >= sizeof(Header)) {
      const Header header{.type = static_cast<uint16_t>(random() % 5),
                          .payload_bytes = static_cast<uint32_t>(bytes.size() - sizeof(Header))};
      std::memcpy(bytes.data(), &header, sizeof header);
    }
    Channel channel(daemon->socket_path());
    if (round % 2 == 0) channel.hello();
    channel.send(bytes);
    channel.receive().IgnoreError();
  }
}

// Goal    a client that goes before its answer comes does no harm: no signal ends the daemon.
// Method  a thousand clients that ask and close.
TEST_F(FdChannelTest, GoneBeforeTheAnswer) {
  for (int round = 0; round < 1000; ++round) {
    Channel channel(daemon->socket_path());
    channel.send(frame({}));
    channel.send(frame({.type = 2, .payload_bytes = 16}, std::string(16, 'x')));
  }
}

// Goal    a client that never reads its answers blocks nobody.
// Method  it asks until its socket is full, twice over; others attach meanwhile.
TEST_F(FdChannelTest, NeverReads) {
  Channel channel(daemon->socket_path());
  channel.hello();
  const std::string ask = frame({.type = 2, .payload_bytes = 16}, std::string(16, 'x'));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 5000 && channel.try_send(ask); ++i) {
    }
    attach();
  }
}

// Goal    a process may make and end clients as often as it likes, and holds nothing of the daemon
//         afterwards, though it lives on.
// Method  more sessions than the daemon allows connections, one after the other.
TEST_F(FdChannelTest, ManySessionsOneAfterTheOther) {
  for (int round = 0; round < 2100 && !HasFailure(); ++round) {
    Channel channel(daemon->socket_path());
    channel.hello();
  }
  EXPECT_TRUE(nothing_left());
}

// Goal    who says nothing is not kept for ever.
// Method  a connection without a hello ends by itself within seconds.
TEST_F(FdChannelTest, SilentConnection) {
  Channel channel(daemon->socket_path());
  const Stopwatch time;
  EXPECT_TRUE(channel.closed());
  EXPECT_GE(time.elapsed(), std::chrono::milliseconds(4000));
  EXPECT_LE(time.elapsed(), patient(std::chrono::milliseconds(8000)));
}

// Goal    what the other side said before it hung up is heard, though it left something unread.
// Method  the reader sends two frames, the other side answers one and closes.
TEST(FdFrame, LastWordsAreHeard) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  ASSERT_TRUE(send_frame(ours, FdFrameType::kHello, absl::StatusCode::kOk, "").ok());
  ASSERT_TRUE(
      send_frame(theirs, FdFrameType::kWelcome, absl::StatusCode::kUnavailable, "bye").ok());
  theirs.reset();
  const absl::StatusOr<FdFrame> received = receive_frame(ours);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->payload, "bye");
  EXPECT_TRUE(absl::IsUnavailable(receive_frame(ours).status()));
}

// Goal    the receiver finds a descriptor wherever it stands among the control messages.
// Method  a pair of sockets with credentials switched on; both orders of the two messages.
TEST(FdFrame, CredentialsBeforeAndAfterTheDescriptor) {
  for (const bool rights_first : {false, true}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd ours(ends[0]), theirs(ends[1]);
    const int on = 1;
    ASSERT_EQ(::setsockopt(theirs.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    const std::string bytes = frame({});
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ucred who{::getpid(), ::getuid(), ::getgid()};
    const int fd = ours.get();
    cmsghdr* at = CMSG_FIRSTHDR(&message);
    for (const bool rights : {rights_first, !rights_first}) {
      at->cmsg_level = SOL_SOCKET;
      at->cmsg_type = rights ? SCM_RIGHTS : SCM_CREDENTIALS;
      at->cmsg_len = rights ? CMSG_LEN(sizeof fd) : CMSG_LEN(sizeof who);
      std::memcpy(CMSG_DATA(at), rights ? static_cast<const void*>(&fd) : &who,
                  rights ? sizeof fd : sizeof who);
      at = CMSG_NXTHDR(&message, at);
    }
    ASSERT_GT(::sendmsg(ours.get(), &message, 0), 0);
    const absl::StatusOr<FdFrame> received = receive_frame(theirs);
    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_TRUE(received->fd);
  }
}

}  // namespace
}  // namespace cco::test
