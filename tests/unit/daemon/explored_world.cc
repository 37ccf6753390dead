// The world's ports, and what can happen in it.
#include "tests/unit/daemon/explored_world.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/inode.h"
#include "tests/unit/daemon/broker_checks.h"

namespace cco::memd {
namespace {

constexpr Milliseconds kLongerThanAnything{4'000'000}, kKeep{3'600'000};

// The same for every world, as making files takes longer than all the rest.
UniqueFd numbered_file(size_t number) {
  static std::vector<UniqueFd>& files = *new std::vector<UniqueFd>();
  while (files.size() <= number) files.emplace_back(::memfd_create("explored", MFD_CLOEXEC));
  return UniqueFd(::fcntl(files[number].get(), F_DUPFD_CLOEXEC, 0));
}

BrokerOptions options(const Quotas& quotas) {
  BrokerOptions options;
  Tenant each;
  each.quotas = quotas;
  options.tenants = Tenants({}, each);
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
  return adopt_page(make_file());
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
      broker(options(world.options_.quotas),
             {executor, pool, world.pages_, journal, processes,
              [&world] { return absl::StrCat("secret-", ++world.secrets_); }}) {
  // Looked at when the round ends, as those who wait are told after what their calls have freed.
  pool.is_mapped = [&world](uint64_t inode) { return world.freed_.insert(inode), false; };
  pool.enforces = true;
  pool.make_file = [&world] { return world.make_file(); };
  executor.advance(world.clock_);
}

UniqueFd World::make_file() { return numbered_file(file_count_++); }

World::World(const Options& options) : options_(options), processes_(options.programs.size()) {
  pages_.make_file = [this] { return make_file(); };
  start();
}

World::~World() {
  daemon_->pool.die();
  daemon_.reset();  // Whoever waits is answered.
}

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
  daemon_->executor.advance(Milliseconds(0));  // What has run out meanwhile.
}

Identity World::identity(size_t program) const {
  const Program& one = options_.programs[program];
  return {one.uid, one.uid, static_cast<int64_t>(100 + program), one.is_operator, one.cgroup};
}

Session* World::session(size_t program) const {
  const Process& process = processes_[program];
  if (process.session == SessionId{} || process.is_away) return nullptr;
  return daemon_->broker.session(process.session);
}

// Ranks are renumbered when a group shrinks.
World::Seat World::seat_of(size_t program, const Membership& as) const {
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (uint32_t rank = 0; group->name == as.group && rank < group->size(); ++rank) {
      const Rank& member = group->ranks[rank];
      if (member.session == processes_[program].session && member.gpu == as.gpu) {
        return {group.get(), rank};
      }
    }
  }
  return {};
}

bool World::is_mapped(uint64_t inode) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [inode](const Process& process) { return process.mapped.count(inode) != 0; });
}

bool World::attach(size_t program) {
  Process& process = processes_[program];
  if (process.session != SessionId{}) return false;
  auto welcome = daemon_->broker.open_session(identity(program), make_file());
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
  process.attachments.clear();
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
  if (session(program) == nullptr || seat_of(program, as)) return false;
  join_by(program, as, "", lease_for(program));
  return true;
}

JoinRequest World::join_request(const Membership& as, const std::string& token) {
  JoinRequest request;
  request.name = as.group;
  request.rank = as.rank;
  request.size = as.size;
  request.gpu_uuid = absl::StrCat("TOLD-", as.gpu);
  request.lease = token;
  return request;
}

void World::join_by(size_t program, const Membership& as, const std::string& token, LeaseId lease) {
  const std::string what = absl::StrCat("join of ", as.group, ".", as.rank, " by ", program);
  std::vector<int> gpus;
  for (const Program& one : options_.programs) {
    for (const Membership& other : one.memberships) {
      const bool is_there = other.group == as.group && one.uid == options_.programs[program].uid;
      if (is_there) gpus.push_back(other.gpu);
    }
  }
  daemon_->pool.begin_batch(what);
  daemon_->broker.join(
      *session(program), join_request(as, token),
      awaited<JoinResult>(
          what, [this, program, as, lease, gpus](const absl::StatusOr<JoinResult>& result) {
            if (result.ok()) processes_[program].lease_of[as.group] = lease;
            check_refusal(result.status(), daemon_->broker.tenants().find(identity(program)), lease,
                          gpus);
          }));
}

bool World::leave(size_t program, const Membership& as) {
  const Seat seat = seat_of(program, as);
  if (session(program) == nullptr || !seat) return false;
  const Group& group = *seat.group;
  const GroupId id = group.id;
  if (group.ranks[seat.rank].state != MemberState::kLive) return false;
  // What this process has mapped for another of its ranks stays.
  bool is_last = true;
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    is_last &= rank == seat.rank || group.ranks[rank].session != processes_[program].session ||
               !group.ranks[rank].may_map;
  }
  for (const auto& [window_id, window] : group.windows) unmap(program, seat, window);
  auto& mapped = processes_[program].mapped;
  for (auto entry = mapped.begin(); entry != mapped.end();) {
    entry = is_last && entry->second == id ? mapped.erase(entry) : std::next(entry);
  }
  expect(daemon_->broker.leave(*session(program), id, seat.rank).ok(), "a member cannot leave");
  return true;
}

bool World::abort(size_t program, const Membership& as) {
  const Seat seat = seat_of(program, as);
  if (session(program) == nullptr || !seat) return false;
  daemon_->broker.abort(*session(program), seat.group->id, seat.rank).IgnoreError();
  return true;
}

