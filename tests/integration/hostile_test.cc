// Attacks that take something of which there is only so much. Meanwhile and afterwards the daemon
// is up, stays small, serves a client that behaves, and in the end holds what it held before.
// Attacks by a single call or frame are in rpc_test, fd_channel_test, tickets_test and
// external_test; see the README.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using absl::StatusCode;

class HostileTest : public NodeTest {
 protected:
  void SetUp() override {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);  // The daemon inherits it.
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    start_attacked("");
  }
  void start_attacked(const std::string& limits) {
    start_with("host { device_count: 4 bytes_per_device: 4294967296 }\n" + limits);
    bystander_ = attach(static_cast<uint32_t>(patience().count()));
    ASSERT_TRUE(
        succeeded(Group::create(bystander_, {.rank = 0, .size = 1, .name = "bystander"}, &group_)));
  }
  void TearDown() override {
    expect_served();
    group_ = Group();
    bystander_ = Client();
    NodeTest::TearDown();
  }

  void restart_with(const std::string& limits) {
    TearDown();
    start_attacked(limits);
  }

  /// Calls of each kind end well, within the client's time-outs.
  void expect_served() {
    for (int round = 0; round < 20; ++round) {
      Window window;
      EXPECT_TRUE(succeeded(Window::create(group_, "w", {.size_bytes = 4096}, &window)));
      EXPECT_TRUE(succeeded(group_.barrier()));
    }
  }
  void expect_small() const {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(resident_bytes(daemon->pid()), uint64_t{200} << 20);
#endif
  }
  UniqueFd connect_to(const std::string& path, int type) {
    auto socket = connect_unix(path, type);
    EXPECT_TRUE(socket.ok()) << socket.status();
    return socket.ok() ? *std::move(socket) : UniqueFd();
  }
  UniqueFd connect_rpc() { return connect_to(daemon->socket_path(), SOCK_STREAM); }
  /// Opens a session that lasts as long as `channel`.
  std::string token(UniqueFd* channel) {
    *channel = connect_to(fd_socket_path(daemon->socket_path()), SOCK_SEQPACKET);
    EXPECT_TRUE(send_frame(*channel, FdFrameType::kHello, StatusCode::kOk, "").ok());
    EXPECT_TRUE(wait_readable(*channel, patience()).ok());
    const absl::StatusOr<FdFrame> welcome = receive_frame(*channel);
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    return welcome.ok() ? welcome->payload.substr(0, kSecretBytes) : "";
  }

 private:
  Client bystander_;
  Group group_;
};

