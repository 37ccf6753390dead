#include "client/src/comm_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "client/src/transports.h"

namespace cco::client {
namespace {

constexpr uint32_t kBoth = CCO_TRANSPORT_SDMA | CCO_TRANSPORT_GDA;

cco_comm_options options(uint32_t transports = 0) {
  cco_comm_options result{};
  result.struct_size = sizeof result;
  result.signal_count = 3;
  result.barrier_count = 2;
  result.transports = transports;
  result.gda_traffic_class = -1;
  return result;
}

/// Sets a variable for as long as it lives; null unsets it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (value == nullptr) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value, 1);
    }
  }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

// Goal    zero asks for LSA and TDM alone; what is asked for gets the documented defaults.
TEST(CommOptions, Defaults) {
  auto resolved = resolve_comm_options(options());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->signal_count, 3u);
  EXPECT_EQ(resolved->barrier_count, 2u);
  EXPECT_EQ(resolved->timeout.count(), 60000);
  EXPECT_FALSE(resolved->sdma.has_value());
  EXPECT_FALSE(resolved->gda.has_value());

  resolved = resolve_comm_options(options(kBoth));
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->sdma->queue_count, 2u);
  EXPECT_EQ(resolved->sdma_provider, "");
  EXPECT_EQ(resolved->gda->connection, CCO_GDA_CONNECT_FULL);
  EXPECT_EQ(resolved->gda->context_count, 4u);
  EXPECT_EQ(resolved->gda->traffic_class, -1);
  EXPECT_EQ(resolved->gda->world_barrier_first, 2u) << "after the user's LSA barriers";
}

// Goal    what is out of range is refused, by name and limit; so are barriers without a transport.
TEST(CommOptions, BadOnesSayWhy) {
  struct Case {
    uint32_t transports;
    std::function<void(cco_comm_options&)> spoil;
    std::string says;
  };
  const std::vector<Case> cases = {
      {0, [](auto& o) { o.signal_count = 65537; }, "signal_count is 65537; the limit is 65536"},
      {0, [](auto& o) { o.barrier_count = 4097; }, "barrier_count is 4097; the limit is 4096"},
      {0, [](auto& o) { o.transports = 0x10; }, "transports is 0x10"},
      {0, [](auto& o) { o.rail_barrier_count = 1; }, "without CCO_TRANSPORT_GDA"},
      {CCO_TRANSPORT_SDMA, [](auto& o) { o.world_barrier_count = 1; }, "without CCO_TRANSPORT_GDA"},
      {kBoth, [](auto& o) { o.sdma_queue_count = 9; }, "sdma_queue_count is 9; the limit is 8"},
      {kBoth, [](auto& o) { o.gda_signal_count = 65537; }, "gda_signal_count is 65537"},
      {kBoth, [](auto& o) { o.gda_counter_count = 65537; }, "gda_counter_count is 65537"},
      {kBoth, [](auto& o) { o.rail_barrier_count = 4097; }, "rail_barrier_count is 4097"},
      {kBoth, [](auto& o) { o.world_barrier_count = 4097; }, "world_barrier_count is 4097"},
  };
  for (const Case& c : cases) {
    cco_comm_options given = options(c.transports);
    c.spoil(given);
    const auto resolved = resolve_comm_options(given);
    EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_NE(std::string(resolved.status().message()).find(c.says), std::string::npos)
        << resolved.status();
  }
}

// Goal    a provider is the caller's word, else the variable's; a variable that is set and empty is
//         an error, but only where it counts.
TEST(CommOptions, ProviderByOptionThenEnvironment) {
  const Variable sdma("CCO_SDMA_PROVIDER", "host");
  const Variable gda("CCO_GDA_PROVIDER", "bnxt");
  cco_comm_options given = options(kBoth);
  auto resolved = resolve_comm_options(given);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->sdma_provider, "host");
  EXPECT_EQ(resolved->gda_provider, "bnxt");
  given.sdma_provider = "copy-engine";
  given.gda_provider = "proxy";
  resolved = resolve_comm_options(given);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->sdma_provider, "copy-engine");
  EXPECT_EQ(resolved->gda_provider, "proxy");

  for (const char* const name : {"CCO_SDMA_PROVIDER", "CCO_GDA_PROVIDER"}) {
    const Variable empty(name, "");
    EXPECT_TRUE(resolve_comm_options(options()).ok());
    const auto refused = resolve_comm_options(options(kBoth));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(refused.status().message()).find(name), std::string::npos)
        << refused.status();
  }
}

