// Every state that a broker can get into by a few steps.
//
// Goal    whatever happens in whatever order, no slab is lost, owned twice or freed twice; bytes
//         add up, of GPUs, tenants and leases; nothing comes into the hands of another tenant that
//         has no grant; what a group shrinks into has its memory; every call is answered; a daemon
//         that goes on after another knows the same; and once all have gone, nothing is left.
// Method  breadth first from a node where nobody is attached, or where a group runs: each thing
//         that can happen, in each state, up to a depth; states that nothing can tell apart count
//         once. After each step the world (explored_world.h) is checked; from each new state
//         everybody goes. A failure names the shortest way there.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/patience.h"
#include "tests/unit/daemon/explored_world.h"

namespace cco::memd {
namespace {

struct Event {
  std::string name;
  std::function<bool(World&)> happen;
};
using Events = std::vector<Event>;

class Explorer {
 public:
  Explorer(World::Options world, Events events) : world_(std::move(world)), events_(events) {}

  /// All states that `depth` steps lead to after those of `prologue`.
  void explore(const std::vector<std::string>& prologue, size_t depth) {
    Path beginning;
    for (const std::string& name : prologue) beginning.push_back(find(name));
    seen_.insert(at(beginning)->text());
    paths_.push_back(beginning);
    for (size_t next = 0; next < paths_.size() && !::testing::Test::HasFailure(); ++next) {
      const Path path = paths_[next];
      if (path.size() == beginning.size() + depth) break;
      std::unique_ptr<World> world;  // Of use for the next event until one happens.
      for (uint8_t event = 0; event < events_.size(); ++event) {
        if (world == nullptr) world = at(path);
        if (step(world.get(), path, event)) world.reset();
      }
    }
  }
  size_t state_count() const { return paths_.size(); }
  uint64_t step_count() const { return steps_; }

 private:
  using Path = std::vector<uint8_t>;  // Indices of events.

  uint8_t find(const std::string& name) const {
    for (uint8_t event = 0; event < events_.size(); ++event) {
      if (events_[event].name == name) return event;
    }
    ADD_FAILURE() << "there is no event '" << name << "'";
    return 0;
  }
  // What is on the way has been checked when it was the end of one.
  std::unique_ptr<World> at(const Path& path) const {
    auto world = std::make_unique<World>(world_);
    for (const uint8_t event : path) {
      events_[event].happen(*world);
      world->end_round();
    }
    return world;
  }
  bool step(World* world, Path path, uint8_t event) {
    if (!events_[event].happen(*world)) return false;
    world->end_round();
    world->check();
    ++steps_;
    path.push_back(event);
    const bool is_new = seen_.insert(world->text()).second;
    if (is_new && world->problems().empty()) world->wind_down();
    if (!world->problems().empty()) {
      ADD_FAILURE() << world->problems().front() << ", after:" << describe(path);
    }
    if (is_new) paths_.push_back(std::move(path));
    return true;
  }
  std::string describe(const Path& path) const {
    std::string text;
    for (const uint8_t event : path) absl::StrAppend(&text, "\n  ", events_[event].name);
    return text;
  }

