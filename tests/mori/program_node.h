// Ranks of a MORI program as threads of the test, with a stream each, on a daemon inside it and the
// driver under test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "mori/cco/cco.hpp"
#include "tests/gpu/gpu_node.h"
#include "tests/mori/expect.h"

namespace cco::test {

/// Failures are the test's.
class ProgramRank {
 public:
  ProgramRank(mori::cco::ccoComm* made, int rank, int size, GpuContext* context)
      : comm(made), rank(rank), size(size), context_(context) {
    absl::StatusOr<std::unique_ptr<GpuStream>> stream = context->create_stream(StreamUse::kKernels);
    EXPECT_TRUE(stream.ok()) << stream.status();
    if (stream.ok()) stream_ = *std::move(stream);
  }

  mori::cco::ccoComm* const comm;
  const int rank;
  const int size;

  /// Collective: every rank's kernel has ended when any rank returns. One block.
  template <typename... Arguments>
  void launch(const KernelModule& module, const char* name, uint32_t threads,
              const Arguments&... arguments) {
    const absl::StatusOr<GpuFunction> kernel = context_->load(module, name);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    CCO_ASSERT_OK(mori::cco::ccoBarrierAll(comm));  // Loading waits for running kernels.
    const absl::Status launched = cco::launch(*stream_, *kernel, {1, threads, 0}, arguments...);
    EXPECT_TRUE(launched.ok()) << launched;
    const absl::Status ended = stream_->synchronize();
    EXPECT_TRUE(ended.ok()) << name << ": " << ended;
    CCO_ASSERT_OK(mori::cco::ccoBarrierAll(comm));
  }
  template <typename T>
  void write(const void* to, const std::vector<T>& from) {
    const absl::Status status = context_->copy_to_device(reinterpret_cast<uint64_t>(to),
                                                         from.data(), from.size() * sizeof(T));
    EXPECT_TRUE(status.ok()) << status;
  }
  template <typename T>
  std::vector<T> read(const void* from, size_t count) {
    std::vector<T> result(count);
    const absl::Status status =
        context_->copy_to_host(result.data(), reinterpret_cast<uint64_t>(from), count * sizeof(T));
    EXPECT_TRUE(status.ok()) << status;
    return result;
  }

 private:
  GpuContext* const context_;
  std::unique_ptr<GpuStream> stream_;
};

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<std::unique_ptr<GpuDriver>> driver = open_test_driver();
    ASSERT_FALSE(absl::IsInvalidArgument(driver.status())) << driver.status();
    if (!driver.ok()) GTEST_SKIP() << driver.status();
    node_ = std::make_unique<GpuNode>();
    set("CCO_SOCKET", node_->socket_path().c_str());
  }
  void TearDown() override {
    for (const char* name : {"CCO_LSA_SIZE", "CCO_GDA_PROVIDER", "CCO_SDMA_PROVIDER"}) {
      ::unsetenv(name);
    }
  }
  static void set(const char* name, const char* value) { ASSERT_EQ(::setenv(name, value, 1), 0); }

  /// Threads of a block; and of one that is a single warp.
  uint32_t block() const { return node_->block(); }
  uint32_t warp() const { return node_->is_host() ? node_->block() : 32; }

  /// Runs `body(rank)` on a thread for each rank of a fresh communicator.
  template <typename Body>
  void run(int size, Body body) {
    mori::cco::ccoUniqueId id;
    CCO_ASSERT_OK(mori::cco::ccoGetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        mori::cco::ccoComm* comm = nullptr;
        CCO_ASSERT_OK(mori::cco::ccoCommCreate(id, size, rank, 0, &comm));
        // The device that the communicator has taken, as nothing was current on this thread.
        const auto device =
            static_cast<int>(static_cast<size_t>(rank) % node_->gpus().gpus().size());
        const absl::StatusOr<GpuContext*> context = node_->gpus().context(device);
        ASSERT_TRUE(context.ok()) << context.status();
        {
          ProgramRank program(comm, rank, size, *context);
          body(program);
        }
        CCO_EXPECT_OK(mori::cco::ccoBarrierAll(comm));
        CCO_EXPECT_OK(mori::cco::ccoCommDestroy(comm));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::unique_ptr<GpuNode> node_;
};

}  // namespace cco::test
