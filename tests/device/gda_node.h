// What the tests of GDA share: ranks of two nodes, each rank with a partner on the other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/device/emulated_transports.h"

namespace cco::testing {

/// Provider, and ranks on each of the two nodes.
using GdaCase = std::tuple<std::string, uint32_t>;

class GdaTest : public ::testing::TestWithParam<GdaCase> {
 protected:
  static constexpr uint64_t kWindowBytes = 1 << 16;

  static std::string provider() { return std::get<0>(GetParam()); }
  static bool is_proxy() { return provider() == "proxy"; }
  static uint32_t ranks() { return 2 * std::get<1>(GetParam()); }
  static uint32_t partner(uint32_t rank) { return (rank + ranks() / 2) % ranks(); }

  static EmulatedTransports::Options options() {
    EmulatedTransports::Options options;
    options.node.ranks = ranks();
    options.node.ranks_per_node = ranks() / 2;
    options.node.window_bytes = kWindowBytes;
    options.gda = provider();
    options.gda_plan.context_count = 2;
    return options;
  }

  /// Runs `body(rank, gda, window, deadline)` as a kernel on all ranks, or on one.
  template <typename Body>
  static void run(EmulatedTransports& all, uint32_t blocks, uint32_t threads, Body body,
                  uint32_t context = 0) {
    all.node().run(blocks, threads, [&](uint32_t rank) { call(all, rank, context, body); });
  }
  template <typename Body>
  static void run_on(EmulatedTransports& all, uint32_t rank, uint32_t threads, Body body,
                     uint32_t context = 0) {
    EmulatedNode::run_on(rank, 1, threads, [&](uint32_t self) { call(all, self, context, body); });
  }

  /// What kernels see of a rank's GDA, for tests that break it.
  static cco_gda_device& device_of(EmulatedTransports& all, uint32_t rank) {
    return *reinterpret_cast<cco_gda_device*>(all.gda(rank).device());
  }
  static cco_gda_queue& queue_of(EmulatedTransports& all, uint32_t rank, uint32_t peer,
                                 uint32_t context = 0) {
    const cco_gda_device& device = device_of(all, rank);
    return reinterpret_cast<cco_gda_queue*>(device.queues)[peer * device.context_count + context];
  }
  static cco_work_ring& ring_of(EmulatedTransports& all, uint32_t rank, uint32_t context = 0) {
    return reinterpret_cast<cco_work_ring*>(device_of(all, rank).rings)[context];
  }

  /// While it lives, what `rank` posts to `peer` is never performed: its doorbells, or its items,
  /// go nowhere.
  class Deaf {
   public:
    Deaf(EmulatedTransports& all, uint32_t rank, uint32_t peer)
        : items_(is_proxy() ? ring_of(all, rank).depth : 0),
          word_(is_proxy() ? ring_of(all, rank).items : queue_of(all, rank, peer).doorbell),
          before_(word_) {
      word_ = is_proxy() ? reinterpret_cast<uint64_t>(items_.data())
                         : reinterpret_cast<uint64_t>(&doorbell_);
    }
    ~Deaf() { word_ = before_; }

   private:
    std::vector<cco_work_item> items_;
    uint64_t doorbell_ = 0;
    uint64_t& word_;
    const uint64_t before_;
  };

 private:
  template <typename Body>
  static void call(EmulatedTransports& all, uint32_t rank, uint32_t context, Body& body) {
    const device::DeviceComm comm = all.comm(rank);
    const device::Window window = all.node().window(rank);
    const device::Gda gda(comm, context);
    body(rank, gda, window, device::Deadline::after(comm, kLongNs));
  }
};

inline bool has_arrived(const device::WaitResult& result) {
  return result.status == device::WaitStatus::kArrived;
}

inline std::string name_of(const ::testing::TestParamInfo<GdaCase>& info) {
  return std::get<0>(info.param) + "_2x" + std::to_string(std::get<1>(info.param));
}

}  // namespace cco::testing
