// When the gRPC handlers' answers leave, seen from the handlers: no socket, no gRPC server.
#include <gmock/gmock.h>
#include <grpcpp/test/default_reactor_test_peer.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/service/memd_service.h"
#include "daemon/state/recorder.h"
#include "daemon/sys/memfd_notice_board.h"
#include "tests/unit/daemon/fakes.h"
#include "tests/unit/daemon/kept_fakes.h"

namespace cco::memd {
namespace {

using ::testing::HasSubstr;

// Whose call it is, it is told, as there are no connections.
class Service final : public MemdService {
 public:
  Service(Broker& broker, Executor& executor, Outbox& outbox)
      : MemdService(broker, executor, outbox, {"0", "host", "0", executor.now()}),
        broker_(broker) {}
  SessionId session{};
  FairQueue::Source source;

 private:
  grpc::ServerUnaryReactor* open_call(grpc::CallbackServerContext* context) override {
    return context->DefaultReactor();  // Bound to a test's.
  }
  FairQueue::Source arrive(const grpc::CallbackServerContext&, grpc::ServerUnaryReactor*) override {
    return source;
  }
  absl::StatusOr<Session*> caller(const grpc::CallbackServerContext&) override {
    return broker_.session(session);
  }
  Broker& broker_;
};

template <typename Request, typename Response>
using Method = grpc::ServerUnaryReactor* (MemdService::*)(grpc::CallbackServerContext*,
                                                          const Request*, Response*);

class ServiceTest : public ::testing::Test {
 protected:
  struct Call {
    virtual ~Call() = default;
    grpc::CallbackServerContext context;
    std::optional<grpc::Status> status;
    std::unique_ptr<grpc::testing::DefaultReactorTestPeer> peer;
  };
  template <typename Request, typename Response>
  struct CallOf final : Call {
    Request request;
    Response response;
  };

  ServiceTest() {
    auto left = recorder.load("host", pool.gpus(), notices);
    EXPECT_TRUE(left.ok());
    EXPECT_TRUE(recorder.restore(broker, *std::move(left), 77).ok());
    service.session = attach(1);
    end_round();
  }
  ~ServiceTest() override { broker.stop(); }

  SessionId attach(int64_t pid) {
    return broker.open_session({0, 0, pid, true}, UniqueFd(::memfd_create("process", MFD_CLOEXEC)))
        ->session;
  }
  // Not looked at before the executor runs.
  template <typename Request, typename Response>
  std::shared_ptr<CallOf<Request, Response>> begin(Method<Request, Response> method,
                                                   Request request = {}) {
    auto made = std::make_shared<CallOf<Request, Response>>();
    made->request = std::move(request);
    Call* call = made.get();
    call->peer = std::make_unique<grpc::testing::DefaultReactorTestPeer>(
        &call->context, [call](grpc::Status status) { call->status = status; });
    (asked->*method)(&made->context, &made->request, &made->response);
    return made;
  }
  // Up to the end of the round, which end_round() is.
  template <typename Request, typename Response>
  std::shared_ptr<CallOf<Request, Response>> call(Method<Request, Response> method,
                                                  Request request = {}) {
    auto made = begin(method, std::move(request));
    executor.run_posted();
    return made;
  }
  void end_round() {
    executor.run_posted();
    recorder.flush();
  }

  ManualExecutor executor;
  std::unique_ptr<HostDriver> driver = *HostDriver::create(4, 64 << 20);
  FakePool pool{*driver};
  MemfdNoticeBoard notices;
  NoJournal journal;
  FakeProcesses processes;
  MemoryStore store;
  MemoryVault vault;
  Recorder recorder{{executor, store, vault, journal}};
  uint64_t secrets = 0;
  static BrokerOptions few_sessions() {
    BrokerOptions options = Fixture::small_options();
    options.limits.sessions = 8;
    options.limits.sessions_per_tenant = 3;
    return options;
  }
  Broker broker{few_sessions(), {executor, pool, notices, journal, processes, [this] {
                                   return absl::StrCat("secret-", ++secrets);
                                 }}};
  Service service{broker, executor, recorder};
  Service* asked = &service;
};

// Goal    what anybody is shown, the next daemon knows, too: no answer that shows leaves before the
//         change that it may show is recorded. While the disk is full they leave all the same.
// Method  every method that shows, in a round in which a session has ended and nothing is recorded
//         yet; then the round ends, with a disk that is well, or full.
TEST_F(ServiceTest, WhatIsShownIsRecorded) {
  const auto shown_by = [this] {
    return std::vector<std::shared_ptr<Call>>{
        call(&MemdService::GetNode),      call(&MemdService::ListSessions),
        call(&MemdService::ListGroups),   call(&MemdService::ListWindows),
        call(&MemdService::ListTenants),  call(&MemdService::ListLeases),
        call(&MemdService::ExplainGroup), call(&MemdService::ListKept)};
  };
  for (const bool is_full : {false, true}) {
    const SessionId other = attach(2);
    end_round();
    store.failure = is_full ? absl::ResourceExhaustedError("no space left") : absl::OkStatus();
    broker.process_exited(other);
    const auto calls = shown_by();
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_FALSE(calls[i]->status.has_value()) << "call " << i << " shows what may be undone";
    }
    ASSERT_EQ(store.count(RecordKind::kSession), 2u);
    end_round();
    EXPECT_EQ(store.count(RecordKind::kSession), is_full ? 2u : 1u);
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(calls[i]->status.has_value()) << "call " << i << " is not answered";
    }
  }
}

