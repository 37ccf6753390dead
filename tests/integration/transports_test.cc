// Communicators with SDMA and GDA: what is made, what is refused and how, what people are shown,
// and that nothing stays behind.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cco/device.hpp"
#include "cco/device/gda.h"
#include "cco/device/sdma.h"
#include "tests/integration/ccoctl.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using device::Deadline;
using device::Gda;
using device::Sdma;
using device::ThreadCoop;
using device::WaitStatus;

constexpr uint32_t kBoth = CCO_TRANSPORT_SDMA | CCO_TRANSPORT_GDA;
constexpr uint64_t kLongNs = 60'000'000'000;

class TransportsTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
};

Group::Options group_options(uint32_t rank, uint32_t size, uint32_t lsa_size = 0) {
  Group::Options options;
  options.rank = rank;
  options.size = size;
  options.device = static_cast<int32_t>(rank % 4);
  options.name = "job";
  options.lsa_size = lsa_size;
  return options;
}

/// All ranks of a group, threads of this process.
struct Team {
  std::vector<Group> groups;
  std::vector<Comm> comms;

  Team(const Client& client, uint32_t size, uint32_t lsa_size = 0) : groups(size), comms(size) {
    EXPECT_TRUE(all_succeeded(on_threads(size, [&](uint32_t rank) {
      return Group::create(client, group_options(rank, size, lsa_size), &groups[rank]);
    })));
  }
  uint32_t size() const { return static_cast<uint32_t>(groups.size()); }
  /// `options_of(rank)`
  template <typename OptionsOf>
  std::vector<Outcome> make_comms(OptionsOf options_of) {
    return on_threads(size(), [&](uint32_t rank) {
      return Comm::create(groups[rank], options_of(rank), &comms[rank]);
    });
  }
  std::vector<Outcome> make_comms(const Comm::Options& options) {
    return make_comms([&](uint32_t) { return options; });
  }
  cco_device_comm device(uint32_t rank) const {
    cco_device_comm device{};
    EXPECT_TRUE(succeeded(comms[rank].get_device(&device)));
    return device;
  }
};

Comm::Options both(const char* sdma = nullptr, const char* gda = nullptr) {
  Comm::Options options;
  options.transports = kBoth;
  options.sdma_provider = sdma;
  options.gda_provider = gda;
  return options;
}

// A rank that sends its number to the next by SDMA and to the one before by GDA.
void send_both_ways(Rank& rank) {
  const Client client = attach(rank);
  const Group group = join(client, rank);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(group, nullptr, {.size_bytes = 64}, &window)));
  Comm comm;
  ASSERT_TRUE(succeeded(Comm::create(group, both(), &comm)));
  cco_device_comm device{};
  cco_window_device view{};
  ASSERT_TRUE(succeeded(comm.get_device(&device)));
  ASSERT_TRUE(succeeded(window.get_device(&view)));
  EXPECT_EQ(device.transports, CCO_TRANSPORT_LSA | CCO_TRANSPORT_TDM | kBoth);
  uint64_t* mine = nullptr;
  ASSERT_TRUE(succeeded(window.get_address(rank.rank, 0, &mine)));
  *mine = 100 + rank.rank;

  const uint32_t next = (rank.rank + 1) % rank.size,
                 before = (rank.rank + rank.size - 1) % rank.size;
  const Deadline deadline = Deadline::after(device, kLongNs);
  const Sdma sdma(device);
  const Gda gda(device, 0);
  const device::Place own = device::at(view, 0);
  EXPECT_EQ(sdma.read_signal(before, 0), 0u) << "the self-test's signals are forgotten";
  EXPECT_EQ(gda.read_signal(0), 0u);
  ASSERT_TRUE(succeeded(group.barrier()));
  EXPECT_EQ(sdma.put<device::kSdmaSignalRemote>(ThreadCoop{}, next, device::at(view, 8), own, 8, 0,
                                                deadline)
                .status,
            WaitStatus::kArrived);
  EXPECT_EQ(
      gda.put(ThreadCoop{}, before, device::at(view, 16), own, 8, {deadline, device::SignalInc{0}})
          .status,
      WaitStatus::kArrived);
  EXPECT_EQ(sdma.wait_signal(ThreadCoop{}, before, 0, 1, deadline).status, WaitStatus::kArrived);
  EXPECT_EQ(gda.wait_signal(ThreadCoop{}, 0, 1, deadline).status, WaitStatus::kArrived);
  EXPECT_EQ(mine[1], 100 + before);
  EXPECT_EQ(mine[2], 100 + next);
  EXPECT_EQ(sdma.quiet(ThreadCoop{}, next, deadline).status, WaitStatus::kArrived);
  EXPECT_EQ(gda.flush(ThreadCoop{}, deadline).status, WaitStatus::kArrived);
  EXPECT_EQ(sdma.read_signal(before, 0), 1u);
  EXPECT_TRUE(succeeded(comm.check()));
  EXPECT_TRUE(succeeded(group.barrier()));
}

