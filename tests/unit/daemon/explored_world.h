// A node in miniature, for an explorer of the broker's states: the real broker and recorder, GPUs
// that answer when told, processes that map what they are given, and daemons one after another.
// It knows by itself who maps what, and so what must not be freed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

  std::function<UniqueFd()> make_file;  // Never the same file twice.

 private:
  std::map<uint64_t, Content> contents_;  // By inode.
};

class World {
 public:
  struct Membership {  // A process's ranks in one group are on different GPUs.
    std::string group;
    uint32_t rank = 0;
    uint32_t size = 1;
    int gpu = 0;
  };
  struct Program {
    uint32_t uid;
    std::vector<Membership> memberships = {};
    bool is_operator = false;
    std::string cgroup = {};
  };
  struct LeaseSpec {  // On all GPUs, for less than pass_time() passes.
    int units_per_gpu = 1;
    std::string tenant = {};
    std::string cgroup = {};
  };
  struct GrantSpec {
    std::string window;  // That is kept.
    size_t to = 0;       // Program.
    Access access = Access::kReadOnly;
  };
  struct Options {
    std::vector<Program> programs;
    int gpu_count = 2;
    int units_per_gpu = 2;
    bool can_shrink = false;  // Groups.
    Quotas quotas = {};       // Of each user.
    std::vector<LeaseSpec> leases = {};
    std::vector<GrantSpec> grants = {};
  };
  explicit World(const Options& options);
  ~World();

  // What can happen. False: not now, and nothing has.
  bool attach(size_t program);
  bool resume(size_t program);
  bool cut(size_t program);                         // The connection ends.
  bool exit(size_t program);                        // The process does.
  bool join(size_t program, const Membership& as);  // Under the lease of its cgroup, if any.
  bool join_under(size_t program, const Membership& as, size_t lease);  // By the last one's token.
  bool leave(size_t program, const Membership& as);
  bool abort(size_t program, const Membership& as);
  bool barrier(size_t program, const Membership& as);
  bool shrink(size_t program, const Membership& as);
  struct WindowSpec {
    std::string name;
    Placement placement;
    uint64_t size_bytes;
    bool is_kept = false;  // For less than pass_time() passes.
  };
  bool create(size_t program, const Membership& as, const WindowSpec& window);
  bool destroy(size_t program, const Membership& as, const std::string& window);
  bool make_lease(size_t program, size_t lease);
  bool end_lease(size_t program, size_t lease);
  bool grant(size_t program, const Membership& as, size_t grant);
  bool revoke(size_t program, const Membership& as, size_t grant);
  bool attach_by(size_t grant);  // The last one's token, by whom it is for.
  bool detach(size_t grant);
  bool ask_attached(size_t grant);  // For tickets.
  bool evict(size_t program);       // The first window that is kept for its tenant.
  bool ask_tickets(size_t program, const Membership& as);
  bool use_tickets(size_t program);  // Others try them before, in vain.
  bool trespass(size_t program);     // Tries what is not its own.
  bool answer(int gpu, bool ok);
  bool pass_time();     // Longer than anybody waits.
  bool restart();       // As after a crash.
  bool restart_late();  // When time has passed.

