// The world's ports, and what can happen in it.
#include "tests/unit/daemon/explored_world.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/inode.h"
#include "tests/unit/daemon/broker_checks.h"

namespace cco::memd {
namespace {

constexpr Milliseconds kLongerThanAnything{4'000'000}, kKeep{3'600'000};

UniqueFd memory_file(const char* name) { return UniqueFd(::memfd_create(name, MFD_CLOEXEC)); }

BrokerOptions options() {
  BrokerOptions options;
  options.slab_bytes = options.control_bytes = kUnitBytes;
  return options;
}

class KeptPage final : public NoticePage {
 public:
  KeptPage(UniqueFd fd, KeptPages::Content& content) : fd_(std::move(fd)), content_(content) {}
  const UniqueFd& fd() const override { return fd_; }
  void set_rank_out(uint32_t rank, uint64_t) override { content_.out.insert(rank); }
  void set_abort(uint64_t word) override {
    if (content_.abort_word == 0) content_.abort_word = word;
  }
  void set_condition(uint32_t, bool) override {}  // Found anew after a restart: not kept.

 private:
  UniqueFd fd_;
  KeptPages::Content& content_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NoticePage>> KeptPages::create_page(uint32_t) {
  return adopt_page(memory_file("page"));
}

absl::StatusOr<std::unique_ptr<NoticePage>> KeptPages::adopt_page(UniqueFd fd) {
  Content& content = contents_[inode_of(fd.get())];
  return std::make_unique<KeptPage>(std::move(fd), content);
}

const KeptPages::Content& KeptPages::content(const NoticePage& page) const {
  return contents_.at(inode_of(page.fd().get()));
}

World::Daemon::Daemon(World& world)
    : pool(world.options_.gpu_count, world.options_.units_per_gpu, world.problems_),
      recorder({executor, world.store_, world.vault_, journal}),
      broker(options(), {executor, pool, world.pages_, journal, processes,
                         [&world] { return absl::StrCat("secret-", ++world.secrets_); }}) {
  pool.is_mapped = [&world](uint64_t inode) { return world.is_mapped(inode); };
}

World::World(const Options& options) : options_(options), processes_(options.programs.size()) {
  start();
}

World::~World() { daemon_->pool.die(); }

void World::start() {
  daemon_ = std::make_unique<Daemon>(*this);
  auto left = daemon_->recorder.load("told", daemon_->pool.gpus(), pages_);
  if (!left.ok()) return problems_.push_back(std::string(left.status().message()));
  for (const std::string& loss : left->losses) problems_.push_back("lost: " + loss);
  const absl::Status status = daemon_->recorder.restore(daemon_->broker, *std::move(left), 77);
  expect(status.ok(), std::string(status.message()));
  for (const auto& [id, slab] : daemon_->broker.slabs().all()) {
    daemon_->pool.restore(inode_of(slab.memory.fd.get()),
                          {slab.gpu, slab.size_bytes, slab.is_external});
  }
}

Identity World::identity(size_t program) const {
  const uint32_t uid = options_.programs[program].uid;
  return {uid, uid, static_cast<int64_t>(100 + program), false};
}

Session* World::session(size_t program) const {
  const Process& process = processes_[program];
  if (process.session == SessionId{} || process.is_away) return nullptr;
  return daemon_->broker.session(process.session);
}

Group* World::group_of(size_t program, const Membership& as) const {
  for (const auto& [id, group] : daemon_->broker.groups()) {
    if (group->name == as.group && as.rank < group->size() &&
        group->ranks[as.rank].session == processes_[program].session) {
      return group.get();
    }
  }
  return nullptr;
}

bool World::is_mapped(uint64_t inode) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [inode](const Process& process) { return process.mapped.count(inode) != 0; });
}

template <typename Result>
Reply<Result> World::awaited(const std::string& what) {
  auto wait = std::make_shared<Wait>(Wait{what});
  waits_.push_back(wait);
  return [this, wait](absl::StatusOr<Result>) {
    if (wait->ended) problems_.push_back(wait->what + " is answered twice");
    wait->ended = true;
  };
}

bool World::attach(size_t program) {
  Process& process = processes_[program];
  if (process.session != SessionId{}) return false;
  auto welcome = daemon_->broker.open_session(identity(program), memory_file("process"));
  if (!welcome.ok()) return false;
  process.session = welcome->session;
  process.token = welcome->token;
  return true;
}

bool World::resume(size_t program) {
  Process& process = processes_[program];
  if (!process.is_away) return false;
  auto welcome = daemon_->broker.resume_session(process.token, identity(program), UniqueFd());
  expect(welcome.ok() && welcome->session == process.session, "a session cannot come back");
  process.is_away = false;
  return true;
}

bool World::cut(size_t program) {
  Process& process = processes_[program];
  if (session(program) == nullptr) return false;
  const SessionId id = std::exchange(process.session, {});
  process.tickets.clear();
  daemon_->broker.close_session(id);
  if (daemon_->broker.session(id) != nullptr) process.lost.push_back(id);
  return true;
}

bool World::exit(size_t program) {
  Process process = std::exchange(processes_[program], {});
  if (process.session == SessionId{} && process.lost.empty()) return false;
  if (process.session != SessionId{}) daemon_->broker.process_exited(process.session);
  for (const SessionId id : process.lost) daemon_->broker.process_exited(id);
  return true;
}

bool World::join(size_t program, const Membership& as) {
  if (session(program) == nullptr || group_of(program, as) != nullptr) return false;
  const std::string what = absl::StrCat("join of ", as.group, ".", as.rank, " by ", program);
  JoinRequest request;
  request.name = as.group;
  request.rank = as.rank;
  request.size = as.size;
  request.gpu_uuid = absl::StrCat("TOLD-", as.gpu);
  daemon_->pool.begin_batch(what);
  daemon_->broker.join(*session(program), std::move(request), awaited<JoinResult>(what));
  return true;
}

bool World::leave(size_t program, const Membership& as) {
  const Group* group = group_of(program, as);
  if (session(program) == nullptr || group == nullptr) return false;
  const GroupId id = group->id;
  if (group->ranks[as.rank].state != MemberState::kLive) return false;
  // What this process has mapped for another of its ranks stays.
  bool is_last = true;
  for (uint32_t rank = 0; rank < group->size(); ++rank) {
    is_last &= rank == as.rank || group->ranks[rank].session != processes_[program].session ||
               !group->ranks[rank].may_map;
  }
  auto& mapped = processes_[program].mapped;
  for (auto entry = mapped.begin(); entry != mapped.end();) {
    entry = is_last && entry->second == id ? mapped.erase(entry) : std::next(entry);
  }
  expect(daemon_->broker.leave(*session(program), id, as.rank).ok(), "a member cannot leave");
  return true;
}

bool World::abort(size_t program, const Membership& as) {
  const Group* group = group_of(program, as);
  if (session(program) == nullptr || group == nullptr) return false;
  daemon_->broker.abort(*session(program), group->id, as.rank).IgnoreError();
  return true;
}

bool World::barrier(size_t program, const Membership& as) {
  const Group* group = group_of(program, as);
  if (session(program) == nullptr || group == nullptr) return false;
  const std::string what = absl::StrCat("barrier of ", as.group, ".", as.rank, " by ", program);
  daemon_->broker.barrier(*session(program), {group->id, as.rank, 0, Milliseconds(0), ""},
                          awaited<BarrierResult>(what));
  return true;
}

bool World::create(size_t program, const Membership& as, const WindowSpec& window) {
  const Group* group = group_of(program, as);
  if (session(program) == nullptr || group == nullptr) return false;
  const std::string what =
      absl::StrCat("window ", window.name, " of ", as.group, ".", as.rank, " by ", program);
  WindowRequest request;
  request.group = group->id;
  request.rank = as.rank;
  request.name = window.name;
  request.size_bytes = window.size_bytes;
  request.placement = window.placement;
  if (window.is_kept) request.keep = kKeep;
  if (window.placement == Placement::kExternal) {
    request.allocation_bytes = kUnitBytes;
    auto offer = daemon_->broker.desk().take_offer(session(program)->id, memory_file("external"));
    expect(offer.ok(), "an offer is refused");
    request.offer = *std::move(offer);
  }
  daemon_->pool.begin_batch(what);
  daemon_->broker.create_window(*session(program), std::move(request), awaited<WindowResult>(what));
  return true;
}

// A client unmaps a window of its own slabs when the last of its ranks has given it up.
void World::unmap(size_t program, const Membership& as, const Window& window) {
  Process& process = processes_[program];
  const Group& group = *group_of(program, as);
  const auto set = group.slabs.find(window.place.slab_index);
  if (set == group.slabs.end() || !set->second.is_kept) return;
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const bool is_mine = rank != as.rank && group.ranks[rank].session == process.session;
    if (is_mine && window.users[rank]) return;
  }
  for (const SlabId id : set->second.ids) {
    const UniqueFd* fd = daemon_->broker.slabs().fd(id);
    if (fd != nullptr) process.mapped.erase(inode_of(fd->get()));
  }
}