// Goal    connections that never say anything, by the thousand, keep nobody out.
// Method  500 on each channel, those on the RPC socket with the beginning of an HTTP/2 preface.
TEST_F(HostileTest, HalfOpenConnections) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 500; ++i) {
    silent.push_back(connect_to(fd_socket_path(daemon->socket_path()), SOCK_SEQPACKET));
    silent.push_back(connect_rpc());
    ::send(silent.back().get(), "PRI * HTT", 9, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  expect_served();
  expect_small();
}

// Goal    a tenant whose sessions are limited cannot take all connections, either.
// Method  four sessions for each tenant, and silent connections until one is refused; then one
//         less.
TEST_F(HostileTest, ConnectionsOfOneTenant) {
  restart_with("limits { sessions_per_tenant: 4 }");
  std::vector<UniqueFd> silent;
  bool refused = false;
  while (!refused && silent.size() < 100) {
    silent.push_back(connect_to(fd_socket_path(daemon->socket_path()), SOCK_SEQPACKET));
    watch->now();  // By now the daemon has taken it, or answered.
    if (!wait_readable(silent.back(), std::chrono::milliseconds(0)).ok()) continue;
    const absl::StatusOr<FdFrame> answer = receive_frame(silent.back());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->code, StatusCode::kResourceExhausted);
    EXPECT_NE(answer->payload.find("limits.sessions_per_tenant"), std::string::npos);
    refused = true;
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(silent.size(), 2 * 4 - 2 + 1u);  // Two are the watch's and the bystander's.
}

// Goal    the same on the RPC socket, where the daemon can only hang up; and those that have gone
//         count no longer.
// Method  silent connections until the daemon closes one; then they go, and all comes again.
TEST_F(HostileTest, RpcConnectionsOfOneTenant) {
  restart_with("limits { sessions_per_tenant: 4 }");
  const NodeLedger quiet = watch->now();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(watch->settles_at(quiet));
    std::vector<UniqueFd> silent;
    bool refused = false;
    while (!refused && silent.size() < 100) {
      silent.push_back(connect_rpc());
      watch->now();
      char end;  // gRPC greets who is let in.
      ASSERT_TRUE(wait_readable(silent.back(), patience()).ok());
      refused = ::recv(silent.back().get(), &end, 1, 0) == 0;
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(silent.size(), 2 * 4 - 2 + 1u);
  }
}

// Goal    large requests are not kept, be they carried out or refused, nor sent back in errors.
// Method  four sessions, each with as many calls as answers are kept of, of a MiB each; fewer where
//         each takes seconds.
TEST_F(HostileTest, LargeRequests) {
  restart_with("limits { requests_per_session: 64 calls_per_session: 64 }");
#if defined(__SANITIZE_THREAD__)
  constexpr int kCalls = 1;
#else
  constexpr int kCalls = 32;
#endif
  const std::string large(1000 * 1000, 'x');
  std::vector<std::unique_ptr<RawSession>> sessions;
  for (int i = 0; i < 4; ++i) {
    RawSession& session =
        *sessions.emplace_back(std::make_unique<RawSession>(daemon->socket_path()));
    const uint64_t group = session.join("large" + std::to_string(i)).group_id();
    for (int call = 0; call < kCalls; ++call) {
      v1::ReportTransportsRequest report;
      report.set_request_id(new_request_id());
      report.set_group_id(group);
      report.add_reports()->set_transport("lsa");
      report.mutable_reports(0)->set_detail(large);
      v1::ReportTransportsResponse reported;
      EXPECT_TRUE(session.call(&Stub::ReportTransports, report, &reported).ok());
      v1::JoinGroupRequest join = RawSession::join_request("another");
      join.set_gpu_uuid(large);
      v1::JoinGroupResponse joined;
      const absl::Status status = session.call(&Stub::JoinGroup, join, &joined);
      EXPECT_TRUE(refused(status, StatusCode::kNotFound, {"no GPU 'xxx"}));
      EXPECT_LT(status.message().size(), 4096u);
    }
    session.leave(group);
    expect_served();
  }
  expect_small();
}

// HTTP/2, as much of it as an attack needs.
std::string h2_frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  const auto size = static_cast<uint32_t>(payload.size());
  std::string frame;
  for (const uint32_t byte : {size >> 16, size >> 8, size, uint32_t{type}, uint32_t{flags},
                              stream >> 24, stream >> 16, stream >> 8, stream}) {
    frame.push_back(static_cast<char>(byte));
  }
  return frame + payload;
}
std::string h2_header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}
std::string h2_call(uint32_t stream, const std::string& method, const std::string& token,
                    const std::string& request = "") {
  const std::string headers =
      h2_header(":method", "POST") + h2_header(":scheme", "http") +
      h2_header(":path", "/cco.memd.v1.MemdService/" + method) +
      h2_header(":authority", "cco-memd") + h2_header("content-type", "application/grpc") +
      h2_header("te", "trailers") + h2_header("cco-session-bin", absl::Base64Escape(token));
  constexpr uint8_t kData = 0, kHeaders = 1, kEndStream = 1, kEndHeaders = 4;
  return h2_frame(kHeaders, kEndHeaders, stream, headers) +
         h2_frame(kData, kEndStream, stream,
                  std::string(4, '\0') + static_cast<char>(request.size()) + request);
}

// Makes calls on one connection, none of whose answers is read, until the daemon hangs up: HTTP/2
// by hand, without any acknowledgement.
void expect_hung_up(const UniqueFd& socket, const std::string& token, const std::string& method,
                    const std::string& request = "") {
  const std::string hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, "");
  ASSERT_EQ(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  constexpr uint32_t kMost = 200000;
  uint32_t sent = 0;
  for (; sent < kMost; ++sent) {
    const std::string call = h2_call(2 * sent + 1, method, token, request);
    if (::send(socket.get(), call.data(), call.size(), MSG_NOSIGNAL) < 0) break;
  }
  EXPECT_GT(sent, 1000u);
  EXPECT_LT(sent, kMost);  // It was hung up on.
}

// Goal    a client that calls and never reads makes the daemon keep a bounded number of answers.
// Method  see expect_hung_up().
TEST_F(HostileTest, AnswersThatNobodyReads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "so many calls take minutes here";
#endif
  UniqueFd channel;
  const std::string secret = token(&channel);
  expect_hung_up(connect_rpc(), secret, "GetNode");
  expect_served();
  expect_small();
}

