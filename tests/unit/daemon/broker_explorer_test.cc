// Every state that a broker can get into by a few steps.
//
// Goal    whatever happens in whatever order, no slab is lost, owned twice or freed twice, bytes
// add
//         up, nothing comes into another tenant's hands, every call is answered, a daemon that goes
//         on after another knows the same; and once all have gone, nothing is left.
// Method  breadth first from a node where nobody is attached, or where a group runs: each thing
// that
//         can happen, in each state, up to a depth; states that nothing can tell apart count once.
//         After each step the world (explored_world.h) is checked; from each new state everybody
//         goes. A failure names the shortest way there.
#include <gtest/gtest.h>

#include <functional>
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
    World first(world_);
    Path beginning;
    for (const std::string& name : prologue) beginning.push_back(find(name));
    happen(first, beginning);
    seen_.insert(first.text());
    paths_.push_back(beginning);
    for (size_t next = 0; next < paths_.size() && !::testing::Test::HasFailure(); ++next) {
      const Path path = paths_[next];
      if (path.size() == beginning.size() + depth) break;
      for (uint8_t event = 0; event < events_.size(); ++event) step(path, event);
    }
  }
  size_t state_count() const { return paths_.size(); }
  uint64_t step_count() const { return steps_; }

 private:
  using Path = std::vector<uint8_t>;  // Indices of events.

  uint8_t find(const std::string& name) const {
    uint8_t event = 0;
    while (events_.at(event).name != name) ++event;
    return event;
  }
  void happen(World& world, const Path& path) const {
    for (const uint8_t event : path) {
      events_[event].happen(world);
      world.settle();
    }
  }
  void step(Path path, uint8_t event) {
    World world(world_);
    happen(world, path);
    if (!events_[event].happen(world)) return;
    world.settle();
    ++steps_;
    path.push_back(event);
    const bool is_new = seen_.insert(world.text()).second;
    if (is_new && world.problems().empty()) world.wind_down();
    if (!world.problems().empty()) {
      ADD_FAILURE() << world.problems().front() << ", after:" << describe(path);
    }
    if (is_new) paths_.push_back(std::move(path));
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
void add_process(Events* events, size_t program) {
  const auto add = [&](const char* what, bool (World::*happen)(size_t)) {
    events->push_back({absl::StrCat("process ", program, " ", what),
                       [=](World& world) { return (world.*happen)(program); }});
  };
  add("attaches", &World::attach);
  add("comes back", &World::resume);
  add("loses its connection", &World::cut);
  add("exits", &World::exit);
  add("uses its tickets", &World::use_tickets);
  add("tries what is another's", &World::trespass);
  add("evicts what is kept", &World::evict);
}

void add_member(Events* events, size_t program, const World::Membership& as) {
  const auto add = [&](const char* what, bool (World::*happen)(size_t, const World::Membership&)) {
    events->push_back({absl::StrCat("process ", program, " ", what, " ", as.group, ".", as.rank),
                       [=](World& world) { return (world.*happen)(program, as); }});
  };
  add("joins", &World::join);
  add("leaves", &World::leave);
  add("aborts", &World::abort);
  add("waits in a barrier of", &World::barrier);
  add("asks for the tickets of", &World::ask_tickets);
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
    add_process(&events, program);
    for (const World::Membership& as : world.programs[program].memberships) {
      add_member(&events, program, as);
      for (const WindowSpec& window : windows) add_window(&events, program, as, window);
    }
  }
  for (int gpu = 0; gpu < world.gpu_count; ++gpu) {
    for (const bool ok : {true, false}) {
      events.push_back({absl::StrCat("GPU ", gpu, ok ? " gives memory" : " fails"),
                        [=](World& world) { return world.answer(gpu, ok); }});
    }
  }
  events.push_back({"time passes", [](World& world) { return world.pass_time(); }});
  events.push_back({"the daemon is killed, and the next one starts",
                    [](World& world) { return world.restart(); }});
  return events;
}

const WindowSpec kHeap{"w", Placement::kHeap, 40 * 1024}, kMore{"v", Placement::kHeap, 16 * 1024},
    kControl{"c", Placement::kControl, 512}, kExternal{"x", Placement::kExternal, 4096},
    kKept{"k", Placement::kHeap, 4096, true};

void explore(const World::Options& world, const std::vector<WindowSpec>& windows, size_t depth,
             const std::vector<std::string>& prologue = {}) {
  const bool is_slow = test::patience() > std::chrono::seconds(20);  // Under a sanitizer.
  Explorer explorer(world, all_events(world, windows));
  explorer.explore(prologue, is_slow ? depth - 3 : depth);
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

}  // namespace
}  // namespace cco::memd
