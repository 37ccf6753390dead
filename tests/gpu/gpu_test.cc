// The primitives, through a real daemon and client, on whatever driver there is: $CCO_TEST_DRIVER,
// else host. Ranks are threads of this process with a stream each, so that one GPU is enough.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "cco/device.hpp"
#include "device/kernels/kernels.h"
#include "mori/cco/cco.hpp"
#include "tests/gpu/conformance.h"
#include "tests/gpu/gpu_node.h"

namespace cco::kernels {
const KernelModule& conformance();
const KernelModule& mori_kernel();
}  // namespace cco::kernels

namespace cco::test {
namespace {

namespace shape = conformance;
using device::WaitResult;
using device::WaitStatus;

constexpr uint64_t kSecond = 1'000'000'000;

class Node : public GpuNode {
 public:
  template <typename Body>
  void run(uint32_t count, Body body) {
    Rank::Plan plan;
    plan.comm.signal_count = 4;
    plan.comm.barrier_count = 4;
    plan.result_count = 1024;
    GpuNode::run(count, plan, body);
  }
};

// What copy_cells must leave behind; bytes outside a cell's copy stay zero.
std::vector<uint8_t> expected_cells(const std::vector<uint8_t>& source) {
  std::vector<uint8_t> expected(shape::kWindowBytes, 0);
  std::copy(source.begin(), source.end(), expected.begin());
  for (uint32_t cell = 0; cell < shape::kCells; ++cell) {
    std::memcpy(expected.data() + shape::destination_offset(cell),
                source.data() + shape::source_offset(cell), shape::length(cell));
  }
  return expected;
}

absl::Status copy_cells(Rank& rank, const Window& window, LaunchShape launch_shape, uint32_t coop,
                        bool get) {
  std::vector<uint8_t> source(shape::kSourceBytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(1 + i * 7 % 255);
  CCO_ASSIGN_OR_RETURN(const uint64_t own, Rank::address(window, rank.rank(), 0));
  CCO_RETURN_IF_ERROR(rank.context().fill_zero(own, shape::kWindowBytes));
  CCO_RETURN_IF_ERROR(rank.context().copy_to_device(own, source.data(), source.size()));
  CCO_RETURN_IF_ERROR(rank.barrier());
  CCO_ASSIGN_OR_RETURN(const GpuFunction kernel,
                       rank.context().load(kernels::conformance(), "copy_cells"));
  CCO_ASSIGN_OR_RETURN(const cco_window_device view, Rank::descriptor(window));
  const uint32_t peer = (rank.rank() + 1) % rank.size();
  CCO_RETURN_IF_ERROR(
      launch(rank.stream(), kernel, launch_shape, view, peer, coop, static_cast<uint32_t>(get)));
  CCO_RETURN_IF_ERROR(rank.stream().synchronize());
  CCO_RETURN_IF_ERROR(rank.barrier());
  EXPECT_EQ(read_window(rank, window, shape::kWindowBytes), expected_cells(source))
      << (get ? "get" : "put") << " by coop " << coop;
  return absl::OkStatus();
}

// Goal    put and get move exactly the bytes asked for, at every alignment and length, by every
//         kind of group.
// Method  5120 cells between two ranks; whole windows are compared, so a byte too many is seen.
TEST(Gpu, PutAndGetAtEveryAlignment) {
  Node node;
  node.run(2, [&](Rank& rank) -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const Window window, rank.create_window(shape::kWindowBytes, "cells"));
    const LaunchShape launch_shape{node.is_host() ? 1u : 8u, node.is_host() ? 2u : 256u, 0};
    for (uint32_t coop : {0u, 1u, 2u}) {
      for (bool get : {false, true})
        CCO_RETURN_IF_ERROR(copy_cells(rank, window, launch_shape, coop, get));
    }
    return absl::OkStatus();
  });
}

// Results of a kernel whose every thread notes its own.
class PerThread {
 public:
  static absl::StatusOr<PerThread> create(Rank& rank, uint32_t threads) {
    PerThread results(rank, threads);
    CCO_ASSIGN_OR_RETURN(results.window_,
                         rank.create_window(threads * sizeof(uint64_t), "results"));
    CCO_ASSIGN_OR_RETURN(results.address_, Rank::address(results.window_, rank.rank(), 0));
    return results;
  }
  uint64_t address() const { return address_; }
  /// Of thread 0; the others must have the same.
  WaitResult agreed() const {
    std::vector<uint64_t> words(threads_);
    EXPECT_TRUE(
        rank_->context().copy_to_host(words.data(), address_, threads_ * sizeof(uint64_t)).ok());
    for (uint64_t word : words) EXPECT_EQ(word, words[0]) << "one result for the whole group";
    return WaitResult::decode(words[0]);
  }

