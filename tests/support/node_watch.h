// What the daemon holds, as it says itself.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cco::test {

struct NodeLedger {
  struct Gpu {
    uint64_t slab_bytes = 0;
    uint32_t slab_count = 0;
    uint64_t quarantined_bytes = 0;
    uint64_t held_bytes = 0;
    uint64_t reserved_bytes = 0;
    uint64_t kept_bytes = 0;
    friend bool operator==(const Gpu&, const Gpu&) = default;
  };
  uint32_t sessions = 0;
  uint32_t groups = 0;
  uint32_t windows = 0;
  uint32_t open_fds = 0;
  std::vector<Gpu> gpus;
  friend bool operator==(const NodeLedger&, const NodeLedger&) = default;

  uint64_t slab_bytes() const { return sum(&Gpu::slab_bytes); }
  uint64_t quarantined_bytes() const { return sum(&Gpu::quarantined_bytes); }
  uint64_t held_bytes() const { return sum(&Gpu::held_bytes); }
  uint64_t reserved_bytes() const { return sum(&Gpu::reserved_bytes); }
  uint64_t kept_bytes() const { return sum(&Gpu::kept_bytes); }
  std::string text() const;

 private:
  uint64_t sum(uint64_t Gpu::*bytes) const;  ///< Of all GPUs.
};

/// A session of its own with the daemon, kept open, so that looking changes nothing.
class NodeWatch {
 public:
  explicit NodeWatch(const std::string& socket_path);
  ~NodeWatch();

  NodeLedger now();
  bool answers();
  uint64_t busy_ms(size_t gpu);
  /// "barrier #7: …", of all groups, as `ccoctl groups` shows them.
  std::vector<std::string> pending();

  /// Looks until the ledger is `expected`, or satisfies `done`. Fewer descriptors are as good: some
  /// that were counted may have been a connection's on its way in or out.
  ::testing::AssertionResult settles_at(const NodeLedger& expected);
  template <typename Done>
  ::testing::AssertionResult becomes(Done done) {
    return look_until([&](const NodeLedger& ledger) { return done(ledger); }, "what was expected");
  }

 private:
  struct Parts;
  ::testing::AssertionResult look_until(const std::function<bool(const NodeLedger&)>& done,
                                        const std::string& expected);
  std::unique_ptr<Parts> parts_;
};

}  // namespace cco::test
