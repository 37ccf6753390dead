#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "device/runtime/open_driver.h"
#include "device/transport/gda_layout.h"
#include "device/transport/soft_nic_provider.h"

namespace cco {
namespace {

constexpr uint64_t kWords = 1;  // Generation of the communicator's words.
constexpr uint64_t kWordsBytes = 1 << 20;
const char* const kFormats[] = {"mlx5", "bnxt", "ionic"};

// Ranks that share this process, as one of them sees them.
class Team {
 public:
  explicit Team(uint32_t size = 2, uint32_t lsa_size = 2, uint32_t rank = 0)
      : driver_(*open_driver({.kind = DriverKind::kHost})), context_(*driver_->open(0)) {
    for (uint32_t i = 0; i < size; ++i) memory_.emplace_back(kWordsBytes / 8);
    for (std::vector<uint64_t>& words : memory_) {
      team.words.push_back(reinterpret_cast<uint64_t>(words.data()));
    }
    EXPECT_TRUE(windows_.add({kWords, kWordsBytes, team.words}).ok());
    team.context = context_.get();
    team.is_host = true;
    team.rank = rank;
    team.size = size;
    team.lsa_size = lsa_size;
    team.lsa_rank = rank % lsa_size;
    team.lsa_first = rank / lsa_size * lsa_size;
    team.words_generation = kWords;
    team.windows = &windows_;
    plan.context_count = 2;
    plan.queue_depth = 16;
    plan.state_offset = 65536;
  }

  uint64_t& word(uint32_t rank, uint64_t offset) { return memory_[rank][offset / 8]; }
  static const cco_gda_device& device(const GdaProvider& provider) {
    return *reinterpret_cast<const cco_gda_device*>(provider.device());
  }
  const cco_gda_queue& queue(const GdaProvider& provider, uint32_t peer, uint32_t context) const {
    return reinterpret_cast<const cco_gda_queue*>(
        device(provider).queues)[peer * plan.context_count + context];
  }

  TransportTeam team;
  GdaPlan plan;

