// The daemon dies at any step of keeping its state.
#include "tests/integration/crash_step.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/src/connection.h"

namespace cco::test {
namespace {

constexpr uint32_t kTimeoutMs = 30000;

void fill(const Window& window, uint32_t rank, int value) {
  unsigned char* address = nullptr;
  ASSERT_TRUE(succeeded(window.get_address(rank, 0, &address)));
  std::memset(address, value, 4096);
}
void expect_filled(const Window& window, uint32_t rank, int value) {
  unsigned char* address = nullptr;
  ASSERT_TRUE(succeeded(window.get_address(rank, 0, &address)));
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(address[i], value) << "byte " << i;
}

// Memory that is kept for all groups of this process, and given back at the end.
class LeaseOfThisProcess {
 public:
  explicit LeaseOfThisProcess(const std::string& socket_path) {
    connect_patiently(socket_path, &connection_);
    if (connection_ == nullptr) return;
    v1::CreateLeaseRequest request;
    request.set_request_id(new_request_id());
    request.set_bytes_per_gpu(64 << 20);
    request.set_ttl_ms(3'600'000);
    v1::CreateLeaseResponse made;
    EXPECT_TRUE(
        connection_
            ->call(&v1::MemdService::Stub::CreateLease, request, &made, connection_->timeout())
            .ok());
    id_ = made.lease_id();
    ::setenv("CCO_LEASE", absl::BytesToHexString(made.token()).c_str(), 1);
  }
  ~LeaseOfThisProcess() {
    if (connection_ == nullptr) return;
    v1::EndLeaseRequest request;
    request.set_request_id(new_request_id());
    request.set_lease_id(id_);
    v1::EndLeaseResponse ended;
    EXPECT_TRUE(
        connection_->call(&v1::MemdService::Stub::EndLease, request, &ended, connection_->timeout())
            .ok());
  }