 private:
  PerThread(Rank& rank, uint32_t threads) : rank_(&rank), threads_(threads) {}
  Rank* rank_;
  uint32_t threads_;
  Window window_;
  uint64_t address_ = 0;
};

// Goal    a wait that nobody answers ends at its deadline, and a barrier names the lowest missing
//         rank.
TEST(Gpu, WaitsEndAtTheirDeadline) {
  Node node;
  node.run(2, [&](Rank& rank) -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const PerThread results, PerThread::create(rank, node.block()));
    if (rank.rank() == 0) {
      constexpr uint64_t kBudget = kSecond / 20;
      CCO_ASSIGN_OR_RETURN(const GpuFunction wait,
                           rank.context().load(kernels::conformance(), "wait_together"));
      CCO_ASSIGN_OR_RETURN(const GpuFunction meet,
                           rank.context().load(kernels::conformance(), "meet_together"));
      const auto start = std::chrono::steady_clock::now();
      CCO_RETURN_IF_ERROR(launch(rank.stream(), wait, {1, node.block(), 0}, rank.comm(), 0u,
                                 uint64_t{1}, kBudget, results.address()));
      CCO_RETURN_IF_ERROR(rank.stream().synchronize());
      EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::nanoseconds(kBudget));
      EXPECT_EQ(results.agreed().status, WaitStatus::kTimedOut);
      CCO_RETURN_IF_ERROR(launch(rank.stream(), meet, {1, node.block(), 0}, rank.comm(), 0u,
                                 kBudget, results.address()));
      CCO_RETURN_IF_ERROR(rank.stream().synchronize());
      EXPECT_EQ(results.agreed().status, WaitStatus::kTimedOut);
      EXPECT_EQ(results.agreed().rank, 1u);
    }
    return rank.barrier();
  });
}

// Goal    a running kernel's wait ends when the group is aborted, long before its deadline, and
//         says in whose name.
// Method  rank 0's kernel waits for a minute at most; rank 1 aborts once it runs.
TEST(Gpu, AbortEndsRunningWaits) {
  Node node;
  node.run(2, [&](Rank& rank) -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const PerThread results, PerThread::create(rank, node.block()));
    if (rank.rank() == 1) {
      CCO_RETURN_IF_ERROR(rank.barrier());
      rank.call_off();
      return absl::OkStatus();
    }
    CCO_ASSIGN_OR_RETURN(const GpuFunction wait,
                         rank.context().load(kernels::conformance(), "wait_together"));
    CCO_RETURN_IF_ERROR(launch(rank.stream(), wait, {1, node.block(), 0}, rank.comm(), 0u,
                               uint64_t{1}, 60 * kSecond, results.address()));
    CCO_RETURN_IF_ERROR(rank.barrier());
    const auto start = std::chrono::steady_clock::now();
    CCO_RETURN_IF_ERROR(rank.stream().synchronize());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(results.agreed().status, WaitStatus::kPeerLost);
    EXPECT_EQ(results.agreed().rank, 1u) << "the rank that called for it";
    return absl::OkStatus();
  });
}

