#include "tests/support/node_watch.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/src/connection.h"
#include "tests/support/patience.h"

namespace cco::test {
namespace {
using Stub = v1::MemdService::Stub;
}

struct NodeWatch::Parts {
  std::unique_ptr<Connection> connection;

  absl::StatusOr<v1::GetNodeResponse> look() {
    v1::GetNodeResponse node;
    CCO_RETURN_IF_ERROR(connection->call(&Stub::GetNode, v1::GetNodeRequest(), &node, patience()));
    return node;
  }
};

NodeWatch::NodeWatch(const std::string& socket_path) : parts_(std::make_unique<Parts>()) {
  const Stopwatch time;
  absl::StatusOr<std::unique_ptr<Connection>> opened = Connection::open(socket_path, patience());
  // A daemon may be just about to come back.
  while (absl::IsUnavailable(opened.status()) && time.elapsed() < patience()) {
    opened = Connection::open(socket_path, patience());
  }
  if (!opened.ok()) ADD_FAILURE() << opened.status();
  if (opened.ok()) parts_->connection = *std::move(opened);
}

NodeWatch::~NodeWatch() = default;

NodeLedger NodeWatch::now() {
  NodeLedger ledger;
  const absl::StatusOr<v1::GetNodeResponse> node = parts_->look();
  if (!node.ok()) {
    ADD_FAILURE() << node.status();
    return ledger;
  }
  ledger.sessions = node->session_count();
  ledger.groups = node->group_count();
  ledger.windows = node->window_count();
  ledger.open_fds = node->open_fds();
  for (const v1::Gpu& gpu : node->gpus()) {
    ledger.gpus.push_back({gpu.slab_bytes(), gpu.slab_count(), gpu.quarantined_bytes(),
                           gpu.held_bytes(), gpu.reserved_bytes(), gpu.kept_bytes()});
  }
  return ledger;
}

bool NodeWatch::answers() { return parts_->look().ok(); }

uint64_t NodeWatch::busy_ms(size_t gpu) {
  const absl::StatusOr<v1::GetNodeResponse> node = parts_->look();
  return node.ok() ? node->gpus(static_cast<int>(gpu)).busy_ms() : 0;
}

std::vector<std::string> NodeWatch::pending() {
  v1::ListGroupsResponse groups;
  const absl::Status status =
      parts_->connection->call(&Stub::ListGroups, v1::ListGroupsRequest(), &groups, patience());
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::string> texts;
  for (const v1::GroupInfo& group : groups.groups()) {
    texts.insert(texts.end(), group.pending().begin(), group.pending().end());
  }
  return texts;
}

::testing::AssertionResult NodeWatch::settles_at(const NodeLedger& expected) {
  const auto done = [&](NodeLedger ledger) {
    const bool leaks = ledger.open_fds > expected.open_fds;
    ledger.open_fds = expected.open_fds;
    return !leaks && ledger == expected;
  };
  return look_until(done, expected.text());
}

// The daemon tells nobody that it has cleaned up: ask until it has.
::testing::AssertionResult NodeWatch::look_until(const std::function<bool(const NodeLedger&)>& done,
                                                 const std::string& expected) {
  const Stopwatch watch;
  NodeLedger ledger = now();
  while (!done(ledger) && watch.elapsed() < patient(std::chrono::seconds(5))) {
    std::this_thread::yield();
    ledger = now();
  }
  if (done(ledger)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "the daemon holds  " << ledger.text() << "\n  instead of       " << expected;
}

uint64_t NodeLedger::sum(uint64_t Gpu::*bytes) const {
  uint64_t sum = 0;
  for (const Gpu& gpu : gpus) sum += gpu.*bytes;
  return sum;
}

std::string NodeLedger::text() const {
  std::string text = absl::StrCat(sessions, " sessions, ", groups, " groups, ", windows,
                                  " windows, ", open_fds, " fds");
  for (const Gpu& gpu : gpus) {
    absl::StrAppend(&text, "; ", gpu.slab_count, " slabs of ", gpu.slab_bytes, " bytes, ",
                    gpu.quarantined_bytes, " quarantined, ", gpu.held_bytes, " held, ",
                    gpu.reserved_bytes, " reserved, ", gpu.kept_bytes, " kept");
  }
  return text;
}

}  // namespace cco::test