 private:
  std::unique_ptr<Connection> connection_;
  uint64_t id_ = 0;
};

// A GPU goes out of service under a group, and comes back.
void lose_gpu(const Client& client, const std::string& socket_path) {
  Group group;
  ASSERT_TRUE(succeeded(Group::create(
      client,
      {.rank = 0, .size = 1, .gpu_uuid = "HOST-3", .name = "revoked", .timeout_ms = kTimeoutMs},
      &group)));
  std::unique_ptr<Connection> root;
  connect_patiently(socket_path, &root);
  if (::testing::Test::HasFailure()) return;
  v1::DrainGpuRequest drain;
  drain.set_request_id(new_request_id());
  drain.set_gpu_uuid("HOST-3");
  v1::DrainGpuResponse drained;
  absl::Status status = root->call(&v1::MemdService::Stub::DrainGpu, drain, &drained, patience());
  EXPECT_TRUE(status.ok()) << status;
  expect_state(*root, 3, "drained");
  EXPECT_TRUE(refused(group.check(), CCO_ABORTED, {"out of service"}));
  v1::UndrainGpuRequest undrain;
  undrain.set_request_id(new_request_id());
  v1::UndrainGpuResponse undrained;
  status = root->call(&v1::MemdService::Stub::UndrainGpu, undrain, &undrained, patience());
  EXPECT_TRUE(status.ok()) << status;
  expect_state(*root, 3, "serving");
}

Client attach_patiently(const std::string& socket_path) {
  Client client;
  open_patiently([&] {
    return outcome(Client::create({socket_path.c_str(), kTimeoutMs}, &client));
  });
  return client;
}

// Both go on in a new group, where what is there now is there, too.
void shrink(std::vector<Group>* groups, std::vector<Window>* large) {
  std::vector<Group> next(2);
  ASSERT_TRUE(all_succeeded(on_threads(
      2, [&](uint32_t rank) { return Group::shrink((*groups)[rank], kTimeoutMs, &next[rank]); })));
  *groups = std::move(next);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(succeeded(Window::open((*groups)[rank], "large", &(*large)[rank])));
  }
}

// Granted to this user's own tenant, and read through the grant.
void share(const Client& client, const Window& window, int value) {
  cco_grant_token token{};
  const std::string tenant = absl::StrCat("uid-", ::geteuid());
  ASSERT_TRUE(succeeded(window.grant(tenant.c_str(), CCO_ACCESS_READ, &token)));
  Attachment attachment;
  ASSERT_TRUE(succeeded(Attachment::create(client, token, 0, &attachment)));
  ASSERT_TRUE(succeeded(window.revoke(token)));
  const unsigned char* address = nullptr;
  ASSERT_TRUE(succeeded(attachment.get_address(1, 0, &address)));
  EXPECT_EQ(address[4095], value);
}

// The keeper dies, and another is filled. Nothing is asked of the daemon meanwhile: its death would
// be that of both at once.
void replace_keeper(const std::string& socket_path) {
  const std::string state_dir = std::filesystem::path(socket_path).parent_path() / "state";
  const pid_t first = keeper_of(state_dir);
  ASSERT_GT(first, 0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  const Stopwatch time;
  const auto is_another = [&] {
    const pid_t now = keeper_of(state_dir);
    return now != -1 && now != first;
  };
  while (!is_another() && time.elapsed() < patience()) std::this_thread::yield();
  EXPECT_TRUE(is_another());
}

// A session that ends in order while its process lives on is nobody's, whichever daemon heard it.
void come_and_go(const std::string& socket_path) {
  NodeWatch node(socket_path);
  std::unique_ptr<Connection> connection;
  connect_patiently(socket_path, &connection);
  if (connection == nullptr) return;
  const uint32_t with_it = node.now().sessions;
  connection->end(patience());
  connection.reset();
  EXPECT_LT(node.now().sessions, with_it);
}

// Everything that makes or ends something, with bytes in it.
void live(Rank& rank) {
  const Client client = attach_patiently(rank.socket_path);
  ASSERT_FALSE(::testing::Test::HasFailure());
  const LeaseOfThisProcess lease(rank.socket_path);
  std::vector<Group> groups = form_group(client, "job", 2, kTimeoutMs);
  ASSERT_FALSE(::testing::Test::HasFailure());
  std::vector<Window> small =
      form_window(groups, "small", {.size_bytes = 4096, .timeout_ms = kTimeoutMs});
  std::vector<Window> large =
      form_window(groups, "large", {.size_bytes = 6 << 20, .timeout_ms = kTimeoutMs});
  UniqueFd memory[2];
  std::vector<Window> external(2);
  EXPECT_TRUE(all_succeeded(on_threads(2, [&](uint32_t rank) {
    memory[rank].reset(::memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (::ftruncate(memory[rank].get(), 65536) != 0) return CCO_INTERNAL;
    return Window::register_memory(groups[rank], "external",
                                   {.size_bytes = 4096, .timeout_ms = kTimeoutMs},
                                   {memory[rank].get(), 65536, 0}, &external[rank]);
  })));
  ASSERT_FALSE(::testing::Test::HasFailure());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    fill(large[rank], rank, 1 + static_cast<int>(rank));
    fill(external[rank], rank, 3 + static_cast<int>(rank));
  }
  const std::vector<Window> kept = form_window(
      groups, "kept", {.size_bytes = 4096, .timeout_ms = kTimeoutMs, .keep_ms = 3'600'000});
  ASSERT_FALSE(::testing::Test::HasFailure());
  for (uint32_t rank = 0; rank < 2; ++rank) fill(kept[rank], rank, 5 + static_cast<int>(rank));
  share(client, kept[0], 6);
  replace_keeper(rank.socket_path);
  small.clear();
  EXPECT_TRUE(all_succeeded(
      on_threads(2, [&](uint32_t rank) { return groups[rank].barrier(kTimeoutMs); })));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    expect_filled(large[1 - rank], rank, 1 + static_cast<int>(rank));
    expect_filled(external[1 - rank], rank, 3 + static_cast<int>(rank));
  }
  shrink(&groups, &large);
  ASSERT_FALSE(::testing::Test::HasFailure());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    expect_filled(large[1 - rank], rank, 1 + static_cast<int>(rank));
  }
  lose_gpu(client, rank.socket_path);
  come_and_go(rank.socket_path);
}

// What the first process has left, and leaves it for no time.
void find_kept(Rank& rank) {
  NodeWatch node(rank.socket_path);
  EXPECT_TRUE(node.becomes([](const NodeLedger& ledger) {
    return ledger.groups == 0 && ledger.slab_bytes() == ledger.kept_bytes();
  }));
  const Client client = attach_patiently(rank.socket_path);
  ASSERT_FALSE(::testing::Test::HasFailure());
  const std::vector<Group> groups = form_group(client, "job", 2, kTimeoutMs);
  const std::vector<Window> kept =
      form_window(groups, "kept", {.size_bytes = 4096, .timeout_ms = kTimeoutMs, .keep_ms = 1});
  ASSERT_FALSE(::testing::Test::HasFailure());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    cco_window_info info{};
    ASSERT_TRUE(succeeded(kept[rank].get_info(&info)));
    EXPECT_EQ(info.is_found, 1u);
    expect_filled(kept[1 - rank], rank, 5 + static_cast<int>(rank));
  }
}

