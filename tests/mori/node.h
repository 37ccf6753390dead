// Ranks of a MORI program as threads of the test, on a daemon inside it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "device/runtime/host_driver.h"
#include "mori/cco/cco.hpp"
#include "tests/mori/expect.h"
#include "tests/support/embedded_daemon.h"

namespace cco::test {

class MoriTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = HostDriver::create(4, 0);
    ASSERT_TRUE(made.ok()) << made.status();
    driver_ = *std::move(made);
    daemon_ = std::make_unique<EmbeddedDaemon>(*driver_);
    ASSERT_EQ(::setenv("CCO_SOCKET", daemon_->socket_path().c_str(), 1), 0);
  }
  void TearDown() override {
    daemon_.reset();
    EXPECT_EQ(driver_->allocation_count(), 0u) << "the daemon keeps memory of ended ranks";
  }

  struct Rank {
    mori::cco::ccoComm* comm;
    int rank;
    int size;
  };

  /// Runs `body` on a thread for each rank of a fresh communicator.
  void run(int size, const std::function<void(const Rank&)>& body, size_t per_rank_bytes = 0) {
    mori::cco::ccoUniqueId id;
    ASSERT_EQ(mori::cco::ccoGetUniqueId(&id), 0);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        mori::cco::ccoComm* comm = nullptr;
        ASSERT_EQ(mori::cco::ccoCommCreate(id, size, rank, per_rank_bytes, &comm), 0)
            << mori::cco::ccoGetLastErrorText();
        body({comm, rank, size});
        // A rank that leaves early would end the others' calls.
        EXPECT_EQ(mori::cco::ccoBarrierAll(comm), 0) << mori::cco::ccoGetLastErrorText();
        EXPECT_EQ(mori::cco::ccoCommDestroy(comm), 0) << mori::cco::ccoGetLastErrorText();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<EmbeddedDaemon> daemon_;
};

}  // namespace cco::test