// Goal    a window that is found is used, so that the answer waits until it is recorded.
TEST_F(ServiceTest, WhatIsFoundIsRecorded) {
  v1::JoinGroupRequest join;
  join.set_request_id(std::string(16, 'j'));
  join.set_name("g");
  join.set_size(1);
  join.set_gpu_uuid("HOST-0");
  const auto joined = call(&MemdService::JoinGroup, join);
  v1::CreateWindowRequest create;
  create.set_request_id(std::string(16, 'w'));
  create.set_group_id(1);
  create.set_name("w");
  create.set_size_bytes(4096);
  create.set_placement(v1::PLACEMENT_HEAP);
  const auto created = call(&MemdService::CreateWindow, create);
  store.failure = absl::ResourceExhaustedError("no space left");
  v1::OpenWindowRequest open;
  open.set_group_id(1);
  open.set_name("w");
  const auto opened = call(&MemdService::OpenWindow, open);
  end_round();
  EXPECT_FALSE(opened->status.has_value());
  store.failure = absl::OkStatus();
  end_round();
  ASSERT_TRUE(joined->status.has_value() && created->status.has_value());
  ASSERT_TRUE(opened->status.has_value());
  EXPECT_TRUE(opened->status->ok()) << opened->status->error_message();
}

// Goal    a user has twice as many RPC connections as sessions, and other users theirs. Those that
//         gRPC has closed count no longer, whether their descriptors' numbers serve anew or not.
TEST_F(ServiceTest, ConnectionsAreCounted) {
  const Identity user{1000, 1000, 1, false};
  const Identity other{1001, 1001, 2, false};
  const auto connection = [] { return UniqueFd(::memfd_create("connection", MFD_CLOEXEC)); };
  std::vector<UniqueFd> open;
  absl::Status status;
  while (open.size() < 100) {
    open.push_back(connection());
    status = service.connected(open.back().get(), user);
    if (!status.ok()) break;
  }
  ASSERT_EQ(open.size(), 2 * 3 + 1u);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tenant 'uid-1000' has 6 connections on cco-memd's RPC socket"));
  const UniqueFd others = connection();
  EXPECT_TRUE(service.connected(others.get(), other).ok());
  for (int round = 0; round < 3; ++round) {
    const int number = open[1].get();
    open[1] = UniqueFd();
    open[1] = connection();
    ASSERT_EQ(open[1].get(), number);
    EXPECT_TRUE(service.connected(number, user).ok());
  }
  EXPECT_FALSE(service.connected(open.back().get(), user).ok());
  open[0] = UniqueFd();
  EXPECT_TRUE(service.connected(open.back().get(), user).ok());
  EXPECT_TRUE(service.connected(others.get(), other).ok());
}

// Goal    all users together have twice as many RPC connections as there may be sessions.
TEST_F(ServiceTest, ConnectionsOfAllUsersAreCounted) {
  std::vector<UniqueFd> open;
  absl::Status status;
  for (uint32_t uid = 1000; status.ok() && uid < 1100; ++uid) {
    open.emplace_back(::memfd_create("connection", MFD_CLOEXEC));
    status = service.connected(open.back().get(), {uid, uid, 1, false});
  }
  EXPECT_EQ(open.size(), 2 * 8 + 1u);
  EXPECT_THAT(std::string(status.message()), HasSubstr("twice limits.sessions"));
}