// In a process of its own, whose session ends with it, whatever daemon knows of that.
void expect_nothing(Rank& rank) {
  NodeWatch node(rank.socket_path);
  EXPECT_TRUE(node.becomes([](const NodeLedger& ledger) {
    return ledger.groups == 0 && ledger.windows == 0 && ledger.slab_bytes() == 0 &&
           ledger.reserved_bytes() == 0;
  }));
}

// Goal    wherever the daemon is killed while it records what it does, the next one goes on: every
//         call of the client ends well, no byte changes, and at the end nothing is left: no slab,
//         no record, no descriptor.
// Method  a daemon for every step, until two clients' work needs no more; the second finds what the
//         first has left.
TEST_F(CrashStepTest, EveryStep) {
  EXPECT_GT(at_every_step(live, {find_kept, expect_nothing}), 40)
      << "fewer steps than there are things to keep";
}

// A driver whose library holds device files, as the stand-in for AMD's does.
class CrashAtRestartTest : public CrashStepTest {
 protected:
  DaemonProcess::Options kept_options() const override {
    DaemonProcess::Options options = CrashStepTest::kept_options();
    options.driver = "hip";
    options.config = absl::StrCat("state_dir: \"", state_dir(), "\"\n");
    options.environment = {{"CCO_HIP_LIBRARY", CCO_FAKE_HIP_LIBRARY},
                           {"FAKE_HIP_DEVICES", "2"},
                           {"FAKE_HIP_DEVICE_FILES", folder()}};
    return options;
  }
};

template <typename Response, typename Request>
Response ask(Connection& connection, Connection::Method<Request, Response> method,
             Request request) {
  Response response;
  request.set_request_id(new_request_id());
  const absl::Status status = connection.call(method, request, &response, patience());
  EXPECT_TRUE(status.ok()) << status;
  return response;
}

v1::JoinGroupResponse join_at(Connection& connection, const std::string& name, int gpu) {
  v1::JoinGroupRequest request;
  request.set_name(name);
  request.set_size(1);
  request.set_gpu_uuid(absl::StrCat("GPU-fa4e00000000000", gpu));
  return ask(connection, &v1::MemdService::Stub::JoinGroup, request);
}

// One GPU goes out of service, which starts the daemon anew, and comes back, which does so again.
void drain_and_undrain(Rank& rank) {
  using Stub = v1::MemdService::Stub;
  std::unique_ptr<Connection> connection;
  connect_patiently(rank.socket_path, &connection);
  ASSERT_NE(connection, nullptr);
  const v1::JoinGroupResponse stays = join_at(*connection, "stays", 0);
  join_at(*connection, "revoked", 1);
  v1::CreateWindowRequest create;
  create.set_group_id(stays.group_id());
  create.set_name("w");
  create.set_size_bytes(4096);
  create.set_placement(v1::PLACEMENT_HEAP);
  const v1::CreateWindowResponse made = ask(*connection, &Stub::CreateWindow, create);
  v1::DrainGpuRequest drain;
  drain.set_gpu_uuid("GPU-fa4e000000000001");
  ask(*connection, &Stub::DrainGpu, drain);
  expect_state(*connection, 1, "drained");
  expect_state(*connection, 0, "serving");
  v1::OpenWindowRequest open;
  open.set_group_id(stays.group_id());
  open.set_name("w");
  v1::OpenWindowResponse opened;
  const absl::Status status = connection->call(&Stub::OpenWindow, open, &opened, patience());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(opened.window().window_id(), made.window_id());
  ask(*connection, &Stub::UndrainGpu, v1::UndrainGpuRequest());
  expect_state(*connection, 1, "serving");
  join_at(*connection, "again", 1);
}

// Goal    a daemon that starts itself anew to let go of a GPU may be killed at any step of that,
//         too: the drain is carried out, and taken back, and the other GPU's group goes on.
// Method  as above; steps are counted over the daemon's own restarts.
TEST_F(CrashAtRestartTest, EveryStep) {
  EXPECT_GT(at_every_step(drain_and_undrain, {expect_nothing}), 40);
}

}  // namespace
}  // namespace cco::test