  /// After each: the end of the round.
  void end_round();
  /// Afterwards: what is wrong is in problems().
  void check();
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
    std::map<uint64_t, GroupId> mapped;          // By inode. Attached: of no group.
    std::map<std::string, LeaseId> lease_of;     // By group: under which it has joined; 0: none.
    std::map<size_t, AttachmentId> attachments;  // By grant.
  };
  struct Seat {  // Null: not in it.
    Group* group = nullptr;
    uint32_t rank = 0;
    explicit operator bool() const { return group != nullptr; }
  };
  struct MadeLease {
    LeaseId id{};
    std::string token;
    size_t spec = 0;
    TimePoint expires;
    bool is_ended = false;
  };
  struct MadeGrant {
    std::string token;
    size_t spec = 0;
    std::set<uint64_t> inodes;  // The window's memory.
    bool is_ended = false;
  };
  struct OldWindow {  // Of a group that shrinks.
    std::string name;
    uint64_t size_bytes, offset;
    Milliseconds keep;
    std::vector<std::string> grants;
    std::set<SessionId> users;
    std::map<std::pair<SessionId, int>, uint64_t> inodes;  // By whose, and GPU.
  };
  struct Wait {
    std::string what;
    bool ended = false;
  };

  UniqueFd make_file();
  void start();
  bool restart_after(Milliseconds pause);
  Identity identity(size_t program) const;
  Session* session(size_t program) const;
  Seat seat_of(size_t program, const Membership& as) const;
  bool is_mapped(uint64_t inode) const;
  void unmap(size_t program, const Seat& seat, const Window& window);
  static JoinRequest join_request(const Membership& as, const std::string& token);
  void join_by(size_t program, const Membership& as, const std::string& token, LeaseId lease);
  /// A reply that is awaited; `then` looks at it.
  template <typename Result>
  Reply<Result> awaited(
      const std::string& what,
      std::function<void(const absl::StatusOr<Result>&)> then = [](const auto&) {});
  void forget_ended();
  void trespass_on(Session& session, const Group& group, uint32_t rank);
  void steal_from_others(size_t program);
  void redeem(size_t program, const std::string& ticket);

  // Leases and quotas, as the world knows them.
  LeaseId lease_for(size_t program) const;
  bool serves(const LeaseSpec& lease, size_t program) const;
  const MadeLease* last_lease(size_t spec) const;
  const MadeLease* find_lease(LeaseId id) const;
  /// That it has not ended, nor its time.
  bool holds(const MadeLease& lease) const;
  uint64_t used_of(LeaseId id, int gpu) const;
  uint64_t free_bytes(int gpu) const;
  void check_refusal(const absl::Status& status, TenantId tenant, LeaseId lease,
                     std::vector<int> gpus);
  void check_leases();
  void note_payers();
  void check_payers();
  void check_quotas();

  // Grants, as the world knows them.
  std::string tenant_name(size_t program) const;
  MadeGrant* last_grant(size_t spec);
  const Window* window_of(const MadeGrant& grant, const Group** group = nullptr) const;
  void end_grants();
  void check_grants();
  std::string place_of(SlabId slab) const;

  void look_at_shrinking();
  void shrunk(size_t program, GroupId old, GroupId now);
  void check_window(const OldWindow& before, const Group& group);

  void check_vault();
  void check_freed();
  void check_pages(const Group& group);
  template <typename... Parts>
  void expect(bool good, const Parts&... what) {
    if (!good) problems_.push_back(absl::StrCat(what...));
  }

  std::string kept_text() const;  // What outlives the daemon.
  std::string text_of(const Group& group) const;
  std::string calls_text() const;
  std::string lease_name(LeaseId id) const;
  std::string leases_text() const;
  std::string attachments_text() const;
  std::string name_of(SessionId id) const;

  Options options_;
  Problems problems_;
  MemoryStore store_;
  MemoryVault vault_;
  KeptPages pages_;
  uint64_t secrets_ = 0;
  size_t file_count_ = 0;
  std::vector<Process> processes_;
  std::vector<std::shared_ptr<Wait>> waits_;
  Milliseconds clock_{};  // When the daemon has been started.
  std::vector<MadeLease> leases_;
  std::map<uint64_t, LeaseId> paid_by_;  // By inode.
  std::vector<MadeGrant> grants_;
  std::map<GroupId, std::vector<OldWindow>> shrinking_;
  std::set<uint64_t> freed_;  // In this round, by inode.
  std::unique_ptr<Daemon> daemon_;
};

template <typename Result>
Reply<Result> World::awaited(const std::string& what,
                             std::function<void(const absl::StatusOr<Result>&)> then) {
  auto wait = std::make_shared<Wait>(Wait{what});
  waits_.push_back(wait);
  return [this, wait, then](absl::StatusOr<Result> result) {
    if (wait->ended) problems_.push_back(wait->what + " is answered twice");
    wait->ended = true;
    if (daemon_ != nullptr) then(result);  // Else it ends.
  };
}

}  // namespace cco::memd
