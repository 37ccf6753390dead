// One daemon after another on the same records and descriptors, without sockets.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/state/recorder.h"
#include "daemon/sys/memfd_notice_board.h"
#include "tests/unit/daemon/fakes.h"
#include "tests/unit/daemon/kept_fakes.h"

namespace cco::memd {

struct Node {
  Node(MemoryStore& store, MemoryVault& vault, std::unique_ptr<HostDriver>& driver,
       BrokerOptions options = Fixture::small_options())
      : pool(*driver),
        recorder({executor, store, vault, journal}),
        broker(std::move(options), {executor, pool, notices, journal, processes,
                                    [this] { return absl::StrCat("secret-", ++secrets); }}) {}
  ~Node() { broker.stop(); }

  absl::Status start() {
    absl::StatusOr<Decoded> left = recorder.load("host", pool.gpus(), notices);
    if (!left.ok()) return left.status();
    losses = left->losses;
    const uint64_t incarnation = left->facts.incarnation != 0 ? left->facts.incarnation : 77;
    return recorder.restore(broker, *std::move(left), incarnation);
  }
  void round() {
    executor.run_posted();
    recorder.flush();
  }
  SessionId attach(int64_t pid) {
    return broker.open_session({1000, 1000, pid, false}, memfd("process"))->session;
  }
  static UniqueFd memfd(const char* name) { return UniqueFd(::memfd_create(name, MFD_CLOEXEC)); }

  ManualExecutor executor;
  FakePool pool;
  MemfdNoticeBoard notices;
  NoJournal journal;
  FakeProcesses processes;
  Recorder recorder;
  uint64_t secrets = 0;
  Broker broker;
  std::vector<std::string> losses;
};

class RecorderTest : public ::testing::Test {
 protected:
  std::unique_ptr<HostDriver> driver = *HostDriver::create(4, 64 << 20);
  MemoryStore store;
  MemoryVault vault;

  std::unique_ptr<Node> start(BrokerOptions options = Fixture::small_options()) {
    auto node = std::make_unique<Node>(store, vault, driver, std::move(options));
    const absl::Status status = node->start();
    EXPECT_TRUE(status.ok()) << status;
    return node;
  }
  GroupId form(Node& node, const std::vector<SessionId>& members, const std::string& lease = "") {
    GroupId group{};
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      JoinRequest request;
      request.name = "g";
      request.rank = rank;
      request.size = static_cast<uint32_t>(members.size());
      request.gpu_uuid = absl::StrCat("HOST-", rank);
      request.lease = lease;
      node.broker.join(*node.broker.session(members[rank]), request,
                       [&](absl::StatusOr<JoinResult> result) {
                         ASSERT_TRUE(result.ok()) << result.status();
                         group = result->group;
                       });
    }
    return group;
  }
  Broker::NewLease lease(Node& node, LeaseRequest request) {
    const auto root = node.broker.open_session({0, 0, 99, true}, Node::memfd("root"));
    const auto made = node.broker.create_lease(*node.broker.session(root->session), request);
    EXPECT_TRUE(made.ok()) << made.status();
    node.broker.process_exited(root->session);
    return *made;
  }
  WindowResult window(Node& node, const std::vector<SessionId>& members, GroupId group,
                      const std::string& name, Placement placement, uint64_t size_bytes,
                      Milliseconds keep = {}) {
    WindowResult made;
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      WindowRequest request;
      request.group = group;
      request.rank = rank;
      request.name = name;
      request.size_bytes = size_bytes;
      request.placement = placement;
      request.keep = keep;
      if (placement == Placement::kExternal) {
        const GpuMemory memory = *driver->allocate(0, 1 << 20, MemoryKind::kData);
        request.allocation_bytes = 1 << 20;
        request.offer = *node.broker.desk().take_offer(members[rank], *driver->export_fd(memory));
      }
      node.broker.create_window(*node.broker.session(members[rank]), request,
                                [&](absl::StatusOr<WindowResult> result) {
                                  ASSERT_TRUE(result.ok()) << result.status();
                                  made = *result;
                                });
    }
    return made;
  }
};

}  // namespace cco::memd
