// The RPC socket against clients that send anything, and calls that the library never makes.
#include <grpcpp/create_channel_posix.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using absl::StatusCode;

class RpcTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
};

UniqueFd connect_rpc(const std::string& socket_path) {
  auto socket = connect_unix(socket_path, SOCK_STREAM);
  EXPECT_TRUE(socket.ok()) << socket.status();
  return socket.ok() ? *std::move(socket) : UniqueFd();
}

grpc::Status get_node(UniqueFd socket, const std::string& token) {
  const auto stub =
      v1::MemdService::NewStub(grpc::CreateInsecureChannelFromFd("cco-memd", socket.release()));
  grpc::ClientContext context;
  if (!token.empty()) context.AddMetadata("cco-session-bin", token);
  context.set_deadline(std::chrono::system_clock::now() + patience());
  v1::GetNodeResponse response;
  return stub->GetNode(&context, v1::GetNodeRequest(), &response);
}

// Goal    strangers on the socket disturb nobody, whatever they send, and leave nothing behind.
// Method  an HTTP request, one byte, a frame that claims 4 GiB, nothing, zeros and noise, all held
//         open while a group works; then closed.
TEST_F(RpcTest, Strangers) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  std::vector<UniqueFd> strangers;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), std::string("x"),
        preface + std::string("\xff\xff\xff\x00\x00\x00\x00\x00\x01", 9) + std::string(64, 'x'),
        std::string("\xff\xff\xff\xff", 4), std::string(), std::string(100000, '\0'),
        preface + std::string(5000, '\x42')}) {
    strangers.push_back(connect_rpc(daemon->socket_path()));
    ::send(strangers.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  {
    const Client client = attach();
    const std::vector<Group> groups = form_group(client, "job", 2);
    form_window(groups, "w", {.size_bytes = 100});
  }
  strangers.clear();
  EXPECT_TRUE(nothing_left());
}

// Goal    a connection that never says who it is does not keep a descriptor for ever.
// Method  one that sends nothing is hung up on within some seconds.
TEST_F(RpcTest, SilentConnection) {
  const UniqueFd socket = connect_rpc(daemon->socket_path());
  const Stopwatch time;
  char bytes[256];
  ssize_t size = 1;  // The daemon greets everybody.
  while (size > 0 && wait_readable(socket, patience()).ok()) {
    size = ::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  }
  EXPECT_EQ(size, 0);
  EXPECT_GE(time.elapsed(), std::chrono::milliseconds(9000));
  EXPECT_LE(time.elapsed(), patient(std::chrono::milliseconds(15000)));
}

// Goal    calls without a session, or with another process's, are refused.
// Method  no token, a wrong one, and the token of this process used by another.
TEST_F(RpcTest, NoSession) {
  const grpc::Status without = get_node(connect_rpc(daemon->socket_path()), "");
  EXPECT_EQ(without.error_code(), grpc::UNAUTHENTICATED) << without.error_message();
  const grpc::Status wrong = get_node(connect_rpc(daemon->socket_path()), std::string(16, 'x'));
  EXPECT_EQ(wrong.error_code(), grpc::UNAUTHENTICATED) << wrong.error_message();

  auto channel = connect_unix(fd_socket_path(daemon->socket_path()), SOCK_SEQPACKET);
  ASSERT_TRUE(channel.ok());
  ASSERT_TRUE(send_frame(*channel, FdFrameType::kHello, StatusCode::kOk, "").ok());
  ASSERT_TRUE(wait_readable(*channel, patience()).ok());
  const absl::StatusOr<FdFrame> welcome = receive_frame(*channel);
  ASSERT_TRUE(welcome.ok());
  const std::string token = welcome->payload.substr(0, kSecretBytes);
  EXPECT_TRUE(get_node(connect_rpc(daemon->socket_path()), token).ok());
  run_ranks(
      1,
      [](Rank& rank) {
        const grpc::Status status =
            get_node(connect_rpc(rank.socket_path), absl::HexStringToBytes(rank.argument));
        EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << status.error_message();
      },
      ranks(absl::BytesToHexString(token)));
}

// Goal    a mutation is carried out once for each request id, and a retry gets the first answer.
// Method  the same destroy twice with one id and once with another; two joins with one id at the
//         same time.
TEST_F(RpcTest, RetriesAreSafe) {
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  const v1::CreateWindowResponse window = session.create_window(group.group_id(), "w");
  v1::DestroyWindowRequest destroy;
  destroy.set_request_id(new_request_id());
  destroy.set_group_id(group.group_id());
  destroy.set_window_id(window.window_id());
  destroy.set_generation(window.generation());
  v1::DestroyWindowResponse destroyed;
  EXPECT_TRUE(session.call(&Stub::DestroyWindow, destroy, &destroyed).ok());
  EXPECT_TRUE(session.call(&Stub::DestroyWindow, destroy, &destroyed).ok());
  destroy.set_request_id(new_request_id());
  EXPECT_TRUE(refused(session.call(&Stub::DestroyWindow, destroy, &destroyed),
                      StatusCode::kNotFound, {"no window", "every rank has destroyed it"}));
  // A failure is an answer, too.
  EXPECT_TRUE(refused(session.call(&Stub::DestroyWindow, destroy, &destroyed),
                      StatusCode::kNotFound, {"no window"}));

  const v1::JoinGroupRequest join = RawSession::join_request("pair", 0, 2);
  std::vector<v1::JoinGroupResponse> answers(2);
  std::vector<std::thread> threads;
  for (v1::JoinGroupResponse& answer : answers) {
    threads.emplace_back([&] { EXPECT_TRUE(session.call(&Stub::JoinGroup, join, &answer).ok()); });
  }
  v1::JoinGroupResponse other;
  EXPECT_TRUE(session.call(&Stub::JoinGroup, RawSession::join_request("pair", 1, 2), &other).ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers[0].SerializeAsString(), answers[1].SerializeAsString());
  EXPECT_EQ(answers[0].group_id(), other.group_id());

  session.leave(group.group_id());
  v1::LeaveGroupRequest leave;
  v1::LeaveGroupResponse left;
  for (const uint32_t rank : {0u, 1u}) {
    leave.set_request_id(new_request_id());
    leave.set_group_id(other.group_id());
    leave.set_rank(rank);
    EXPECT_TRUE(session.call(&Stub::LeaveGroup, leave, &left).ok());
  }
}

// Goal    an id that is used for something else, or is no id, is refused.
// Method  the same id for two windows, for two kinds of call; ids of 0, 15 and 17 bytes.
TEST_F(RpcTest, RequestIdsAreChecked) {
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  v1::CreateWindowRequest request = RawSession::window_request(group.group_id(), "a");
  v1::CreateWindowResponse response;
  EXPECT_TRUE(session.call(&Stub::CreateWindow, request, &response).ok());
  request.set_name("b");
  EXPECT_TRUE(refused(session.call(&Stub::CreateWindow, request, &response),
                      StatusCode::kInvalidArgument, {"request_id was used for another call"}));
  v1::BarrierRequest barrier;
  barrier.set_request_id(request.request_id());
  barrier.set_group_id(group.group_id());
  v1::BarrierResponse passed;
  EXPECT_TRUE(refused(session.call(&Stub::Barrier, barrier, &passed), StatusCode::kInvalidArgument,
                      {"request_id was used for another call"}));
  for (const size_t size : {0u, 15u, 17u, 1000u}) {
    barrier.set_request_id(std::string(size, 'i'));
    EXPECT_TRUE(refused(session.call(&Stub::Barrier, barrier, &passed),
                        StatusCode::kInvalidArgument,
                        {absl::StrCat("request_id has ", size, " bytes")}));
  }
  session.leave(group.group_id());
}

// Goal    every field is checked by the daemon itself, whatever the client library checks.
// Method  joins that no library would send.
TEST_F(RpcTest, JoinFields) {
  RawSession session(daemon->socket_path());
  v1::JoinGroupResponse response;
  const auto join = [&](auto change) {
    v1::JoinGroupRequest request = RawSession::join_request("job");
    change(request);
    return session.call(&Stub::JoinGroup, request, &response);
  };
  using Request = v1::JoinGroupRequest;
  EXPECT_TRUE(refused(join([](Request& r) { r.set_rank(1); }), StatusCode::kInvalidArgument,
                      {"rank 1 is out of range", "0 to 0"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_size(0); }), StatusCode::kInvalidArgument,
                      {"size is 0"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_size(UINT32_MAX); }),
                      StatusCode::kResourceExhausted, {"4294967295", "ranks_per_group"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_name(""); }), StatusCode::kInvalidArgument,
                      {"a name or a unique id"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_name("job\n<4>event=audit"); }),
                      StatusCode::kInvalidArgument, {"control character (10) at byte 3"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_unique_id(std::string(16, 'u')); }),
                      StatusCode::kInvalidArgument, {"not both"}));
  for (const size_t size : {1u, 15u, 129u}) {
    EXPECT_TRUE(refused(join([&](Request& r) {
                          r.set_name("");
                          r.set_unique_id(std::string(size, 'u'));
                        }),
                        StatusCode::kInvalidArgument, {absl::StrCat("has ", size, " bytes")}));
  }
  EXPECT_TRUE(refused(join([](Request& r) { r.set_gpu_uuid(""); }), StatusCode::kNotFound,
                      {"no GPU ''", "HOST-0"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_slot_bytes(UINT64_MAX); }),
                      StatusCode::kInvalidArgument, {"18446744073709551615"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_slot_bytes(uint64_t{1} << 63); }),
                      StatusCode::kInvalidArgument, {"slot_bytes is 9223372036854775808"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_timeout_ms(3600001); }),
                      StatusCode::kInvalidArgument, {"timeout_ms is 3600001"}));
  EXPECT_TRUE(refused(join([](Request& r) { r.set_name(std::string(2 << 20, 'n')); }),
                      StatusCode::kResourceExhausted, {"larger than max"}));
}