bool World::evict(size_t program) {
  if (session(program) == nullptr) return false;
  for (const auto& [id, kept] : daemon_->broker.kept_windows().all()) {
    const bool is_own = kept.tenant == session(program)->tenant;
    const auto evicted = daemon_->broker.evict_kept(*session(program), id);
    expect(evicted.ok() == is_own, "a kept window is evicted by another tenant, or not by its own");
    if (is_own) return true;
  }
  return false;
}

bool World::destroy(size_t program, const Membership& as, const std::string& window) {
  const Group* group = group_of(program, as);
  if (session(program) == nullptr || group == nullptr) return false;
  for (const auto& [id, found] : group->windows) {
    if (found.name != window) continue;
    const absl::Status older = daemon_->broker.destroy_window(*session(program), group->id, as.rank,
                                                              id, found.generation - 1);
    expect(!older.ok(), "a window is destroyed by the handle of an older one");
    unmap(program, as, found);
    daemon_->broker.destroy_window(*session(program), group->id, as.rank, id, found.generation)
        .IgnoreError();
    return true;
  }
  return false;
}

bool World::ask_tickets(size_t program, const Membership& as) {
  Process& process = processes_[program];
  const Group* group = group_of(program, as);
  if (session(program) == nullptr || group == nullptr || !process.tickets.empty()) return false;
  for (const auto& [index, set] : group->slabs) {
    auto tickets = daemon_->broker.export_slab(*session(program), group->id, as.rank, index);
    if (!tickets.ok()) continue;  // Freed, or not a member any more.
    for (const auto& slab : tickets->slabs) process.tickets.push_back(slab.ticket);
  }
  return true;
}

