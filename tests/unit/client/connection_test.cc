#include "client/src/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>

#include "cco/memd/v1/error.pb.h"
#include "tests/unit/client/expect_text.h"
#include "tests/unit/client/fake_daemon.h"

namespace cco {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatient{5000};
constexpr milliseconds kShort{100};

absl::Status get_node(Connection& connection, milliseconds timeout = kPatient) {
  v1::GetNodeResponse response;
  return connection.call(&v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &response, timeout);
}

// Goal    a session opens, and its token goes with every call.
// Method  the fake daemon refuses calls without it.
TEST(Connection, OpensASession) {
  FakeDaemon daemon;
  const auto connection = Connection::open(daemon.socket_path(), kPatient);
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ((*connection)->incarnation(), 77u);
  EXPECT_TRUE(get_node(**connection).ok());
}

// Goal    a daemon that is not there, and a path that cannot be one, are told apart and say what
//         to do.
TEST(Connection, NoDaemon) {
  expect_text(Connection::open("/tmp/cco-no-such-directory/memd.sock", kPatient).status(),
              absl::StatusCode::kUnavailable,
              {"/tmp/cco-no-such-directory/memd-fd.sock", "Is cco-memd running"});
  expect_text(Connection::open("/tmp/" + std::string(103, 'x'), kPatient).status(),
              absl::StatusCode::kInvalidArgument, {"108 bytes", "limit 107"});
  ::setenv("CCO_SOCKET", "", 1);
  expect_text(Connection::default_socket_path().status(), absl::StatusCode::kInvalidArgument,
              {"CCO_SOCKET"});
  ::setenv("CCO_SOCKET", "/x/y.sock", 1);
  EXPECT_EQ(Connection::default_socket_path().value(), "/x/y.sock");
  ::unsetenv("CCO_SOCKET");
  EXPECT_EQ(Connection::default_socket_path().value(), "/run/cco/memd.sock");
}

// Goal    a daemon that has been stopped ends every kind of call in time, and the text names
//         socket, time and guess.
// Method  a daemon that answers no hello; one that blocks a call; one that redeems nothing.
TEST(Connection, SilentDaemonEndsInDeadlineExceeded) {
  const auto start = std::chrono::steady_clock::now();
  FakeDaemon daemon;
  daemon.answer_frames = [](FdFrame&) { return std::vector<FdFrame>(); };
  expect_text(Connection::open(daemon.socket_path(), kShort).status(),
              absl::StatusCode::kDeadlineExceeded,
              {daemon.socket_path(), "100 ms", "Is cco-memd stopped"});

  FakeDaemon stuck;
  stuck.before_call = [&](const std::string&) {
    stuck.block_until_end();
    return grpc::Status::OK;
  };
  const auto connection = Connection::open(stuck.socket_path(), kPatient);
  ASSERT_TRUE(connection.ok()) << connection.status();
  expect_text(get_node(**connection, kShort), absl::StatusCode::kDeadlineExceeded,
              {stuck.socket_path(), "1100 ms", "Is cco-memd stopped"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatient);
}

// Goal    after a late answer the fd channel is still in step.
// Method  answer one request nothing and the next one twice: first the late answer, then its own.
TEST(Connection, LateAnswersAreSkipped) {
  FakeDaemon daemon;
  daemon.answer_frames = [&](FdFrame& request) {
    std::vector<FdFrame> answers;
    const auto grant = [](std::string text) {
      return FdFrame{FdFrameType::kGrant, absl::StatusCode::kNotFound, std::move(text), UniqueFd()};
    };
    if (request.type == FdFrameType::kHello) {
      answers.push_back(daemon.sound_answer(request));
    } else if (request.payload == "second") {
      answers.push_back(grant("first"));
      answers.push_back(grant("second"));
    }
    return answers;
  };
  const auto connection = Connection::open(daemon.socket_path(), milliseconds(300));
  ASSERT_TRUE(connection.ok()) << connection.status();
  expect_text((*connection)->redeem("first").status(), absl::StatusCode::kDeadlineExceeded,
              {"300 ms"});
  expect_text((*connection)->redeem("second").status(), absl::StatusCode::kNotFound, {"second"});
}

// Goal    a daemon that dies, before a call or in the middle of one, ends the call with
//         UNAVAILABLE at once.
TEST(Connection, DeadDaemonEndsInUnavailable) {
  FakeDaemon daemon;
  const auto connection = Connection::open(daemon.socket_path(), kPatient);
  ASSERT_TRUE(connection.ok()) << connection.status();
  daemon.before_call = [&](const std::string&) {
    daemon.cut_connections();
    daemon.block_until_end();
    return grpc::Status::OK;
  };
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = get_node(**connection);
    expect_text(status, absl::StatusCode::kUnavailable,
                {daemon.socket_path(), "has gone", "Make a new client"});
    EXPECT_FALSE(answered_by_daemon(status));
  }
  expect_text((*connection)->redeem("x").status(), absl::StatusCode::kUnavailable, {});
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatient);
}