// Goal    processes get what they ask for from a daemon, and bytes and signals cross them.
TEST_F(TransportsTest, ProcessesByEveryProvider) {
  for (const char* const gda : {"proxy", "mlx5", "bnxt", "ionic"}) {
    Ranks::Options options = ranks();
    options.environment = {
        {"CCO_GDA_PROVIDER", gda},
        {"CCO_SDMA_PROVIDER", std::string(gda) == "proxy" ? "copy-engine" : "host"}};
    run_ranks(3, send_both_ways, options);
  }
  run_ranks(3, send_both_ways, ranks());  // The best that works.
}

/// By rank, peer and transport: the provider. From the table.
std::map<std::tuple<int, int, std::string>, std::string> shown(const std::string& socket_path) {
  std::map<std::tuple<int, int, std::string>, std::string> rows;
  const std::string table = ccoctl(socket_path, {"transports", "job"});
  for (const auto& line : absl::StrSplit(table, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 5 || words[0] == "GROUP") continue;
    rows[{std::atoi(words[1].c_str()), std::atoi(words[2].c_str()), words[3]}] = words[4];
  }
  return rows;
}

// Goal    every pair of ranks is shown with the provider of each transport, or "none" and why.
// Method  two nodes of two ranks, GDA along the rails alone; the table, then JSON.
TEST_F(TransportsTest, EveryPairIsShown) {
  const Client client = attach();
  Team team(client, 4, 2);
  Comm::Options options = both("copy-engine", "bnxt");
  options.gda_connection = CCO_GDA_CONNECT_RAIL;
  ASSERT_TRUE(all_succeeded(team.make_comms(options)));
  const auto rows = shown(daemon->socket_path());
  EXPECT_EQ(rows.size(), 4u * 4u * 4u);
  for (int rank = 0; rank < 4; ++rank) {
    for (int peer = 0; peer < 4; ++peer) {
      const bool near = rank / 2 == peer / 2;
      const bool rail = !near && rank % 2 == peer % 2;
      EXPECT_EQ(rows.at({rank, peer, "lsa"}), near ? "load/store" : "none") << rank << peer;
      EXPECT_EQ(rows.at({rank, peer, "sdma"}), near ? "copy-engine" : "none") << rank << peer;
      EXPECT_EQ(rows.at({rank, peer, "tdm"}), near ? "host" : "none") << rank << peer;
      EXPECT_EQ(rows.at({rank, peer, "gda"}), rail ? "bnxt" : "none") << rank << peer;
    }
  }
  const std::string json = ccoctl(daemon->socket_path(), {"transports", "job", "--json"});
  size_t pairs = 0;
  for (size_t at = json.find("\"transport\""); at != std::string::npos;
       at = json.find("\"transport\"", at + 1)) {
    ++pairs;
  }
  EXPECT_EQ(pairs, 64u);
  EXPECT_NE(json.find("software NIC in the format of bnxt"), std::string::npos);
  EXPECT_NE(json.find("not connected, as asked for"), std::string::npos);
  EXPECT_NE(json.find("on another node: this group's nodes have 2 ranks"), std::string::npos);
  EXPECT_NE(json.find("self-test of all queues"), std::string::npos);
  EXPECT_EQ(json.find("signals were not tried"), std::string::npos);
}

// Goal    what the self-test has left out is shown: a signal, where there is none to try.
TEST_F(TransportsTest, WhatWasNotTriedIsShown) {
  const Client client = attach();
  Team team(client, 2);
  Comm::Options options = both("host", "proxy");
  options.gda_signal_count = 0;
  ASSERT_TRUE(all_succeeded(team.make_comms(options)));
  const std::string text = ccoctl(daemon->socket_path(), {"transports"});
  EXPECT_NE(text.find("signals were not tried, as gda_signal_count is 0"), std::string::npos);
}

