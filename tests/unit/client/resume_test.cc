// What a client does when its daemon dies or stops and another goes on in its place. The daemon in
// this process says that its state outlives it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "cco/client.hpp"
#include "cco/memd/v1/error.pb.h"
#include "client/src/connection.h"
#include "tests/unit/client/expect_text.h"
#include "tests/unit/client/fake_daemon.h"

namespace cco {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatient{30000};  // For what must happen.
constexpr milliseconds kShort{500};
constexpr milliseconds kFarewell{1000};

class Resume : public ::testing::Test {
 protected:
  void SetUp() override { daemon_.resumable = true; }

  void restart() {
    daemon_.die();
    daemon_.come_back();
  }
  /// `action` before the named call is carried out for the first time.
  void once_before(const std::string& call, std::function<grpc::Status()> action) {
    daemon_.before_call = [call, action = std::move(action),
                           done = std::make_shared<std::once_flag>()](const std::string& name) {
      grpc::Status status;
      if (name == call) std::call_once(*done, [&] { status = action(); });
      return status;
    };
  }
  void restart_before(const std::string& call) {
    once_before(call, [this] {
      restart();
      return grpc::Status::OK;
    });
  }

  void open(milliseconds timeout = kPatient) {
    auto opened = Connection::open(daemon_.socket_path(), timeout);
    ASSERT_TRUE(opened.ok()) << opened.status();
    connection_ = *std::move(opened);
  }
  absl::Status get_node(milliseconds timeout = kPatient) {
    v1::GetNodeResponse response;
    return connection_->call(&v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &response,
                             timeout);
  }

  cco_status join() {
    Group::Options options;
    options.rank = 0;
    options.size = 1;
    options.device = 0;
    options.name = "g";
    options.timeout_ms = kPatient.count();
    return Group::create(client_, options, &group_);
  }
  void attach(milliseconds timeout = kPatient) {
    const auto timeout_ms = static_cast<uint32_t>(timeout.count());
    ASSERT_EQ(Client::create({daemon_.socket_path().c_str(), timeout_ms}, &client_), CCO_OK)
        << cco_error_message();
  }
  void attach_and_join() {
    attach();
    ASSERT_EQ(join(), CCO_OK) << cco_error_message();
  }
  cco_status register_memory(Window* window) {
    const UniqueFd fd(::memfd_create("external", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), 65536), 0);
    return Window::register_memory(group_, "x", {64}, {fd.get(), 65536, 0}, window);
  }
  std::vector<v1::CreateWindowRequest> window_requests() {
    return daemon_.requests<v1::CreateWindowRequest>();
  }

  FakeDaemon daemon_;
  std::unique_ptr<Connection> connection_;
  Client client_;
  Group group_;
};

// Goal    a call that was in progress when the daemon died is repeated by the next one, under its
//         request id and with what is left of its time.
TEST_F(Resume, CallInProgress) {
  attach_and_join();
  const size_t before = daemon_.requests<v1::BarrierRequest>().size();
  restart_before("Barrier");
  EXPECT_EQ(group_.barrier(kPatient.count()), CCO_OK) << cco_error_message();
  const auto barriers = daemon_.requests<v1::BarrierRequest>();
  ASSERT_EQ(barriers.size(), before + 2);
  EXPECT_EQ(barriers[before].request_id(), barriers[before + 1].request_id());
  EXPECT_EQ(barriers[before].sequence(), barriers[before + 1].sequence());
  EXPECT_LT(barriers[before + 1].timeout_ms(), barriers[before].timeout_ms());
  EXPECT_EQ(daemon_.resume_count(), 1);
}

// Goal    a window whose answer was lost is the one that the daemon had made.
TEST_F(Resume, AnswerLost) {
  attach_and_join();
  daemon_.window_made = [this, done = false]() mutable {
    if (!std::exchange(done, true)) restart();
  };
  Window window;
  ASSERT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_OK) << cco_error_message();
  cco_window_device device{};
  ASSERT_EQ(window.get_device(&device), CCO_OK);
  EXPECT_EQ(device.generation, 101u) << "the first window of this daemon";
  EXPECT_EQ(window_requests().size(), 2u);
}