// Goal    kernels written for MORI CCO move the right bytes, with communicator and window by device
//         pointer and by value.
// Method  three ranks; chunks by address arithmetic, then stores, a barrier session and a sum.
TEST(Gpu, MoriKernels) {
  constexpr size_t kChunk = 777;
  constexpr int kCount = 50;
  constexpr uint64_t kCommOffset = 65536, kOutOffset = 70000 / 8 * 8;
  Node node;
  node.run(3, [&](Rank& rank) -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const Window window, rank.create_window(80000, "mori"));
    CCO_ASSIGN_OR_RETURN(const uint64_t own, Rank::address(window, rank.rank(), 0));
    const cco_window_device* pointer = nullptr;
    CCO_RETURN_IF_ERROR(to_status(window.get_device_pointer(&pointer), "window's device pointer"));
    const mori::cco::ccoDevComm comm = mori::cco::ccoDevCommFromNative(rank.comm());
    CCO_RETURN_IF_ERROR(rank.context().fill_zero(own, 80000));
    CCO_RETURN_IF_ERROR(rank.context().copy_to_device(own + kCommOffset, &comm, sizeof comm));
    CCO_RETURN_IF_ERROR(rank.barrier());

    CCO_ASSIGN_OR_RETURN(const GpuFunction store,
                         rank.context().load(kernels::mori_kernel(), "store_to_peers"));
    CCO_RETURN_IF_ERROR(
        launch(rank.stream(), store, {2, node.block(), 0}, own + kCommOffset, pointer, kChunk));
    CCO_RETURN_IF_ERROR(rank.stream().synchronize());
    CCO_RETURN_IF_ERROR(rank.barrier());
    const std::vector<uint8_t> chunks = read_window(rank, window, 3 * kChunk);
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (chunks[i] != static_cast<uint8_t>(i / kChunk * 31 + i % kChunk)) {
        ADD_FAILURE() << "byte " << i << " of rank " << rank.rank();
        break;
      }
    }
    CCO_RETURN_IF_ERROR(rank.barrier());

    CCO_ASSIGN_OR_RETURN(const GpuFunction sum,
                         rank.context().load(kernels::mori_kernel(), "store_meet_sum"));
    CCO_RETURN_IF_ERROR(
        launch(rank.stream(), sum, {1, node.block(), 0}, comm, pointer, kCount, own + kOutOffset));
    CCO_RETURN_IF_ERROR(rank.stream().synchronize());
    uint32_t out[2];
    CCO_RETURN_IF_ERROR(rank.context().copy_to_host(out, own + kOutOffset, sizeof out));
    EXPECT_EQ(out[0], static_cast<uint32_t>(kCount * (0 + 1 + 2) + 3 * kCount * (kCount - 1) / 2));
    EXPECT_EQ(out[1], 0u) << "the timed barrier arrived";
    return rank.barrier();
  });
}

// Goal    many windows in one slab are told apart by a peer that reads them through its own
//         mapping.
// Method  64 windows filled by their owner with patterns of their own, read by the other rank's
//         copies.
TEST(Gpu, WindowsInOneSlabKeepTheirBytes) {
  Node node;
  node.run(2, [&](Rank& rank) -> absl::Status {
    std::vector<Window> windows;
    for (int i = 0; i < 64; ++i) {
      CCO_ASSIGN_OR_RETURN(windows.emplace_back(), rank.create_window(1000, "one of many"));
      const std::vector<uint8_t> pattern(1000, static_cast<uint8_t>(i * 2 + rank.rank() + 1));
      CCO_ASSIGN_OR_RETURN(const uint64_t own, Rank::address(windows.back(), rank.rank(), 0));
      CCO_RETURN_IF_ERROR(rank.context().copy_to_device(own, pattern.data(), pattern.size()));
    }
    CCO_RETURN_IF_ERROR(rank.barrier());
    const uint32_t peer = 1 - rank.rank();
    for (int i = 0; i < 64; ++i) {
      std::vector<uint8_t> seen(1000);
      CCO_ASSIGN_OR_RETURN(const uint64_t theirs, Rank::address(windows[i], peer, 0));
      CCO_RETURN_IF_ERROR(rank.context().copy_to_host(seen.data(), theirs, seen.size()));
      EXPECT_EQ(seen, std::vector<uint8_t>(1000, static_cast<uint8_t>(i * 2 + peer + 1)))
          << "window " << i;
    }
    return rank.barrier();
  });
}

}  // namespace
}  // namespace cco::test