bool World::barrier(size_t program, const Membership& as) {
  const Seat seat = seat_of(program, as);
  if (session(program) == nullptr || !seat) return false;
  const std::string what = absl::StrCat("barrier of ", as.group, ".", as.rank, " by ", program);
  daemon_->broker.barrier(*session(program), {seat.group->id, seat.rank, 0, Milliseconds(0), ""},
                          awaited<BarrierResult>(what));
  return true;
}

bool World::create(size_t program, const Membership& as, const WindowSpec& window) {
  const Seat seat = seat_of(program, as);
  if (session(program) == nullptr || !seat) return false;
  const std::string what =
      absl::StrCat("window ", window.name, " of ", as.group, ".", as.rank, " by ", program);
  WindowRequest request;
  request.group = seat.group->id;
  request.rank = seat.rank;
  request.name = window.name;
  request.size_bytes = window.size_bytes;
  request.placement = window.placement;
  if (window.is_kept) request.keep = kKeep;
  if (window.placement == Placement::kExternal) {
    request.allocation_bytes = kUnitBytes;
    auto offer = daemon_->broker.desk().take_offer(session(program)->id, make_file());
    expect(offer.ok(), "an offer is refused");
    request.offer = *std::move(offer);
  }
  daemon_->pool.begin_batch(what);
  const auto look = [this, tenant = seat.group->tenant, gpus = seat.group->gpus(),
                     lease = processes_[program].lease_of.at(as.group)](
                        const absl::StatusOr<WindowResult>& result) {
    check_refusal(result.status(), tenant, lease, gpus);
  };
  daemon_->broker.create_window(*session(program), std::move(request),
                                awaited<WindowResult>(what, look));
  return true;
}

// A client unmaps a window of its own slabs when the last of its ranks has given it up.
void World::unmap(size_t program, const Seat& seat, const Window& window) {
  Process& process = processes_[program];
  const Group& group = *seat.group;
  const auto set = group.slabs.find(window.place.slab_index);
  if (set == group.slabs.end() || !set->second.is_kept) return;
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const bool is_mine = rank != seat.rank && group.ranks[rank].session == process.session;
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
  const Seat seat = seat_of(program, as);
  if (session(program) == nullptr || !seat) return false;
  for (const auto& [id, found] : seat.group->windows) {
    if (found.name != window) continue;
    const auto destroy = [&, id = id](uint64_t generation) {
      return daemon_->broker.destroy_window(*session(program), seat.group->id, seat.rank, id,
                                            generation);
    };
    const uint64_t generation = found.generation;
    expect(!destroy(generation - 1).ok(), "a window is destroyed by the handle of an older one");
    unmap(program, seat, found);
    destroy(generation).IgnoreError();
    return true;
  }
  return false;
}

bool World::answer(int gpu, bool ok) {
  if (!daemon_->pool.has_call(gpu)) return false;
  look_at_shrinking();
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
  restart_after(Milliseconds(0));
  const std::string after = kept_text();
  expect(before == after, "before:\n", before, "after a restart:\n", after);
  return true;
}

bool World::restart_late() { return restart_after(kLongerThanAnything); }

bool World::restart_after(Milliseconds pause) {
  const auto now = daemon_->executor.now().time_since_epoch();
  clock_ = std::chrono::duration_cast<Milliseconds>(now) + pause;
  daemon_->pool.die();
  daemon_.reset();
  forget_ended();
  expect(waits_.empty(), "a call is not answered by a daemon that ends");
  start();
  for (Process& process : processes_) {
    process.is_away = process.session != SessionId{};
    process.tickets.clear();
  }
  return true;
}

void World::forget_ended() {
  waits_.erase(std::remove_if(waits_.begin(), waits_.end(),
                              [](const std::shared_ptr<Wait>& wait) { return wait->ended; }),
               waits_.end());
}

void World::end_round() {
  daemon_->pool.begin_batch("what follows");
  daemon_->executor.run_posted();
  daemon_->recorder.flush();
  forget_ended();
  for (Process& process : processes_) {  // Those that have been given up.
    if (daemon_->broker.session(process.session) == nullptr) process.session = {};
    if (process.session == SessionId{}) process.is_away = false;
  }
  check_freed();
  note_payers();
  end_grants();
}

void World::wind_down() {
  for (size_t program = 0; program < processes_.size(); ++program) {
    exit(program);
    check_freed();
  }
  for (int gpu = 0; gpu < options_.gpu_count; ++gpu) {
    while (answer(gpu, true)) continue;
  }
  pass_time();
  end_round();
  check();
  const Broker& broker = daemon_->broker;
  expect(broker.sessions().size() == 0, "at the end there is a session");
  expect(broker.groups().empty() && broker.forming().empty(), "at the end there is a group");
  expect(broker.slabs().size() == 0, "at the end there is a slab");
  expect(daemon_->pool.live().empty(), "at the end memory is not freed");
  expect(store_.records.size() == store_.count(RecordKind::kDaemon),
         "at the end there are records");
  expect(vault_.fds.empty(), "at the end there are descriptors");
  expect(waits_.empty(), "at the end a call is not answered");
  expect(broker.leases().all().empty(), "at the end there is a lease");
  expect(broker.attachments().all().empty(), "at the end somebody is attached");
  expect(daemon_->executor.timer_count() == 0, "at the end there is a timer");
}

}  // namespace cco::memd