// Goal    a session whose channels were lost while nobody called comes back at the next call, and
//         one that has lost the RPC channel alone says no hello.
TEST_F(Resume, LostBetweenCalls) {
  open();
  daemon_.cut_rpc();
  EXPECT_TRUE(get_node().ok());
  EXPECT_EQ(daemon_.hello_count(), 1);
  restart();
  EXPECT_TRUE(get_node().ok());
  EXPECT_EQ(daemon_.hello_count(), 2);
  EXPECT_EQ(daemon_.resume_count(), 1);
  EXPECT_EQ(daemon_.fd_connection_count(), 1u);
}

// Goal    a daemon that does not know the session ends it for good, and says what to do.
TEST_F(Resume, SessionForgotten) {
  open();
  daemon_.forgets_sessions = true;
  restart();
  for (int i = 0; i < 2; ++i) {
    expect_text(get_node(), absl::StatusCode::kUnavailable,
                {daemon_.socket_path(), "restarted without this session", "no such session",
                 "Make a new client"});
  }
  expect_text(connection_->redeem("x").status(), absl::StatusCode::kUnavailable,
              {"restarted without this session"});
  EXPECT_EQ(daemon_.resume_count(), 1) << "refused once, not asked again";
}

// Goal    a daemon that knows the token but has other state is not taken for the same.
TEST_F(Resume, AnotherIncarnation) {
  open();
  daemon_.incarnation = 78;
  restart();
  expect_text(get_node(), absl::StatusCode::kUnavailable,
              {"restarted without this session", "incarnation 78", "77"});
  EXPECT_FALSE(get_node().ok());
  EXPECT_EQ(daemon_.resume_count(), 1);
}

// Goal    a daemon that does not return ends a call in its time, with a text that says that the
//         session is kept; and so it is.
TEST_F(Resume, NotBackInTime) {
  open(kShort);
  daemon_.die();
  const auto start = std::chrono::steady_clock::now();
  const absl::Status away = get_node(kShort);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kShort);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatient);
  expect_text(away, absl::StatusCode::kUnavailable,
              {daemon_.socket_path(), "not back in time", "No such file", "call again"});
  EXPECT_FALSE(answered_by_daemon(away));
  expect_text(connection_->redeem("x").status(), absl::StatusCode::kUnavailable, {"not back"});
  daemon_.come_back();
  EXPECT_TRUE(get_node().ok());
}

// Goal    a hello that waits while a daemon starts is not given up with the call that sent it: the
//         daemon would find it closed.
// Method  sockets that somebody holds for the daemon; a call that ends before it takes them.
TEST_F(Resume, HelloOutlivesItsCall) {
  open();
  daemon_.die();
  daemon_.hold_sockets();
  expect_text(get_node(kShort), absl::StatusCode::kUnavailable, {"not back", "not answered"});
  daemon_.come_back();
  EXPECT_TRUE(get_node().ok());
  EXPECT_EQ(daemon_.resume_count(), 1);
  EXPECT_EQ(daemon_.fd_connection_count(), 1u);
}

// Goal    a daemon that dies again while the session comes back, or has no room yet, is tried
//         again.
TEST_F(Resume, TriedAgain) {
  open();
  daemon_.answer_frames = [&, tries = 0](FdFrame& request) mutable {
    std::vector<FdFrame> answers;
    if (++tries == 1) {
      daemon_.cut_frames();
    } else if (tries == 2) {
      answers.push_back({FdFrameType::kWelcome, absl::StatusCode::kResourceExhausted,
                         "limits.sessions", UniqueFd()});
    } else {
      answers.push_back(daemon_.sound_answer(request));
    }
    return answers;
  };
  restart();
  EXPECT_TRUE(get_node().ok());
  EXPECT_EQ(daemon_.resume_count(), 1);
}

// Goal    many threads whose calls were lost come back by one hello.
// Method  the last of eight calls that the daemon holds restarts it.
TEST_F(Resume, OneHelloForManyThreads) {
  constexpr int kThreads = 8;
  open();
  daemon_.before_call = [&, arrived = std::make_shared<std::atomic<int>>(0)](const std::string&) {
    const int number = ++*arrived;
    if (number == kThreads) restart();
    while (*arrived < kThreads) std::this_thread::yield();
    return grpc::Status::OK;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const absl::Status status = get_node();
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon_.resume_count(), 1);
  EXPECT_EQ(daemon_.fd_connection_count(), 1u);
}