// Goal    the same for windows.
// Method  creations that no library would send, in a group and outside one.
TEST_F(RpcTest, WindowFields) {
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  v1::CreateWindowResponse response;
  const auto create = [&](auto change) {
    v1::CreateWindowRequest request = RawSession::window_request(group.group_id(), "w");
    change(request);
    return session.call(&Stub::CreateWindow, request, &response);
  };
  using Request = v1::CreateWindowRequest;
  EXPECT_TRUE(refused(create([](Request& r) { r.set_size_bytes(0); }), StatusCode::kInvalidArgument,
                      {"size is 0"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_size_bytes(UINT64_MAX); }),
                      StatusCode::kInvalidArgument, {"18446744073709551615", "room for"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_name("\x1b[2J"); }),
                      StatusCode::kInvalidArgument, {"control character (27) at byte 0"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_placement(v1::PLACEMENT_UNSPECIFIED); }),
                      StatusCode::kInvalidArgument, {"placement 0"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_placement(static_cast<v1::Placement>(9)); }),
                      StatusCode::kInvalidArgument, {"placement 9"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_alignment_bytes(uint64_t{1} << 63); }),
                      StatusCode::kInvalidArgument, {"9223372036854775808"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_group_id(999); }), StatusCode::kNotFound,
                      {"not rank 0 of a group 999"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_rank(1); }), StatusCode::kNotFound,
                      {"not rank 1 of a group"}));
  EXPECT_TRUE(refused(create([](Request& r) { r.set_rank(UINT32_MAX); }), StatusCode::kNotFound,
                      {"not rank 4294967295"}));
  const auto external = [&](uint64_t allocation, uint64_t offset, uint64_t size) {
    return create([&](Request& r) {
      r.set_placement(v1::PLACEMENT_EXTERNAL);
      r.set_allocation_bytes(allocation);
      r.set_allocation_offset(offset);
      r.set_size_bytes(size);
    });
  };
  EXPECT_TRUE(refused(external(65537, 0, 16), StatusCode::kInvalidArgument, {"65537", "multiple"}));
  EXPECT_TRUE(refused(external(65536, uint64_t{0} - 16, 32), StatusCode::kInvalidArgument,
                      {"18446744073709551600", "inside"}));
  EXPECT_TRUE(refused(external(65536, 65536 - 16, 32), StatusCode::kInvalidArgument, {"inside"}));
  EXPECT_TRUE(refused(external(65536, 8, 16), StatusCode::kInvalidArgument, {"multiple of 16"}));
  EXPECT_TRUE(refused(external(65536, 0, 16), StatusCode::kNotFound, {"no such offer"}));
  EXPECT_EQ(watch->now().windows, 0u);
  session.leave(group.group_id());
}

