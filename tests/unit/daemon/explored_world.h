// A node in miniature, for an explorer of the broker's states: the real broker and recorder, GPUs
// that answer when told, processes that map what they are given, and daemons one after another.
// It knows by itself who maps what, and so what must not be freed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/state/recorder.h"
#include "tests/unit/daemon/fakes.h"
#include "tests/unit/daemon/kept_fakes.h"
#include "tests/unit/daemon/told_pool.h"

namespace cco::memd {

/// Pages with a memory of their own, which outlives daemons.
class KeptPages final : public NoticeBoard {
 public:
  struct Content {
    std::set<uint32_t> out;
    uint64_t abort_word = 0;
  };
  absl::StatusOr<std::unique_ptr<NoticePage>> create_page(uint32_t world_size) override;
  absl::StatusOr<std::unique_ptr<NoticePage>> adopt_page(UniqueFd fd) override;
  const Content& content(const NoticePage& page) const;

 private:
  std::map<uint64_t, Content> contents_;  // By inode.
};

class World {
 public:
  struct Membership {
    std::string group;
    uint32_t rank = 0;
    uint32_t size = 1;
    int gpu = 0;
  };
  struct Program {
    uint32_t uid;
    std::vector<Membership> memberships;
  };
  struct Options {
    std::vector<Program> programs;
    int gpu_count = 2;
    int units_per_gpu = 2;
  };
  explicit World(const Options& options);
  ~World();

  // What can happen. False: not now, and nothing has.
  bool attach(size_t program);
  bool resume(size_t program);
  bool cut(size_t program);   // The connection ends.
  bool exit(size_t program);  // The process does.
  bool join(size_t program, const Membership& as);
  bool leave(size_t program, const Membership& as);
  bool abort(size_t program, const Membership& as);
  bool barrier(size_t program, const Membership& as);
  struct WindowSpec {
    std::string name;
    Placement placement;
    uint64_t size_bytes;
    bool is_kept = false;  // For less than pass_time() passes.
  };
  bool create(size_t program, const Membership& as, const WindowSpec& window);
  bool destroy(size_t program, const Membership& as, const std::string& window);
  bool evict(size_t program);  // The first window that is kept for its tenant.
  bool ask_tickets(size_t program, const Membership& as);
  bool use_tickets(size_t program);  // Others try them before, in vain.
  bool trespass(size_t program);     // Tries what is not its own.
  bool answer(int gpu, bool ok);
  bool pass_time();  // Longer than anybody waits.
  bool restart();    // As after a crash.

  /// After each: the end of the round. What is wrong is in problems().
  void settle();
  /// Everybody goes; then nothing may be left.
  void wind_down();

  /// Equal for states that nothing can tell apart.
  std::string text() const;
  const Problems& problems() const { return problems_; }

 private:
  struct Daemon {
    Daemon(World& world);
    ManualExecutor executor;
    ToldPool pool;
    NoJournal journal;
    FakeProcesses processes;
    Recorder recorder;
    Broker broker;
  };
  struct Process {
    SessionId session{};  // 0: not attached.
    bool is_away = false;
    std::string token;
    std::vector<SessionId> lost;  // Whose process it is nevertheless.
    std::vector<std::string> tickets;
    std::map<uint64_t, GroupId> mapped;  // By inode.
  };
  struct Wait {
    std::string what;
    bool ended = false;
  };

  void start();
  Identity identity(size_t program) const;
  Session* session(size_t program) const;
  Group* group_of(size_t program, const Membership& as) const;
  bool is_mapped(uint64_t inode) const;
  void unmap(size_t program, const Membership& as, const Window& window);
  /// A reply that is awaited.
  template <typename Result>
  Reply<Result> awaited(const std::string& what);
  void forget_ended();
  void trespass_on(Session& session, const Group& group, uint32_t rank);

  void check();
  void check_vault();
  void check_pages(const Group& group);
  void expect(bool good, const std::string& what) {
    if (!good) problems_.push_back(what);
  }

  std::string kept_text() const;  // What outlives the daemon.
  std::string text_of(const Group& group) const;
  std::string calls_text() const;
  std::string name_of(SessionId id) const;

  Options options_;
  Problems problems_;
  MemoryStore store_;
  MemoryVault vault_;
  KeptPages pages_;
  uint64_t secrets_ = 0;
  std::vector<Process> processes_;
  std::vector<std::shared_ptr<Wait>> waits_;
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace cco::memd