// Goal    "I am stopping" is no answer while the state outlives the daemon: the call waits for the
//         next one.
TEST_F(Resume, Stopping) {
  open();
  v1::ErrorDetail detail;
  detail.set_retryable(true);
  int calls = 0;
  daemon_.before_call = [&](const std::string&) {
    if (++calls == 3) restart();
    if (calls > 3) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "cco-memd is stopping",
                        detail.SerializeAsString());
  };
  EXPECT_TRUE(get_node().ok());
  EXPECT_EQ(calls, 4);
  calls = -1000;
  expect_text(get_node(kShort), absl::StatusCode::kUnavailable, {"is stopping", "call again"});

  daemon_.resumable = false;
  open();
  calls = 0;
  expect_text(get_node(), absl::StatusCode::kUnavailable, {"cco-memd is stopping"});
  EXPECT_EQ(calls, 1) << "without such state it is the answer";
}

// Goal    a next daemon that is called before the session has come back is not believed.
// Method  the fd channel ends just before the answer.
TEST_F(Resume, CallerNotYetKnown) {
  open();
  once_before("GetNode", [this] {
    daemon_.cut_frames();
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no session");
  });
  EXPECT_TRUE(get_node().ok());
  EXPECT_EQ(daemon_.resume_count(), 1);
  once_before("GetNode",
              [] { return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no session"); });
  expect_text(get_node(), absl::StatusCode::kUnauthenticated, {"no session"});
}

// Goal    tickets that were lost with the daemon are asked for again.
// Method  it dies when a ticket is to be redeemed.
TEST_F(Resume, DuringRedeem) {
  attach();
  daemon_.answer_frames = [this, done = false](FdFrame& request) mutable {
    std::vector<FdFrame> answers;
    if (request.type == FdFrameType::kRedeem && !std::exchange(done, true)) {
      restart();
    } else {
      answers.push_back(daemon_.sound_answer(request));
    }
    return answers;
  };
  EXPECT_EQ(join(), CCO_OK) << cco_error_message();
  const auto exports = daemon_.requests<v1::ExportSlabsRequest>();
  ASSERT_EQ(exports.size(), 2u);
  EXPECT_NE(exports[0].request_id(), exports[1].request_id());
}

// Goal    the same if the next daemon repeats an answer whose tickets were the last one's; tickets
//         that are wrong without a restart are an error.
TEST_F(Resume, RepeatedAnswerHasVoidTickets) {
  attach();
  restart_before("ExportSlabs");
  int exported = 0;  // The first is lost.
  daemon_.change_export = [&](v1::ExportSlabsResponse* response) {
    if (++exported == 2) response->mutable_exports(0)->set_ticket("void");
  };
  EXPECT_EQ(join(), CCO_OK) << cco_error_message();
  const auto exports = daemon_.requests<v1::ExportSlabsRequest>();
  ASSERT_EQ(exports.size(), 3u);
  EXPECT_EQ(exports[0].request_id(), exports[1].request_id());
  EXPECT_NE(exports[1].request_id(), exports[2].request_id());
  group_ = Group();
  exported = 1;
  EXPECT_EQ(join(), CCO_NOT_FOUND);
}

// Goal    memory is offered again if the daemon died with the offer: in the middle of it, or before
//         the window was made. A window that had been made is not made again.
TEST_F(Resume, DuringOffer) {
  attach_and_join();
  daemon_.answer_frames = [this, done = false](FdFrame& request) mutable {
    std::vector<FdFrame> answers;
    if (request.type == FdFrameType::kOffer && !std::exchange(done, true)) {
      restart();
    } else {
      answers.push_back(daemon_.sound_answer(request));
    }
    return answers;
  };
  Window window;
  ASSERT_EQ(register_memory(&window), CCO_OK) << cco_error_message();
  EXPECT_EQ(window_requests().size(), 1u);
  window = Window();

  restart_before("CreateWindow");
  ASSERT_EQ(register_memory(&window), CCO_OK) << cco_error_message();
  auto requests = window_requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[1].request_id(), requests[2].request_id());
  EXPECT_EQ(requests[1].offer(), requests[2].offer());
  EXPECT_NE(requests[2].request_id(), requests[3].request_id());
  EXPECT_NE(requests[2].offer(), requests[3].offer());
  window = Window();

  daemon_.before_call = nullptr;
  daemon_.window_made = [this, done = false]() mutable {
    if (!std::exchange(done, true)) restart();
  };
  ASSERT_EQ(register_memory(&window), CCO_OK) << cco_error_message();
  requests = window_requests();
  ASSERT_EQ(requests.size(), 6u);
  EXPECT_EQ(requests[4].request_id(), requests[5].request_id());
}

// Goal    a second attempt at a registration without an answer is the same call, though its offer
//         is another.
TEST_F(Resume, SecondAttemptAtARegistration) {
  daemon_.resumable = false;
  attach_and_join();
  once_before("CreateWindow",
              [] { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "made to fail"); });
  Window window;
  EXPECT_EQ(register_memory(&window), CCO_UNAVAILABLE);
  EXPECT_EQ(register_memory(&window), CCO_OK) << cco_error_message();
  const auto requests = window_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].request_id(), requests[1].request_id());
  EXPECT_NE(requests[0].offer(), requests[1].offer());
}