// Goal    a transport that one rank cannot have is an error on all: there it says what was tried,
//         elsewhere who lacks it, and ccoctl shows it.
TEST_F(TransportsTest, OneRankLacksIt) {
  const Client client = attach();
  Team team(client, 3);
  const std::vector<Outcome> outcomes =
      team.make_comms([&](uint32_t rank) { return both(rank == 1 ? "pigeon" : "host", "proxy"); });
  EXPECT_TRUE(refused(outcomes[1], CCO_INVALID_ARGUMENT,
                      {"rank 1 has no sdma", "'pigeon'", "user-queue", "copy-engine", "host",
                       "ccoctl transports"}));
  for (const uint32_t rank : {0u, 2u}) {
    EXPECT_TRUE(refused(outcomes[rank], CCO_FAILED_PRECONDITION,
                        {"rank 1 lacks a transport", "ccoctl transports"}));
    EXPECT_EQ(outcomes[rank].rank, 1);
  }
  EXPECT_EQ(shown(daemon->socket_path()).at({1, 2, "sdma"}), "none");
  // The group goes on.
  EXPECT_TRUE(all_succeeded(team.make_comms(both("host", "proxy"))));
  EXPECT_EQ(shown(daemon->socket_path()).at({1, 2, "sdma"}), "host");
}

// Goal    no provider of that name, or none that works here: the text lists what there is or what
//         was tried; by option and by environment.
TEST_F(TransportsTest, ProvidersThatAreNotToBeHad) {
  const Client client = attach();
  Team team(client, 2);
  for (const Outcome& outcome : team.make_comms(both("host", "pigeon"))) {
    EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT,
                        {"no gda", "'pigeon'", "proxy", "mlx5", "bnxt", "ionic"}));
  }
  for (const Outcome& outcome : team.make_comms(both("user-queue", "proxy"))) {
    EXPECT_TRUE(refused(outcome, CCO_FAILED_PRECONDITION, {"no sdma", "user queues need"}));
  }
  ::setenv("CCO_GDA_PROVIDER", "owl", 1);
  for (const Outcome& outcome : team.make_comms(both())) {
    EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT, {"no gda", "'owl'"}));
  }
  ::setenv("CCO_GDA_PROVIDER", "", 1);
  for (const Outcome& outcome : team.make_comms(both())) {
    EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT, {"CCO_GDA_PROVIDER is set and empty"}));
  }
  ::unsetenv("CCO_GDA_PROVIDER");
  EXPECT_TRUE(all_succeeded(team.make_comms(both())));
}

// Goal    ranks that disagree on anything they must share all get one error, which names the first
//         that differs.
TEST_F(TransportsTest, RanksThatDisagree) {
  const Client client = attach();
  Team team(client, 3);
  const std::vector<void (*)(Comm::Options&)> changes = {
      [](Comm::Options& o) { o.transports = CCO_TRANSPORT_GDA; },
      [](Comm::Options& o) { o.transports = 0; },
      [](Comm::Options& o) { o.sdma_queue_count = 3; },
      [](Comm::Options& o) { o.gda_context_count = 3; },
      [](Comm::Options& o) { o.gda_connection = CCO_GDA_CONNECT_RAIL; },
      [](Comm::Options& o) { o.gda_signal_count = 17; },
      [](Comm::Options& o) { o.rail_barrier_count = 1; },
      [](Comm::Options& o) { o.world_barrier_count = 1; },
      [](Comm::Options& o) { o.gda_provider = "mlx5"; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    const std::vector<Outcome> outcomes = team.make_comms([&](uint32_t rank) {
      Comm::Options options = both("host", "bnxt");
      if (rank == 2) changes[i](options);
      return options;
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT, {"rank 2"})) << "change " << i;
      EXPECT_EQ(outcome.rank, 2) << "change " << i;
    }
  }
  EXPECT_TRUE(all_succeeded(team.make_comms(both())));
}