  World::Options world_;
  Events events_;
  std::unordered_set<std::string> seen_;
  std::vector<Path> paths_;  // To each state, the shortest first.
  uint64_t steps_ = 0;
};

// What processes do.
void add_process(Events* events, size_t program, bool is_operator) {
  const auto add = [&](const char* what, bool (World::*happen)(size_t)) {
    events->push_back({absl::StrCat("process ", program, " ", what),
                       [=](World& world) { return (world.*happen)(program); }});
  };
  add("attaches", &World::attach);
  add("comes back", &World::resume);
  add("loses its connection", &World::cut);
  add("exits", &World::exit);
  if (is_operator) return;  // Who may do what others may not, and has no memory.
  add("uses its tickets", &World::use_tickets);
  add("tries what is another's", &World::trespass);
  add("evicts what is kept", &World::evict);
}

void add_member(Events* events, size_t program, const World::Membership& as, bool can_shrink) {
  const auto add = [&](const char* what, bool (World::*happen)(size_t, const World::Membership&)) {
    events->push_back({absl::StrCat("process ", program, " ", what, " ", as.group, ".", as.rank),
                       [=](World& world) { return (world.*happen)(program, as); }});
  };
  add("joins", &World::join);
  add("leaves", &World::leave);
  add("aborts", &World::abort);
  add("waits in a barrier of", &World::barrier);
  add("asks for the tickets of", &World::ask_tickets);
  if (can_shrink) add("would shrink", &World::shrink);
}

// Of those for whom there are leases.
void add_leases(Events* events, size_t program, const World::Options& world) {
  for (size_t lease = 0; lease < world.leases.size(); ++lease) {
    const World::Program& one = world.programs[program];
    const std::string who = absl::StrCat("process ", program);
    if (one.is_operator) {
      events->push_back({absl::StrCat(who, " makes lease ", lease),
                         [=](World& world) { return world.make_lease(program, lease); }});
      events->push_back({absl::StrCat(who, " ends lease ", lease),
                         [=](World& world) { return world.end_lease(program, lease); }});
    }
    for (const World::Membership& as : one.memberships) {
      events->push_back({absl::StrCat(who, " joins ", as.group, ".", as.rank, " under ", lease),
                         [=](World& world) { return world.join_under(program, as, lease); }});
    }
  }
}

void add_grants(Events* events, const World::Options& world) {
  for (size_t grant = 0; grant < world.grants.size(); ++grant) {
    for (size_t program = 0; program < world.programs.size(); ++program) {
      const std::string who = absl::StrCat("process ", program);
      for (const World::Membership& as : world.programs[program].memberships) {
        const std::string what = absl::StrCat(" grant ", grant, " as ", as.group, ".", as.rank);
        if (program == world.grants[grant].to) continue;
        events->push_back({absl::StrCat(who, " gives", what),
                           [=](World& world) { return world.grant(program, as, grant); }});
        events->push_back({absl::StrCat(who, " revokes", what),
                           [=](World& world) { return world.revoke(program, as, grant); }});
      }
    }
    const std::string what = absl::StrCat(" by grant ", grant);
    events->push_back({absl::StrCat("somebody attaches", what),
                       [=](World& world) { return world.attach_by(grant); }});
    events->push_back({absl::StrCat("somebody asks for the tickets of what is attached", what),
                       [=](World& world) { return world.ask_attached(grant); }});
    events->push_back({absl::StrCat("somebody detaches what is attached", what),
                       [=](World& world) { return world.detach(grant); }});
  }
}

std::vector<std::string> after(std::vector<std::string> first,
                               const std::vector<std::string>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

using WindowSpec = World::WindowSpec;

void add_window(Events* events, size_t program, const World::Membership& as,
                const WindowSpec& window) {
  const std::string where = absl::StrCat(" ", window.name, " of ", as.group, ".", as.rank);
  events->push_back({absl::StrCat("process ", program, " makes", where),
                     [=](World& world) { return world.create(program, as, window); }});
  events->push_back({absl::StrCat("process ", program, " destroys", where),
                     [=](World& world) { return world.destroy(program, as, window.name); }});
}

Events all_events(const World::Options& world, const std::vector<WindowSpec>& windows) {
  Events events;
  for (size_t program = 0; program < world.programs.size(); ++program) {
    add_process(&events, program, world.programs[program].is_operator);
    add_leases(&events, program, world);
    for (const World::Membership& as : world.programs[program].memberships) {
      add_member(&events, program, as, world.can_shrink);
      for (const WindowSpec& window : windows) add_window(&events, program, as, window);
    }
  }
  add_grants(&events, world);
  for (int gpu = 0; gpu < world.gpu_count; ++gpu) {
    for (const bool ok : {true, false}) {
      events.push_back({absl::StrCat("GPU ", gpu, ok ? " gives memory" : " fails"),
                        [=](World& world) { return world.answer(gpu, ok); }});
    }
  }
  events.push_back({"time passes", [](World& world) { return world.pass_time(); }});
  events.push_back({"the daemon is killed, and the next one starts",
                    [](World& world) { return world.restart(); }});
  const bool keeps = std::any_of(windows.begin(), windows.end(),
                                 [](const WindowSpec& window) { return window.is_kept; });
  if (keeps || !world.leases.empty()) {
    events.push_back({"the daemon is killed, and the next one starts late",
                      [](World& world) { return world.restart_late(); }});
  }
  return events;
}

const WindowSpec kHeap{"w", Placement::kHeap, 40 * 1024}, kMore{"v", Placement::kHeap, 16 * 1024},
    kControl{"c", Placement::kControl, 512}, kExternal{"x", Placement::kExternal, 4096},
    kKept{"k", Placement::kHeap, 4096, true};

void explore(const World::Options& world, const std::vector<WindowSpec>& windows, size_t depth,
             const std::vector<std::string>& prologue = {}) {
  const bool is_slow = test::patience() > std::chrono::seconds(20);  // Under a sanitizer.
  Explorer explorer(world, all_events(world, windows));
  explorer.explore(prologue, is_slow ? depth - 2 : depth);
  ::testing::Test::RecordProperty("states", static_cast<int>(explorer.state_count()));
  ::testing::Test::RecordProperty("steps", static_cast<int>(explorer.step_count()));
}

const World::Options kPair{.programs = {{1000, {{"g", 0, 2, 0}}}, {1000, {{"g", 1, 2, 1}}}}};
const std::vector<std::string> kPairRuns{"process 0 attaches", "process 0 joins g.0",
                                         "process 1 attaches", "process 1 joins g.1",
                                         "GPU 0 gives memory", "GPU 1 gives memory"};

TEST(BrokerExplorer, OneProcessAlone) {
  explore({.programs = {{1000, {{"g", 0, 1, 0}}}}}, {kHeap, kMore, kControl, kExternal}, 10);
}

TEST(BrokerExplorer, TwoProcessesInOneGroup) { explore(kPair, {kHeap}, 10); }

TEST(BrokerExplorer, AGroupThatRuns) { explore(kPair, {kHeap, kExternal}, 6, kPairRuns); }

TEST(BrokerExplorer, AGroupThatRunsAndAStranger) {
  World::Options world = kPair;
  world.programs.push_back({2000, {{"g", 0, 1, 1}}});
  explore(world, {kHeap}, 5, kPairRuns);
}

TEST(BrokerExplorer, TwoTenantsOnOneGpu) {
  explore({.programs = {{1000, {{"g", 0, 1, 0}}}, {2000, {{"g", 0, 1, 0}}}}, .gpu_count = 1},
          {kHeap}, 10);
}

// A window that stays when all have gone, until it is found again, evicted, or its time is over.
TEST(BrokerExplorer, OneProcessKeepsAWindow) {
  explore({.programs = {{1000, {{"g", 0, 1, 0}}}}}, {kKept, kHeap}, 10);
}

TEST(BrokerExplorer, AGroupThatKeepsAWindow) { explore(kPair, {kKept}, 6, kPairRuns); }

TEST(BrokerExplorer, TwoTenantsKeepWindows) {
  explore({.programs = {{1000, {{"g", 0, 1, 0}}}, {2000, {{"g", 0, 1, 0}}}}, .gpu_count = 1},
          {kKept}, 9);
}

TEST(BrokerExplorer, OneProcessIsTwoRanks) {
  explore({.programs = {{1000, {{"g", 0, 2, 0}, {"g", 1, 2, 1}}}}}, {kHeap, kExternal}, 10);
}

const std::vector<std::string> kPairKeeps =
    after(kPairRuns, {"process 0 makes k of g.0", "process 1 makes k of g.1", "GPU 0 gives memory",
                      "GPU 1 gives memory"});

// The pair's survivor goes on with what there is, as far as its quota lets it.
TEST(BrokerExplorer, AGroupThatShrinks) {
  World::Options world = kPair;
  world.can_shrink = true;
  world.units_per_gpu = 5;
  world.quotas.bytes_per_gpu = 4 * kUnitBytes;
  explore(
      world, {kHeap, kKept}, 4,
      after(kPairKeeps, {"process 0 makes w of g.0", "process 1 makes w of g.1",
                         "GPU 0 gives memory", "GPU 1 gives memory",
                         "process 1 asks for the tickets of g.1", "process 1 uses its tickets"}));
}

// Two are left of three; one process is two ranks.
TEST(BrokerExplorer, ThreeRanksThatShrink) {
  explore({.programs = {{1000, {{"g", 0, 3, 0}, {"g", 2, 3, 1}}}, {1000, {{"g", 1, 3, 0}}}},
           .units_per_gpu = 6,
           .can_shrink = true},
          {kKept}, 4,
          {"process 0 attaches", "process 1 attaches", "process 0 joins g.0", "process 0 joins g.2",
           "process 1 joins g.1", "GPU 0 gives memory", "GPU 0 gives memory", "GPU 1 gives memory",
           "process 0 makes k of g.0", "process 0 makes k of g.2", "process 1 makes k of g.1",
           "GPU 0 gives memory", "GPU 0 gives memory", "GPU 1 gives memory",
           "process 0 asks for the tickets of g.0", "process 0 uses its tickets"});
}

// An operator keeps memory for one of two tenants; a cgroup's processes need no token.
const World::Options kLeased{.programs = {{1000, {{"g", 0, 1, 0}}, false, "/jobs/a"},
                                          {2000, {{"g", 0, 1, 0}}},
                                          {0, {}, true}},
                             .gpu_count = 1,
                             .units_per_gpu = 3,
                             .quotas = {.bytes_per_gpu = 2 * kUnitBytes},
                             .leases = {{2, "", "/jobs"}, {1, "uid-2000", ""}}};

TEST(BrokerExplorer, LeasesFromNothing) { explore(kLeased, {kKept}, 7, {"process 2 attaches"}); }

TEST(BrokerExplorer, AGroupUnderALease) {
  explore(kLeased, {kKept}, 5,
          {"process 2 attaches", "process 2 makes lease 0", "process 0 attaches",
           "process 0 joins g.0", "GPU 0 gives memory", "process 0 makes k of g.0",
           "GPU 0 gives memory", "process 1 attaches"});
}

TEST(BrokerExplorer, AGroupUnderALeaseThatShrinks) {
  World::Options world = kPair;
  world.can_shrink = true;
  world.units_per_gpu = 4;
  world.programs.push_back({0, {}, true});
  world.leases = {{3, "", ""}};
  explore(world, {kKept}, 4,
          {"process 2 attaches", "process 2 makes lease 0", "process 0 attaches",
           "process 1 attaches", "process 0 joins g.0 under 0", "process 1 joins g.1 under 0",
           "GPU 0 gives memory", "GPU 1 gives memory", "process 0 makes k of g.0",
           "process 1 makes k of g.1", "GPU 0 gives memory", "GPU 1 gives memory"});
}

// Who is attached to a window outlives whatever becomes of it; two may be, and not alike.
TEST(BrokerExplorer, AWindowThatIsGranted) {
  explore({.programs = {{1000, {{"g", 0, 1, 0}}}, {2000}, {3000}},
           .gpu_count = 1,
           .units_per_gpu = 3,
           .grants = {{"k", 1, Access::kReadOnly}, {"k", 2, Access::kReadWrite}}},
          {kKept}, 5,
          {"process 0 attaches", "process 0 joins g.0", "GPU 0 gives memory",
           "process 0 makes k of g.0", "GPU 0 gives memory", "process 1 attaches",
           "process 2 attaches", "process 0 gives grant 0 as g.0", "somebody attaches by grant 0"});
}

TEST(BrokerExplorer, AGrantedWindowOfAGroupThatShrinks) {
  World::Options world = kPair;
  world.can_shrink = true;
  world.units_per_gpu = 4;
  world.programs.push_back({2000});
  world.grants = {{"k", 2, Access::kReadWrite}};
  explore(world, {kKept}, 4,
          after(kPairKeeps, {"process 2 attaches", "process 1 gives grant 0 as g.1",
                             "somebody attaches by grant 0"}));
}

}  // namespace
}  // namespace cco::memd