// Goal    of one connection so many calls wait for their turn and no more: those over it are
//         refused, with the limit's name, and another connection's are not.
TEST_F(ServiceTest, AFloodIsRefused) {
  constexpr size_t kMore = 44;
  const size_t limit = broker.options().limits.calls_per_session;
  std::vector<std::shared_ptr<Call>> flood;
  service.source = {1, 1};
  for (size_t i = 0; i < limit + kMore; ++i) flood.push_back(begin(&MemdService::GetNode));
  executor.run_posted();
  service.source = {1, 2};
  const auto other = call(&MemdService::GetNode);
  end_round();
  size_t refused = 0;
  for (const auto& call : flood) {
    ASSERT_TRUE(call->status.has_value());
    if (call->status->ok()) continue;
    ++refused;
    EXPECT_EQ(call->status->error_code(), grpc::RESOURCE_EXHAUSTED);
    EXPECT_NE(call->status->error_message().find("limits.calls_per_session is 256"),
              std::string::npos)
        << call->status->error_message();
  }
  EXPECT_EQ(refused, kMore);
  EXPECT_TRUE(other->status->ok());
}

// Goal    a daemon that is killed after it has recorded answers, and before any client has read
//         one, leaves none of them to be carried out again, however many threads of one process
//         wait.
// Method  a hundred ranks in one session join, and meet in a barrier; a second daemon on the same
//         records is asked for all of that again.
TEST_F(ServiceTest, UnreadAnswersAreGivenByTheNextDaemon) {
  constexpr uint32_t kRanks = 100;
  const auto ask_all = [this](Recorder& answering) {
    std::vector<std::shared_ptr<Call>> calls;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      v1::JoinGroupRequest join;
      join.set_request_id(absl::StrCat("join-", absl::Dec(rank, absl::kZeroPad11)));
      join.set_name("g");
      join.set_rank(rank);
      join.set_size(kRanks);
      join.set_gpu_uuid(absl::StrCat("HOST-", rank % 4));
      calls.push_back(call(&MemdService::JoinGroup, join));
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      v1::BarrierRequest barrier;
      barrier.set_request_id(absl::StrCat("meet-", absl::Dec(rank, absl::kZeroPad11)));
      barrier.set_group_id(1);
      barrier.set_rank(rank);
      calls.push_back(call(&MemdService::Barrier, barrier));
    }
    answering.flush();
    for (size_t i = 0; i < calls.size(); ++i) {
      ASSERT_TRUE(calls[i]->status.has_value()) << "call " << i << " waits for others";
      EXPECT_TRUE(calls[i]->status->ok()) << i << ": " << calls[i]->status->error_message();
    }
  };
  ask_all(recorder);
  ASSERT_FALSE(HasFailure());
  Recorder next_recorder{{executor, store, vault, journal}};
  Broker next_broker{Fixture::small_options(),
                     {executor, pool, notices, journal, processes, [] { return "secret"; }}};
  Service next(next_broker, executor, next_recorder);
  auto left = next_recorder.load("host", pool.gpus(), notices);
  ASSERT_TRUE(left.ok()) << left.status();
  ASSERT_TRUE(next_recorder.restore(next_broker, *std::move(left), 77).ok());
  next.session = service.session;
  asked = &next;
  ask_all(next_recorder);
  EXPECT_EQ(next_broker.groups().size(), 1u);
}

// Goal    a call runs until its answer leaves, so that no more of them are unread than are
//         remembered.
// Method  so many calls as may run end in one round, and one more comes; and again in the next.
TEST_F(ServiceTest, CallsRunUntilTheirAnswersLeave) {
  const size_t limit = broker.options().limits.calls_per_session;
  const auto abort = [this](size_t number) {
    v1::AbortGroupRequest request;
    request.set_request_id(absl::StrCat("stop-", absl::Dec(number, absl::kZeroPad11)));
    return call(&MemdService::AbortGroup, request);
  };
  for (const size_t first : {size_t{0}, limit}) {
    std::vector<std::shared_ptr<Call>> calls;
    for (size_t i = 0; i < limit; ++i) calls.push_back(abort(first + i));
    const auto more = abort(2 * limit);
    ASSERT_TRUE(more->status.has_value());
    EXPECT_EQ(more->status->error_code(), grpc::RESOURCE_EXHAUSTED);
    end_round();
    for (const auto& call : calls) {
      ASSERT_TRUE(call->status.has_value());
      EXPECT_EQ(call->status->error_code(), grpc::NOT_FOUND) << call->status->error_message();
    }
  }
}

}  // namespace
}  // namespace cco::memd