// Goal    ids of other things, older things and nothing are refused.
// Method  generation, slab, rank and group that do not fit; pages that do not exist.
TEST_F(RpcTest, OtherFields) {
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  const v1::CreateWindowResponse window = session.create_window(group.group_id(), "w");
  v1::DestroyWindowRequest destroy;
  destroy.set_request_id(new_request_id());
  destroy.set_group_id(group.group_id());
  destroy.set_window_id(window.window_id());
  destroy.set_generation(window.generation() - 1);
  v1::DestroyWindowResponse destroyed;
  EXPECT_TRUE(refused(session.call(&Stub::DestroyWindow, destroy, &destroyed),
                      StatusCode::kFailedPrecondition, {"generation", "older window"}));
  v1::ExportSlabsRequest slabs;
  slabs.set_request_id(new_request_id());
  slabs.set_group_id(group.group_id());
  slabs.set_slab_index(7);
  v1::ExportSlabsResponse exports;
  EXPECT_TRUE(refused(session.call(&Stub::ExportSlabs, slabs, &exports), StatusCode::kNotFound,
                      {"no slab 7"}));
  v1::ReportPeersRequest report;
  report.set_request_id(new_request_id());
  report.set_group_id(group.group_id());
  report.add_peers()->set_rank(1);
  v1::ReportPeersResponse reported;
  EXPECT_TRUE(refused(session.call(&Stub::ReportPeers, report, &reported),
                      StatusCode::kInvalidArgument, {"rank 1 of a group of 1"}));
  v1::AbortGroupRequest abort;
  abort.set_request_id(new_request_id());
  abort.set_group_id(group.group_id() + 1);
  v1::AbortGroupResponse aborted;
  EXPECT_TRUE(refused(session.call(&Stub::AbortGroup, abort, &aborted), StatusCode::kNotFound,
                      {"no group"}));
  v1::ListWindowsRequest page;
  page.set_page_size(1001);
  v1::ListWindowsResponse windows;
  EXPECT_TRUE(refused(session.call(&Stub::ListWindows, page, &windows),
                      StatusCode::kInvalidArgument, {"1001"}));
  page.set_page_size(1);
  page.set_page_token("nonsense");
  EXPECT_TRUE(refused(session.call(&Stub::ListWindows, page, &windows),
                      StatusCode::kInvalidArgument, {"page_token"}));
  session.leave(group.group_id());
}

}  // namespace
}  // namespace cco::test