using Part = std::pair<uint64_t, uint64_t>;  // Offset, bytes.

std::vector<Part> parts_of(const Topology& topology, const CommOptions& options,
                           const CommLayout& layout) {
  const uint32_t world_barriers = options.gda.has_value() ? options.gda->world_barrier_count : 0;
  std::vector<Part> parts = {
      {layout.signal_offset, 8 * uint64_t{options.signal_count}},
      {layout.barrier_offset,
       8 * uint64_t{options.barrier_count + world_barriers} * (topology.lsa_size + 1)},
      {layout.descriptor_offset, sizeof(cco_device_comm)}};
  if (options.sdma.has_value()) {
    const SdmaPlan& plan = *options.sdma;
    parts.push_back({plan.signal_offset, sdma_signal_bytes(topology.lsa_size, plan.queue_count)});
    parts.push_back({plan.state_offset, sdma_state_bytes(topology.lsa_size, plan.queue_count)});
  }
  if (options.gda.has_value()) {
    const GdaPlan& plan = *options.gda;
    parts.push_back({plan.signal_offset, gda_signal_bytes(plan, topology.size, topology.lsa_size)});
    parts.push_back({plan.state_offset, gda_state_bytes(plan, topology.size, topology.lsa_size)});
  }
  if (options.sdma.has_value() || options.gda.has_value()) {
    parts.push_back({layout.proof_offset, proof_bytes(topology.size)});
  }
  return parts;
}

// Goal    no two parts overlap or share a 256-byte line, and all lie inside.
// Method  every set of transports, with counts that are no multiples of anything.
TEST(CommLayout, PartsAreApart) {
  Topology topology;
  topology.size = 6;
  topology.lsa_size = 3;
  for (const uint32_t transports : {0u, CCO_TRANSPORT_SDMA, CCO_TRANSPORT_GDA, kBoth}) {
    cco_comm_options given = options(transports);
    given.signal_count = 37;
    given.barrier_count = 5;
    given.sdma_queue_count = 3;
    given.gda_context_count = 5;
    given.gda_signal_count = 11;
    given.gda_counter_count = 7;
    if ((transports & CCO_TRANSPORT_GDA) != 0) given.rail_barrier_count = 3;
    if ((transports & CCO_TRANSPORT_GDA) != 0) given.world_barrier_count = 2;
    auto resolved = resolve_comm_options(given);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    const CommLayout layout = lay_out(topology, &*resolved);
    std::vector<Part> parts = parts_of(topology, *resolved, layout);
    std::sort(parts.begin(), parts.end());
    uint64_t end = 0;
    for (const auto& [offset, bytes] : parts) {
      EXPECT_EQ(offset % 256, 0u);
      EXPECT_GE(offset, end) << "transports " << transports;
      EXPECT_GT(bytes, 0u);
      end = offset + bytes;
    }
    EXPECT_GE(layout.size_bytes, end);
  }
}

// Goal    options that ranks must share are told apart, though the parts may take as many bytes.
TEST(CommLayout, FingerprintsDiffer) {
  const std::vector<std::function<void(cco_comm_options&)>> changes = {
      [](auto&) {},
      [](auto& o) { o.signal_count += 1; },
      [](auto& o) { o.barrier_count += 1; },
      [](auto& o) { o.sdma_queue_count = 3; },
      [](auto& o) { o.gda_connection = CCO_GDA_CONNECT_RAIL; },
      [](auto& o) { o.gda_context_count = 5; },
      [](auto& o) { o.gda_signal_count = 1; },
      [](auto& o) { o.rail_barrier_count = 1; },
      [](auto& o) { o.world_barrier_count = 1; },
      [](auto& o) { o.gda_provider = "mlx5"; },
      [](auto& o) { o.gda_provider = "bnxt"; },
  };
  std::map<uint64_t, size_t> seen;
  for (size_t i = 0; i < changes.size(); ++i) {
    cco_comm_options given = options(kBoth);
    changes[i](given);
    const auto resolved = resolve_comm_options(given);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    const uint64_t print = fingerprint(*resolved);
    EXPECT_GE(print, 1u);
    EXPECT_LE(print, 255u);
    const auto [first, is_new] = seen.emplace(print, i);
    EXPECT_TRUE(is_new) << "changes " << first->second << " and " << i;
  }
}

}  // namespace
}  // namespace cco::client