bool World::use_tickets(size_t program) {
  Process& process = processes_[program];
  if (session(program) == nullptr || process.tickets.empty()) return false;
  for (const std::string& ticket : std::exchange(process.tickets, {})) {
    for (size_t thief = 0; thief < processes_.size(); ++thief) {
      if (thief == program || session(thief) == nullptr) continue;
      expect(!daemon_->broker.desk().redeem(session(thief)->id, ticket).ok(), "a stolen ticket");
    }
    auto fd = daemon_->broker.desk().redeem(session(program)->id, ticket);
    if (!fd.ok()) continue;
    const uint64_t inode = inode_of((*fd)->get());
    expect(!daemon_->broker.desk().redeem(session(program)->id, ticket).ok(), "a used ticket");
    const Group* owner = owner_of(daemon_->broker, inode);
    const bool may = owner != nullptr && may_map(*owner, process.session);
    expect(may, "a ticket gives memory of a group to a process that is no member of it");
    if (may) process.mapped[inode] = owner->id;
  }
  return true;
}

bool World::trespass(size_t program) {
  if (session(program) == nullptr) return false;
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (uint32_t rank = 0; rank < group->size(); ++rank) {
      const Rank& member = group->ranks[rank];
      const bool is_own = member.session == session(program)->id;
      if (!is_own || member.state != MemberState::kLive) {
        trespass_on(*session(program), *group, rank);
      }
    }
  }
  return true;
}

void World::trespass_on(Session& session, const Group& group, uint32_t rank) {
  Broker& broker = daemon_->broker;
  const auto refused = [this](const absl::Status& status) {
    expect(!status.ok(), "a call for another process's rank succeeds");
  };
  refused(broker.leave(session, group.id, rank));
  refused(broker.export_slab(session, group.id, rank, 0).status());
  refused(broker.report_peers(session, group.id, rank, {{0, true, ""}}));
  for (const auto& [id, window] : group.windows) {
    refused(broker.destroy_window(session, group.id, rank, id, window.generation));
  }
  broker.barrier(session, {group.id, rank, 0, Milliseconds(0), ""},
                 [&](absl::StatusOr<BarrierResult> result) { refused(result.status()); });
  if (group.ranks[rank].session != session.id) refused(broker.abort(session, group.id, rank));
}

bool World::answer(int gpu, bool ok) {
  if (!daemon_->pool.has_call(gpu)) return false;
  daemon_->pool.answer(gpu, ok);
  return true;
}

bool World::pass_time() {
  daemon_->executor.advance(kLongerThanAnything);
  for (Process& process : processes_) process.tickets.clear();
  return true;
}

bool World::restart() {
  const std::string before = kept_text();
  daemon_->pool.die();
  daemon_.reset();
  forget_ended();
  expect(waits_.empty(), "a call is not answered by a daemon that ends");
  start();
  for (Process& process : processes_) {
    process.is_away = process.session != SessionId{};
    process.tickets.clear();
  }
  const std::string after = kept_text();
  expect(before == after, absl::StrCat("before:\n", before, "after a restart:\n", after));
  return true;
}

void World::forget_ended() {
  waits_.erase(std::remove_if(waits_.begin(), waits_.end(),
                              [](const std::shared_ptr<Wait>& wait) { return wait->ended; }),
               waits_.end());
}

void World::settle() {
  daemon_->executor.run_posted();
  daemon_->recorder.flush();
  forget_ended();
  for (Process& process : processes_) {  // Those that have been given up.
    if (daemon_->broker.session(process.session) == nullptr) process.session = {};
    if (process.session == SessionId{}) process.is_away = false;
  }
  check();
}

void World::wind_down() {
  for (size_t program = 0; program < processes_.size(); ++program) exit(program);
  for (int gpu = 0; gpu < options_.gpu_count; ++gpu) {
    while (answer(gpu, true)) continue;
  }
  pass_time();
  settle();
  const Broker& broker = daemon_->broker;
  expect(broker.sessions().size() == 0, "at the end there is a session");
  expect(broker.groups().empty() && broker.forming().empty(), "at the end there is a group");
  expect(broker.slabs().size() == 0, "at the end there is a slab");
  expect(daemon_->pool.live().empty(), "at the end memory is not freed");
  expect(store_.records.size() == store_.count(RecordKind::kDaemon),
         "at the end there are records");
  expect(vault_.fds.empty(), "at the end there are descriptors");
  expect(waits_.empty(), "at the end a call is not answered");
  expect(daemon_->executor.timer_count() == 0, "at the end there is a timer");
}

}  // namespace cco::memd