// Goal    who attaches in the moment in which a daemon stops, or dies, gets the next one; a daemon
//         that always stops is believed in the end.
TEST(Connection, AttachingWhileTheDaemonIsReplaced) {
  FakeDaemon daemon;
  int stops_left = 2;
  daemon.answer_frames = [&](FdFrame& request) {
    std::vector<FdFrame> answers;
    if (stops_left > 0) {
      --stops_left;
      answers.push_back({FdFrameType::kWelcome, absl::StatusCode::kUnavailable,
                         "cco-memd is stopping", UniqueFd()});
    } else {
      answers.push_back(daemon.sound_answer(request));
    }
    return answers;
  };
  const auto connection = Connection::open(daemon.socket_path(), kPatient);
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(stops_left, 0);
  stops_left = 1000;
  expect_text(Connection::open(daemon.socket_path(), kPatient).status(),
              absl::StatusCode::kUnavailable, {"cco-memd is stopping"});
  EXPECT_GT(stops_left, 900);
}

// Goal    answers that are no answers are refused with a text that says so, and cost no fd.
// Method  a welcome that is too short, of another type, or an error; a grant without fd; an unknown
//         code.
TEST(Connection, NonsenseOnTheFdChannel) {
  struct Case {
    FdFrame answer;
    absl::StatusCode code;
    std::string text;
  };
  const auto frame = [](FdFrameType type, absl::StatusCode code, std::string payload) {
    return FdFrame{type, code, std::move(payload), UniqueFd()};
  };
  using enum absl::StatusCode;
  Case cases[] = {
      {frame(FdFrameType::kWelcome, kOk, "short"), kInternal, "5 bytes instead of 25"},
      {frame(FdFrameType::kGrant, kOk, std::string(25, 'x')), kInternal,
       "frame type 130 instead of 129"},
      {frame(FdFrameType::kWelcome, kResourceExhausted, "limits.sessions is 1"), kResourceExhausted,
       "limits.sessions"},
      {frame(FdFrameType::kWelcome, static_cast<absl::StatusCode>(999), "odd"), kUnknown, "odd"},
  };
  for (Case& wrong : cases) {
    FakeDaemon daemon;
    daemon.answer_frames = [&](FdFrame&) {
      std::vector<FdFrame> answers;
      answers.push_back(std::move(wrong.answer));
      return answers;
    };
    expect_text(Connection::open(daemon.socket_path(), kPatient).status(), wrong.code,
                {wrong.text});
  }
  FakeDaemon daemon;
  daemon.answer_frames = [&](FdFrame& request) {
    std::vector<FdFrame> answers;
    answers.push_back(daemon.sound_answer(request));
    answers[0].code = absl::StatusCode::kOk;
    return answers;
  };
  const auto connection = Connection::open(daemon.socket_path(), kPatient);
  ASSERT_TRUE(connection.ok()) << connection.status();
  expect_text((*connection)->redeem("none").status(), kInternal, {"granted no descriptor"});
}

// Goal    bytes that are no gRPC end a call with an error rather than a wait.
// Method  a server that speaks the fd channel but writes garbage into the RPC socket.
TEST(Connection, GarbageOnTheRpcSocket) {
  FakeDaemon daemon;
  daemon.garble_rpc = true;
  const auto connection = Connection::open(daemon.socket_path(), kPatient);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(get_node(**connection, milliseconds(2000)).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(2500));
}

// Goal    the daemon's own text, code and rank come through unchanged, with and without a detail.
TEST(Connection, DaemonErrorsComeThrough) {
  v1::ErrorDetail detail;
  detail.set_rank_plus_one(4);
  FakeDaemon daemon;
  daemon.before_call = [&](const std::string&) {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "rank 3 has not come",
                        detail.SerializeAsString());
  };
  const auto connection = Connection::open(daemon.socket_path(), kPatient);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const absl::Status late = get_node(**connection);
  EXPECT_EQ(late, with_error_rank(absl::DeadlineExceededError("rank 3 has not come"), 3));
  EXPECT_EQ(error_rank(late), 3);
  EXPECT_TRUE(answered_by_daemon(late));

  daemon.before_call = [](const std::string&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no group 5");
  };
  const absl::Status plain = get_node(**connection);
  EXPECT_EQ(plain, absl::NotFoundError("no group 5"));
  EXPECT_EQ(error_rank(plain), -1);
  EXPECT_TRUE(answered_by_daemon(plain));
}

}  // namespace
}  // namespace cco