// All ranks of a group as large as there may be, in one session. Its id.
uint64_t join_alone(RawSession& session, uint32_t size) {
  std::vector<v1::JoinGroupResponse> answers(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&session, size, rank, answer = &answers[rank]] {
      v1::JoinGroupRequest request = RawSession::join_request("crowd", rank, size);
      request.set_timeout_ms(static_cast<uint32_t>(patience().count()));
      request.set_gpu_uuid("HOST-" + std::to_string(rank % 4));
      const absl::Status status = session.call(&Stub::JoinGroup, request, answer);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers[0].group_id();
}

// As much as one rank can say, each time in other words.
void report_all(RawSession& session, uint64_t group, uint32_t rank, uint32_t size) {
  const auto words = [&](uint32_t peer, const char* what, size_t bytes) {
    std::string text = std::to_string(rank) + " " + std::to_string(peer) + " " + what + " ";
    return text.append(bytes - text.size(), 'x');
  };
  v1::ReportPeersRequest peers;
  v1::ReportTransportsRequest transports;
  peers.set_request_id(new_request_id());
  transports.set_request_id(new_request_id());
  peers.set_group_id(group);
  transports.set_group_id(group);
  peers.set_rank(rank);
  transports.set_rank(rank);
  for (uint32_t peer = 0; peer < size; ++peer) {
    v1::PeerReport* on_peer = peers.add_peers();
    on_peer->set_rank(peer);
    on_peer->set_detail(words(peer, "lsa", 255));
    for (const char* const transport : {"lsa", "sdma", "tdm", "gda"}) {
      v1::TransportReport* report = transports.add_reports();
      report->set_peer(peer);
      report->set_transport(transport);
      report->set_provider(words(peer, "p", 31));
      report->set_detail(words(peer, transport, 511));
    }
  }
  v1::ReportPeersResponse peers_reported;
  v1::ReportTransportsResponse transports_reported;
  absl::Status status = session.call(&Stub::ReportPeers, peers, &peers_reported);
  EXPECT_TRUE(status.ok()) << status;
  status = session.call(&Stub::ReportTransports, transports, &transports_reported);
  EXPECT_TRUE(status.ok()) << status;
}

// Goal    whatever ranks report of their peers, the daemon keeps little of it, shows it in parts,
//         and does not keep many parts for who does not read them.
// Method  one process is all 256 ranks of a group and reports as much as it can; then it asks to be
//         shown it, on a connection from which nothing is read.
TEST_F(HostileTest, ReportsWithoutEnd) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "so much takes minutes here";
#endif
  constexpr uint32_t kRanks = 256, kPage = 1000;
  RawSession session(daemon->socket_path());
  const uint64_t group = join_alone(session, kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) report_all(session, group, rank, kRanks);
  expect_served();
  expect_small();
  v1::ExplainGroupRequest explain;
  explain.set_group_id(group);
  explain.set_page_size(kPage);
  v1::ExplainGroupResponse explained;
  const absl::Status status = session.call(&Stub::ExplainGroup, explain, &explained);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(explained.pairs_size(), static_cast<int>(kPage));
  EXPECT_EQ(explained.next_page_token(), std::to_string(kPage));
  EXPECT_LT(explained.ByteSizeLong(), size_t{3} << 20);
  UniqueFd channel;
  const std::string secret = token(&channel);
  expect_hung_up(connect_rpc(), secret, "ExplainGroup", explain.SerializeAsString());
  expect_served();
  expect_small();
  for (uint32_t rank = 0; rank < kRanks; ++rank) session.leave(group, rank);
}

// In a process with the number of one that has ended: sends `bytes` to the RPC socket, and looks
// for `expected` in what comes back. Its exit code: 0 if it is there. System calls alone, as other
// threads may have held locks. Errno if there can be no such process.
struct Impostor {
  pid_t pid;
  std::string path, bytes, expected;
  BorrowedFd connected;  // A byte, once it is.

  int start() const {
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    arguments.set_tid = reinterpret_cast<uint64_t>(&pid);
    arguments.set_tid_size = 1;
    const long child = ::syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) ::_exit(run());
    return child < 0 ? errno : 0;
  }

 private:
  int run() const {
    ::alarm(60);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 ||
        ::write(connected.get(), "x", 1) != 1) {
      return 2;
    }
    static char answer[65536];
    for (size_t size = 0; size < sizeof answer;) {
      const ssize_t more = ::recv(socket, answer + size, sizeof answer - size, 0);
      if (more <= 0) return 3;
      size += static_cast<size_t>(more);
      if (::memmem(answer, size, expected.data(), expected.size()) != nullptr) return 0;
    }
    return 4;
  }
};