 private:
  std::vector<std::vector<uint64_t>> memory_;
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<GpuContext> context_;
  WindowRegistry windows_;
};

uint32_t big_endian(uint32_t value) { return __builtin_bswap32(value); }

// An addition of 1 to offset 0 of the peer's words, as ConnectX's kernels write it.
void post_mlx5_add(const cco_gda_queue& queue, uint32_t index, uint32_t remote_key) {
  const uint32_t entry[16] = {big_endian(index << 8 | 0x12),
                              big_endian(queue.qpn << 8 | 4),
                              big_endian(8),
                              0,
                              0,
                              0,
                              big_endian(remote_key),
                              0,
                              0,
                              big_endian(1),
                              0,
                              0,
                              big_endian(8),
                              big_endian(queue.sink_key),
                              big_endian(static_cast<uint32_t>(queue.sink >> 32)),
                              big_endian(static_cast<uint32_t>(queue.sink))};
  std::memcpy(reinterpret_cast<uint8_t*>(queue.sq) + index % queue.sq_depth * 64, entry, 64);
  __atomic_store_n(reinterpret_cast<uint32_t*>(queue.doorbell_record) + 1, big_endian(index + 1),
                   __ATOMIC_RELEASE);
  const uint64_t doorbell = uint64_t{entry[1]} << 32 | entry[0];
  __atomic_store_n(reinterpret_cast<uint64_t*>(queue.doorbell), doorbell, __ATOMIC_RELEASE);
}

// The last word of the completion once its counter is `index`, else as it was after a minute.
uint32_t await_mlx5_completion(const cco_gda_queue& queue, uint32_t index) {
  const auto* const word = reinterpret_cast<const uint32_t*>(queue.cq + 60);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  uint32_t seen = 0;
  do {
    std::this_thread::yield();
    seen = big_endian(__atomic_load_n(word, __ATOMIC_ACQUIRE));
  } while (seen >> 16 != index && std::chrono::steady_clock::now() < end);
  return seen;
}

// Goal    what kernels find in the device struct is enough to post, and is served by a thread.
// Method  raw additions through each queue's own addresses; results land in the queue's sink.
TEST(NicProvider, ServesWhatItPublishes) {
  Team team;
  const auto provider = open_soft_nic("mlx5", team.team, team.plan);
  ASSERT_TRUE(provider.ok()) << provider.status();
  EXPECT_EQ((*provider)->name(), "mlx5");
  EXPECT_EQ(Team::device(**provider).provider, CCO_GDA_MLX5);
  EXPECT_EQ(Team::device(**provider).signal_slots, 1u);
  for (uint32_t context = 0; context < 2; ++context) {
    const cco_gda_queue& queue = team.queue(**provider, 1, context);
    for (uint32_t index = 0; index < 40; ++index) {
      post_mlx5_add(queue, index, window_key(kWords));
      ASSERT_EQ(await_mlx5_completion(queue, index) >> 4 & 0xf, 0u);
      EXPECT_EQ(team.word(1, 0), context * 40 + index + 1);
      EXPECT_EQ(team.word(0, queue.sink), context * 40 + index);
    }
  }
  EXPECT_TRUE((*provider)->status().ok()) << (*provider)->status();
}

// Goal    an error is told to the kernel by its completion and to the host by status().
// Method  a key that names nothing; the other queue goes on.
TEST(NicProvider, TellsErrors) {
  Team team;
  const auto provider = open_soft_nic("mlx5", team.team, team.plan);
  ASSERT_TRUE(provider.ok()) << provider.status();
  post_mlx5_add(team.queue(**provider, 1, 0), 0, 99);
  EXPECT_EQ(await_mlx5_completion(team.queue(**provider, 1, 0), 0) >> 4 & 0xf, 0xdu);
  const std::string text((*provider)->status().message());
  EXPECT_TRUE(absl::StrContains(text, "to rank 1")) << text;
  EXPECT_TRUE(absl::StrContains(text, "key 0x63 names no window")) << text;
  post_mlx5_add(team.queue(**provider, 0, 0), 0, window_key(kWords));
  EXPECT_EQ(await_mlx5_completion(team.queue(**provider, 0, 0), 0) >> 4 & 0xf, 0u);
  EXPECT_EQ(team.word(0, 0), 1u);
}

// Goal    the struct of every queue holds: numbers and places differ, sizes are as planned.
// Method  all formats; addresses of all parts of all queues in one set.
TEST(NicProvider, QueuesAreAsPlanned) {
  for (const std::string format : kFormats) {
    Team team;
    team.plan.queue_depth = 64;
    team.plan.traffic_class = 104;
    const auto provider = open_soft_nic(format, team.team, team.plan);
    ASSERT_TRUE(provider.ok()) << provider.status();
    EXPECT_TRUE(
        absl::StrContains((*provider)->describe(), "software NIC in the format of " + format));
    EXPECT_TRUE(absl::StrContains((*provider)->describe(), "2 contexts of 64 operations"));
    EXPECT_TRUE(absl::StrContains((*provider)->describe(), "traffic class 104"));
    std::set<uint64_t> places;
    std::set<uint32_t> numbers;
    for (uint32_t peer = 0; peer < 2; ++peer) {
      for (uint32_t context = 0; context < 2; ++context) {
        const cco_gda_queue& queue = team.queue(**provider, peer, context);
        EXPECT_EQ(queue.peer, peer);
        EXPECT_EQ(queue.sq_depth, format == "bnxt" ? 256u : 64u);
        EXPECT_EQ(queue.msn_depth, format == "bnxt" ? 128u : 0u);
        EXPECT_EQ(queue.doorbell_record != 0, format == "mlx5");
        EXPECT_EQ(queue.cq_depth, 1u);
        EXPECT_EQ(queue.max_message_bytes, CCO_GDA_MAX_MESSAGE_BYTES);
        EXPECT_EQ(queue.sq % 64, 0u);
        EXPECT_EQ(queue.sink_key, window_key(kWords));
        EXPECT_EQ(reinterpret_cast<cco_gda_queue_state*>(queue.state)->reserved, 0u);
        numbers.insert(queue.qpn);
        places.insert({queue.sq, queue.cq, queue.doorbell, queue.state, queue.sink, queue.error});
      }
    }
    EXPECT_EQ(numbers.size(), 4u);
    EXPECT_EQ(numbers.count(0), 0u);
    EXPECT_EQ(places.size(), 24u) << format;
  }
}

// Goal    the connection type says who is connected; who is not on this node never is, and the
//         description says so.
// Method  four ranks on two nodes, seen by rank 2, with rank 1 elsewhere.
TEST(NicProvider, ConnectsWhomThePlanNames) {
  const struct {
    uint32_t connection;
    std::vector<bool> connected;
    const char* text;
  } cases[] = {
      {CCO_GDA_CONNECT_NONE, {false, false, false, false}, "each of 0 ranks (nobody)"},
      {CCO_GDA_CONNECT_FULL, {true, false, true, true}, "not on this node: ranks 1"},
      {CCO_GDA_CONNECT_CROSS_NODE, {true, false, false, false}, "not on this node: ranks 1"},
      {CCO_GDA_CONNECT_RAIL, {true, false, false, false}, "1 ranks (ranks of its rail)"},
  };
  for (const auto& c : cases) {
    Team team(4, 2, 2);
    team.team.words[1] = 0;
    team.plan.connection = c.connection;
    const auto provider = open_soft_nic("bnxt", team.team, team.plan);
    ASSERT_TRUE(provider.ok()) << provider.status();
    for (uint32_t peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(team.queue(**provider, peer, 1).qpn != 0, c.connected[peer])
          << c.connection << " " << peer;
    }
    EXPECT_TRUE(absl::StrContains((*provider)->describe(), c.text)) << (*provider)->describe();
    EXPECT_EQ(Team::device(**provider).connection, c.connection);
  }
}

// Goal    a plan that is out of range is refused with the value and what it may be.
// Method  one wrong value at a time; the edges are accepted.
TEST(NicProvider, PlansOutOfRange) {
  const auto refusal = [](auto change, const char* name = "mlx5") {
    Team team(4, 2);
    change(team.plan, team.team);
    return std::string(open_gda(name, team.team, team.plan).status().message());
  };
  using Plan = GdaPlan;
  using T = TransportTeam;
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_TRUE(absl::StrContains(text, part)) << "'" << text << "' lacks '" << part << "'";
  };
  has(refusal([](Plan& p, T&) { p.context_count = 0; }), "context_count is 0, 1 to 64");
  has(refusal([](Plan& p, T&) { p.context_count = 65; }), "context_count is 65, at most 64");
  for (const uint32_t depth : {1u, 8u, 48u, 65536u}) {
    has(refusal([=](Plan& p, T&) { p.queue_depth = depth; }), "a power of two from 16 to 32768");
  }
  has(refusal([](Plan& p, T&) { p.queue_depth = 32768; }, "bnxt"), "with bnxt at most 16384");
  has(refusal([](Plan& p, T&) { p.traffic_class = 256; }), "traffic_class is 256, 0 to 255");
  has(refusal([](Plan& p, T&) { p.traffic_class = -2; }), "traffic_class is -2");
  has(refusal([](Plan& p, T&) { p.signal_count = 65537; }), "signal_count is 65537");
  has(refusal([](Plan& p, T&) { p.counter_count = 65537; }), "counter_count is 65537");
  has(refusal([](Plan& p, T&) { p.rail_barrier_count = 1025; }), "rail_barrier_count is 1025");
  has(refusal([](Plan& p, T&) { p.world_barrier_count = 1025; }), "world_barrier_count is 1025");
  has(refusal([](Plan& p, T&) { p.connection = 4; }), "connection is 4, at most 3");
  has(refusal([](Plan& p, T&) {
        p.connection = CCO_GDA_CONNECT_NONE;
        p.rail_barrier_count = 1;
      }),
      "barriers need connections");
  for (const uint32_t connection : {CCO_GDA_CONNECT_CROSS_NODE, CCO_GDA_CONNECT_RAIL}) {
    has(refusal([=](Plan& p, T& t) {
          p.connection = connection;
          t.lsa_size = 3;
        }),
        "4 ranks are not whole nodes of 3");
  }
  has(refusal([](Plan& p, T&) { p.state_offset = 64; }), "not aligned to 256");
  has(refusal([](Plan&, T& t) { t.words[0] = 0; }), "lacks this rank's own words");
  has(refusal([](Plan&, T&) {}, "verbs"), "no GDA provider 'verbs': proxy, mlx5, bnxt, ionic");
  EXPECT_EQ(refusal([](Plan& p, T&) { p.traffic_class = 255; }), "");
  EXPECT_EQ(refusal([](Plan& p, T&) { p.queue_depth = 32768; }, "mlx5"), "");
  EXPECT_EQ(refusal([](Plan& p, T&) { p.queue_depth = 16384; }, "bnxt"), "");
}

// Goal    each name opens its provider, and no name the proxy.
// Method  ask what was opened.
TEST(NicProvider, NamesChoose) {
  for (const std::string name : {"proxy", "mlx5", "bnxt", "ionic", ""}) {
    Team team;
    const auto provider = open_gda(name, team.team, team.plan);
    ASSERT_TRUE(provider.ok()) << provider.status();
    EXPECT_EQ((*provider)->name(), name.empty() ? "proxy" : name);
  }
}

// Goal    a test may let queues start where their counters are about to wrap.
// Method  the state that kernels share says so, and the first entry is taken there.
TEST(NicProvider, StartsWhereTheScheduleSays) {
  Team team;
  const auto provider = open_soft_nic("mlx5", team.team, team.plan, {.first_index = 0xfffe});
  ASSERT_TRUE(provider.ok()) << provider.status();
  const cco_gda_queue& queue = team.queue(**provider, 1, 0);
  const auto& state = *reinterpret_cast<const cco_gda_queue_state*>(queue.state);
  EXPECT_EQ(state.reserved, 0xfffeu);
  EXPECT_EQ(state.completed, 0xfffeu);
  EXPECT_EQ(*reinterpret_cast<const uint16_t*>(queue.cq + 60), __builtin_bswap16(0xfffd));
  post_mlx5_add(queue, 0xfffe, window_key(kWords));
  EXPECT_EQ(await_mlx5_completion(queue, 0xfffe) >> 4 & 0xf, 0u);
  EXPECT_EQ(team.word(1, 0), 1u);
}

}  // namespace
}  // namespace cco