// Goal    what is out of range is refused on every rank, by name and with the limit; nothing hangs.
TEST_F(TransportsTest, Limits) {
  const Client client = attach();
  Team team(client, 2);
  struct Case {
    void (*spoil)(Comm::Options&);
    const char* says;
  };
  const std::vector<Case> cases = {
      {[](Comm::Options& o) { o.sdma_queue_count = 9; }, "sdma_queue_count is 9"},
      {[](Comm::Options& o) { o.gda_context_count = 65; }, "65"},
      {[](Comm::Options& o) { o.gda_queue_depth = 100; }, "100"},
      {[](Comm::Options& o) { o.gda_queue_depth = 65536; }, "65536"},
      {[](Comm::Options& o) { o.gda_traffic_class = 256; }, "256"},
      {[](Comm::Options& o) { o.gda_connection = 4; }, "4"},
      {[](Comm::Options& o) { o.gda_signal_count = 70000; }, "gda_signal_count is 70000"},
      {[](Comm::Options& o) { o.transports = 0x10; }, "transports is 0x10"},
  };
  for (const Case& c : cases) {
    for (const Outcome& outcome : team.make_comms([&](uint32_t) {
           Comm::Options options = both("host", "proxy");
           c.spoil(options);
           return options;
         })) {
      EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT, {c.says}));
    }
  }
  Comm::Options largest = both("host", "proxy");
  largest.sdma_queue_count = 8;
  largest.gda_context_count = 64;
  largest.gda_queue_depth = 16;
  EXPECT_TRUE(all_succeeded(team.make_comms(largest)));
}

// Goal    an operation that fails behind the kernel's back is told to the host, and with whom.
// Method  a put to a window that was destroyed, by a copy of its descriptor; every provider.
TEST_F(TransportsTest, FailuresAreToldToTheHost) {
  const Client client = attach();
  for (const auto& [sdma, gda] :
       std::vector<std::pair<const char*, const char*>>{{nullptr, "proxy"},
                                                        {nullptr, "mlx5"},
                                                        {nullptr, "bnxt"},
                                                        {nullptr, "ionic"},
                                                        {"host", nullptr},
                                                        {"copy-engine", nullptr}}) {
    const std::string name = gda != nullptr ? gda : sdma;
    Team team(client, 2);
    Comm::Options options = both(sdma, gda);
    options.transports = gda != nullptr ? CCO_TRANSPORT_GDA : CCO_TRANSPORT_SDMA;
    ASSERT_TRUE(all_succeeded(team.make_comms(options))) << name;
    std::vector<Window> windows = form_window(team.groups, "w", {.size_bytes = 4096});
    cco_window_device stale{};
    ASSERT_TRUE(succeeded(windows[0].get_device(&stale)));
    windows.clear();
    const cco_device_comm device = team.device(0);
    const Deadline deadline = Deadline::after(device, kLongNs);
    const device::Place place = device::at(stale, 0);
    EXPECT_TRUE(succeeded(team.comms[0].check())) << name;
    if (gda != nullptr) {
      const Gda context(device, 0);
      EXPECT_EQ(context.put(ThreadCoop{}, 1, place, place, 8, {deadline}).status,
                WaitStatus::kArrived);
      const device::WaitResult flushed = context.flush(ThreadCoop{}, 1, deadline);
      EXPECT_EQ(flushed.status, WaitStatus::kFailed) << name;
      EXPECT_EQ(flushed.rank, 1u) << name;
    } else {
      EXPECT_EQ(Sdma(device).put(ThreadCoop{}, 1, place, place, 8, 0, deadline).status,
                WaitStatus::kArrived);
      const device::WaitResult quiet = Sdma(device).quiet(ThreadCoop{}, 1, deadline);
      EXPECT_EQ(quiet.status, WaitStatus::kFailed) << name;
      EXPECT_EQ(quiet.rank, 1u) << name;
    }
    const Stopwatch time;
    cco_status status = CCO_OK;
    while ((status = team.comms[0].check()) == CCO_OK && time.elapsed() < patience()) {
      std::this_thread::yield();
    }
    const Outcome told = outcome(status);
    EXPECT_TRUE(refused(told, CCO_INTERNAL, {"rank 1"})) << name;
    EXPECT_EQ(told.rank, 1) << name;
    EXPECT_TRUE(succeeded(team.comms[1].check())) << name;
  }
}