// Goal    a token is of no use to a process that gets the number of the one it was issued to.
// Method  the daemon is stopped; a process with a session ends; another one of the same number and
//         user calls with its token; the daemon goes on, and has both before it.
TEST_F(HostileTest, AnotherProcessOfTheSameNumber) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer follows no process that clone3() makes";
#endif
  Ranks owner(
      1,
      [](Rank& rank) {
        auto channel = connect_unix(fd_socket_path(rank.socket_path), SOCK_SEQPACKET);
        ASSERT_TRUE(channel.ok());
        ASSERT_TRUE(send_frame(*channel, FdFrameType::kHello, StatusCode::kOk, "").ok());
        ASSERT_TRUE(wait_readable(*channel, patience()).ok());
        const absl::StatusOr<FdFrame> welcome = receive_frame(*channel);
        ASSERT_TRUE(welcome.ok());
        rank.say(absl::BytesToHexString(welcome->payload.substr(0, kSecretBytes)));
        rank.hear();
      },
      ranks());
  const std::string secret = absl::HexStringToBytes(owner.hear(0));
  ASSERT_EQ(secret.size(), kSecretBytes);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd line(ends[0]);
  UniqueFd far_end(ends[1]);
  const Impostor impostor{
      owner.pid(0), daemon->socket_path(),
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, "") + h2_call(1, "GetNode", secret),
      "no session of this process has that token", far_end};
  daemon->signal(SIGSTOP);
  owner.signal(0, SIGKILL);
  owner.wait(0);
  const int failed = impostor.start();
  far_end.reset();
  char byte = 0;
  const bool is_connected = failed == 0 && ::read(line.get(), &byte, 1) == 1;
  daemon->signal(SIGCONT);
  if (failed == EPERM || failed == EEXIST || failed == ENOSYS) {
    GTEST_SKIP() << "no process with a chosen number: " << std::strerror(failed)
                 << " (it takes CAP_CHECKPOINT_RESTORE)";
  }
  ASSERT_EQ(failed, 0) << std::strerror(failed);
  EXPECT_TRUE(is_connected);
  int status = 0;
  ASSERT_EQ(::waitpid(impostor.pid, &status, 0), impostor.pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << describe_status(status);
}

// Goal    a process that takes a thousand groups is carried, and gives all of them back by ending.
// Method  groups of one rank, until there are a thousand or no more are given.
TEST_F(HostileTest, AThousandGroups) {
  Ranks greedy(
      1,
      [](Rank& rank) {
        RawSession session(rank.socket_path);
        absl::Status status;
        for (int i = 0; i < 1000 && status.ok(); ++i) {
          v1::JoinGroupResponse joined;
          status = session.call(&Stub::JoinGroup, RawSession::join_request("g" + std::to_string(i)),
                                &joined);
        }
        EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
        rank.say("full");
        rank.hear();
      },
      ranks());
  EXPECT_EQ(greedy.hear(0), "full");
  EXPECT_GT(watch->now().groups, 200u);
  expect_served();
  expect_small();
  greedy.tell(0, "end");
  greedy.expect_success();
}

// Goal    only a call that carries one token, whole, is a session's.
// Method  parts of one, more than one, large ones; then as it should be.
TEST_F(HostileTest, ForgedTokens) {
  UniqueFd channel;
  const std::string right = token(&channel);
  const auto call_with = [&](const std::vector<std::string>& tokens) {
    const auto stub = v1::MemdService::NewStub(
        grpc::CreateInsecureChannelFromFd("cco-memd", connect_rpc().release()));
    grpc::ClientContext context;
    for (const std::string& one : tokens) context.AddMetadata("cco-session-bin", one);
    context.set_deadline(std::chrono::system_clock::now() + patience());
    v1::GetNodeResponse response;
    return stub->GetNode(&context, v1::GetNodeRequest(), &response).error_code();
  };
  std::string wrong = right;
  wrong.back() ^= 1;
  const std::vector<std::vector<std::string>> forged{{},
                                                     {""},
                                                     {right.substr(0, kSecretBytes - 1)},
                                                     {right + "x"},
                                                     {wrong},
                                                     {right, right},
                                                     {right, wrong},
                                                     {wrong, right},
                                                     {std::string(4000, 'x')}};
  for (const std::vector<std::string>& tokens : forged) {
    EXPECT_EQ(call_with(tokens), grpc::UNAUTHENTICATED) << tokens.size();
  }
  EXPECT_EQ(call_with({right}), grpc::OK);
}

}  // namespace
}  // namespace cco::test
