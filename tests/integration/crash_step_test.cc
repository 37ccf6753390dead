// The daemon dies at any step of keeping its state.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/src/connection.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

constexpr uint32_t kTimeoutMs = 30000;

class CrashStepTest : public KeptNodeTest {
 protected:
  void SetUp() override {}
  void TearDown() override {}

  // A daemon that dies at `step`, and then one that does not, as an operating system's supervisor
  // would start it.
  void start_dying_at(int64_t step) {
    watched_ = true;
    deaths_ = 0;
    DaemonProcess::Options options = kept_options();
    options.wrapper = {CRASHING_MEMD, absl::StrCat(step)};
    auto started = DaemonProcess::start(options);
    if (started.ok()) {
      daemon = *std::move(started);
    } else {
      ++deaths_;
      start_kept();
    }
    supervisor_ = std::thread([this] {
      while (watched_) {
        if (!daemon->wait(std::chrono::milliseconds(20)).has_value()) continue;
        ++deaths_;
        start_kept();
      }
    });
  }
  static Ranks::Options ranks_at(const std::string& socket_path) {
    Ranks::Options options;
    options.socket_path = socket_path;
    return options;
  }
  void stop_supervisor() {
    watched_ = false;
    supervisor_.join();
  }

  std::atomic<bool> watched_{false};
  std::atomic<int> deaths_{0};
  std::thread supervisor_;
};

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
    const Stopwatch time;
    absl::StatusOr<std::unique_ptr<Connection>> opened;
    do {  // As for the client's: there may be no daemon yet.
      opened = Connection::open(socket_path, std::chrono::milliseconds(kTimeoutMs));
    } while (absl::IsUnavailable(opened.status()) && time.elapsed() < patience());
    connection_ = *std::move(opened);
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

// There is no session to come back to before the first answer.
template <typename Open>
void open_patiently(Open open) {
  Outcome opened;
  const Stopwatch time;
  do {
    opened = open();
  } while (opened.status == CCO_UNAVAILABLE && time.elapsed() < patience());
  ASSERT_TRUE(succeeded(opened));
}

void expect_state(Connection& connection, const std::string& state) {
  v1::GetNodeResponse node;
  const Stopwatch time;
  do {
    const absl::Status status =
        connection.call(&v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &node, patience());
    ASSERT_TRUE(status.ok()) << status;
  } while (node.gpus(3).state() != state && time.elapsed() < patience());
  EXPECT_EQ(node.gpus(3).state(), state);
}

// A GPU goes out of service under a group, and comes back.
void lose_gpu(const Client& client, const std::string& socket_path) {
  Group group;
  ASSERT_TRUE(succeeded(Group::create(
      client,
      {.rank = 0, .size = 1, .gpu_uuid = "HOST-3", .name = "revoked", .timeout_ms = kTimeoutMs},
      &group)));
  std::unique_ptr<Connection> root;
  open_patiently([&] {
    auto opened = Connection::open(socket_path, patience());
    if (opened.ok()) root = *std::move(opened);
    return Outcome{static_cast<cco_status>(opened.status().code()),
                   std::string(opened.status().message())};
  });
  if (::testing::Test::HasFailure()) return;
  v1::DrainGpuRequest drain;
  drain.set_request_id(new_request_id());
  drain.set_gpu_uuid("HOST-3");
  v1::DrainGpuResponse drained;
  absl::Status status = root->call(&v1::MemdService::Stub::DrainGpu, drain, &drained, patience());
  EXPECT_TRUE(status.ok()) << status;
  expect_state(*root, "drained");
  EXPECT_TRUE(refused(group.check(), CCO_ABORTED, {"out of service"}));
  v1::UndrainGpuRequest undrain;
  undrain.set_request_id(new_request_id());
  v1::UndrainGpuResponse undrained;
  status = root->call(&v1::MemdService::Stub::UndrainGpu, undrain, &undrained, patience());
  EXPECT_TRUE(status.ok()) << status;
  expect_state(*root, "serving");
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
  constexpr int64_t kMost = 2000;
  const int64_t stride = patience() > std::chrono::seconds(20) ? 7 : 1;  // Sanitizers are slow.
  int64_t step = 0;
  for (; !HasFailure(); step += stride) {
    SCOPED_TRACE(absl::StrCat("killed at step ", step));
    ASSERT_LT(step, kMost) << "the work never ends";
    start_dying_at(step);
    run_ranks(1, live, ranks_at(socket_path()));
    run_ranks(1, find_kept, ranks_at(socket_path()));
    run_ranks(1, expect_nothing, ranks_at(socket_path()));
    stop_supervisor();
    if (daemon->stop() != 0) {  // It died at this last step.
      ++deaths_;
      start_kept();
      EXPECT_EQ(daemon->stop(), 0) << daemon->log();
    }
    expect_no_keeper();  // Which a session would keep, too.
    EXPECT_LE(deaths_, 1) << daemon->log();
    if (deaths_ == 0) break;
  }
  EXPECT_GT(step, 40) << "fewer steps than there are things to keep";
}

}  // namespace
}  // namespace cco::test