// Goal    a daemon that is back within a second hears that a group has ended; later it does not, as
//         nobody waits longer.
// Method  it takes its sockets once the client has come to them.
TEST_F(Resume, FarewellWaitsBriefly) {
  attach_and_join();
  daemon_.die();
  daemon_.hold_sockets();
  std::thread back([&] {
    EXPECT_TRUE(daemon_.wait_for_visitor(kPatient));
    daemon_.come_back();
  });
  const auto start = std::chrono::steady_clock::now();
  group_ = Group();
  const auto took = std::chrono::steady_clock::now() - start;
  back.join();
  EXPECT_TRUE(daemon_.requests<v1::LeaveGroupRequest>().size() == 1 || took >= kFarewell);
}

// Goal    the same for the end of a client.
TEST_F(Resume, EndOfClientIsHeard) {
  attach();
  restart();
  const auto start = std::chrono::steady_clock::now();
  client_ = Client();
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE((daemon_.resume_count() == 1 && daemon_.end_count() == 1) || took >= kFarewell);
  EXPECT_TRUE(daemon_.wait_for_disconnect(kPatient));
}

// Goal    a daemon that dies with the end of a session leaves no doubt: the next one is told, too.
//         One that does not know the session any more need not be, nor one that cannot be.
// Method  it dies when it hears of it, or stops before it could record it, or is of another
//         version.
TEST_F(Resume, EndIsSaidUntilItIsHeard) {
  int heard = 0;
  FdFrame first;  // The answer to the first; without a type: the daemon dies instead.
  daemon_.answer_frames = [&](FdFrame& request) {
    std::vector<FdFrame> answers;
    if (request.type != FdFrameType::kEnd || ++heard > 1) {
      answers.push_back(daemon_.sound_answer(request));
    } else if (first.type == FdFrameType{}) {
      restart();
    } else {
      answers.push_back(std::move(first));
    }
    return answers;
  };
  open();
  connection_->end(kPatient);
  EXPECT_EQ(heard, 2);
  EXPECT_EQ(daemon_.end_count(), 1);

  heard = 0;
  first = {FdFrameType::kEnded, absl::StatusCode::kUnavailable, "stopping", UniqueFd()};
  open();
  connection_->end(kPatient);
  EXPECT_EQ(heard, 2);

  heard = 0;
  first = {FdFrameType::kGrant, absl::StatusCode::kInvalidArgument, "not known here", UniqueFd()};
  open();
  connection_->end(kPatient);
  EXPECT_EQ(heard, 1);

  heard = 0;
  first = FdFrame();
  open();
  daemon_.forgets_sessions = true;
  connection_->end(kPatient);
  EXPECT_EQ(heard, 1);
}

// Goal    ending many things while the daemon is away takes one second, not one for each.
TEST_F(Resume, ManyFarewellsTakeOneWait) {
  attach_and_join();
  std::vector<Window> windows(30);
  for (Window& window : windows) ASSERT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_OK);
  daemon_.die();
  const auto start = std::chrono::steady_clock::now();
  windows.clear();
  group_ = Group();
  client_ = Client();
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(10000));
}

}  // namespace
}  // namespace cco
