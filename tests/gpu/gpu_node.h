// A daemon and a client on the driver under test, $CCO_TEST_DRIVER or host, and ranks on them:
// threads of this process with a stream each, so that one GPU is enough. Under a launcher
// (`ccoctl run -n 2 -- conformance_test`) the daemon is the one that runs already, and the
// processes share out the ranks of each group, so that each can have a GPU of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "client/base/status_macros.h"
#include "client/job/rank.h"
#include "device/runtime/open_driver.h"
#include "tests/support/embedded_daemon.h"

namespace cco::test {

/// The driver under test.
inline absl::StatusOr<std::unique_ptr<GpuDriver>> open_test_driver() {
  const char* const wanted = std::getenv("CCO_TEST_DRIVER");
  DriverOptions options;
  CCO_ASSIGN_OR_RETURN(options.kind, parse_driver_kind(wanted == nullptr ? "host" : wanted));
  return open_driver(options);
}

class GpuNode {
 public:
  GpuNode() {
    place_ = *find_place("gpu-test");
    Client::Options client;
    if (place_.process_count == 1) {
      driver_ = *open_test_driver();
      daemon_ = std::make_unique<EmbeddedDaemon>(*driver_);
      client.socket_path = daemon_->socket_path().c_str();
    }
    or_throw(Client::create(client, &client_));
    gpus_ = *GpuSet::open(client_);
  }

  /// Not under a launcher.
  const std::string& socket_path() const { return daemon_->socket_path(); }
  GpuSet& gpus() { return *gpus_; }
  bool is_host() const { return gpus_->is_host(); }
  /// Threads per block that wait for one another: each is a thread of the machine on host.
  uint32_t block() const { return is_host() ? 3 : 128; }

  /// Runs `body(rank)` as `count` ranks of a fresh group, whose options are `plan`'s.
  template <typename Body>
  void run(uint32_t count, Rank::Plan plan, Body body) {
    ASSERT_EQ(count % place_.process_count, 0u) << "processes, each with as many ranks";
    const uint32_t here = count / place_.process_count;
    const std::string group = place_.job + "-" + std::to_string(++groups_);
    const absl::Status status = run_ranks(place_, here, [&](uint32_t rank) -> absl::Status {
      Rank::Plan mine = plan;
      mine.rank = rank;
      mine.size = count;
      mine.device = device_of(place_, here, rank, gpus_->gpus().size());
      mine.group = group;
      CCO_ASSIGN_OR_RETURN(std::unique_ptr<Rank> joined, Rank::join(client_, *gpus_, mine));
      return body(*joined);
    });
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  Place place_;
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<EmbeddedDaemon> daemon_;
  Client client_;
  std::unique_ptr<GpuSet> gpus_;
  inline static int groups_ = 0;  ///< Of all nodes: under a launcher they are on one daemon.
};

inline std::vector<uint8_t> read_window(Rank& rank, const Window& window, uint64_t bytes) {
  std::vector<uint8_t> data(bytes);
  const uint32_t self = rank.comm().lsa_rank;
  EXPECT_TRUE(
      rank.context().copy_to_host(data.data(), *Rank::address(window, self, 0), bytes).ok());
  return data;
}

}  // namespace cco::test