// Goal    LSA teams smaller than the node: as asked for by option or variable; whoever asks for
//         nonsense, or differs, is told.
TEST_F(TransportsTest, LsaSize) {
  const Client client = attach();
  const auto form = [&](const std::vector<uint32_t>& lsa_sizes, std::vector<Group>* groups) {
    groups->clear();
    groups->resize(lsa_sizes.size());
    return on_threads(static_cast<uint32_t>(lsa_sizes.size()), [&](uint32_t rank) {
      return Group::create(
          client, group_options(rank, static_cast<uint32_t>(lsa_sizes.size()), lsa_sizes[rank]),
          &(*groups)[rank]);
    });
  };
  std::vector<Group> groups;
  for (const Outcome& outcome : form({3, 3, 3, 3}, &groups)) {
    EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT, {"lsa_size is 3", "divisor", "4"}));
  }
  for (const Outcome& outcome : form({2, 2, 2, 1}, &groups)) {
    EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT, {"rank 3", "lsa_size"}));
    EXPECT_EQ(outcome.rank, 3);
  }
  for (const char* const wrong : {"", "two", "0", "-1", "3"}) {
    ::setenv("CCO_LSA_SIZE", wrong, 1);
    for (const Outcome& outcome : form({0, 0, 0, 0}, &groups)) {
      EXPECT_TRUE(refused(outcome, CCO_INVALID_ARGUMENT, {"CCO_LSA_SIZE"})) << wrong;
    }
  }
  for (const uint32_t asked : {0u, 4u}) {
    ::setenv("CCO_LSA_SIZE", "2", 1);
    ASSERT_TRUE(all_succeeded(form(std::vector<uint32_t>(4, asked), &groups)));
    for (uint32_t rank = 0; rank < 4; ++rank) {
      cco_group_info info{};
      ASSERT_TRUE(succeeded(groups[rank].get_info(&info)));
      const uint32_t lsa_size = asked == 0 ? 2 : asked;
      EXPECT_EQ(info.lsa_size, lsa_size);
      EXPECT_EQ(info.lsa_rank, rank % lsa_size);
      EXPECT_EQ(info.lsa_first, rank - rank % lsa_size);
    }
  }
  ::unsetenv("CCO_LSA_SIZE");
}

struct Held {
  size_t threads = 0;
  size_t engines = 0;  ///< Threads that serve transports.
  size_t fds = 0;
};
Held held() {
  Held held;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    ++held.threads;
    if (name == "cco-engine") ++held.engines;
  }
  held.fds = count_open_fds(::getpid());
  return held;
}

/// What this process holds is what it held `before`, soon: threads that have ended may still be
/// listed. gRPC has a few threads more or less.
::testing::AssertionResult holds_no_more_than(const Held& before) {
  constexpr size_t kGrpcThreads = 8;
  const auto settled = [&](const Held& now) {
    return now.engines == before.engines && now.fds <= before.fds &&
           now.threads <= before.threads + kGrpcThreads;
  };
  const Stopwatch time;
  Held now = held();
  while (!settled(now) && time.elapsed() < patience()) {
    std::this_thread::yield();
    now = held();
  }
  if (settled(now)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << now.threads << " threads, " << now.engines << " of engines, and " << now.fds
         << " fds instead of " << before.threads << ", " << before.engines << " and " << before.fds;
}

// Goal    communicators come and go without leaving threads or fds.
TEST_F(TransportsTest, FiftyTimesOver) {
  const Client client = attach();
  Team team(client, 2);
  const auto once = [&](const char* sdma, const char* gda) {
    ASSERT_TRUE(all_succeeded(team.make_comms(both(sdma, gda))));
    for (Comm& comm : team.comms) comm = Comm();
  };
  once("host", "proxy");  // gRPC's threads are there now.
  const Held before_all = held();
  EXPECT_EQ(before_all.engines, 0u);
  const char* const kGda[] = {"proxy", "mlx5", "bnxt", "ionic"};
  for (int i = 0; i < 50; ++i) once(i % 2 == 0 ? "host" : "copy-engine", kGda[i % 4]);
  EXPECT_TRUE(holds_no_more_than(before_all));
}

// Goal    in whatever order a program ends things, no thread of a transport and no fd is left.
// Method  the communicator first, the group first, the client first; handles ended late are void.
TEST_F(TransportsTest, EndsInAnyOrder) {
  const auto make = [&](Client* client) {
    *client = attach();
    auto team = std::make_unique<Team>(*client, 2);
    EXPECT_TRUE(all_succeeded(team->make_comms(both("host", "mlx5"))));
    return team;
  };
  {
    Client client;
    const auto team = make(&client);
    EXPECT_GE(held().engines, 4u) << "two ranks, two transports";
  }
  const Held before_all = held();
  for (const std::string order : {"comm", "group", "client"}) {
    Client client;
    auto team = make(&client);
    if (order == "client") client = Client();
    if (order == "group") team->groups.clear();
    team->comms.clear();
    team.reset();
    client = Client();
    EXPECT_TRUE(holds_no_more_than(before_all)) << order << " first";
    EXPECT_TRUE(nothing_left()) << order << " first";
  }
}

}  // namespace
}  // namespace cco::test
