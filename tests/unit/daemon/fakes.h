// Ports of the daemon's core, with state: a clock that a test turns, GPUs that answer when a test
// says so.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"
#include "device/runtime/host_driver.h"

namespace cco::memd {

class ManualExecutor final : public Executor {
 public:
  void post(Task task) override { posted_.push_back(std::move(task)); }
  TimePoint now() const override { return now_; }
  TimerId call_at(TimePoint when, Task task) override {
    const TimerId id{++last_id_};
    timers_.emplace(std::pair(when, id), std::move(task));
    return id;
  }
  void cancel(TimerId timer) override {
    for (auto entry = timers_.begin(); entry != timers_.end(); ++entry) {
      if (entry->first.second == timer) {
        timers_.erase(entry);
        return;
      }
    }
  }

  void run_posted() {
    while (!posted_.empty()) {
      Task task = std::move(posted_.front());
      posted_.pop_front();
      task();
    }
  }
  /// Turns the clock, running what falls due, in order.
  void advance(Milliseconds time) {
    run_posted();
    advance_late(time);
  }
  /// As advance(), but what was posted before runs after the first timer only, as in an event loop
  /// that has been busy.
  void advance_late(Milliseconds time) {
    const TimePoint end = now_ + time;
    while (!timers_.empty() && timers_.begin()->first.first <= end) {
      auto node = timers_.extract(timers_.begin());
      now_ = std::max(now_, node.key().first);
      node.mapped()();
      run_posted();
    }
    now_ = end;
  }
  size_t timer_count() const { return timers_.size(); }

 private:
  TimePoint now_{};
  std::deque<Task> posted_;
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
  uint64_t last_id_ = 0;
};

/// GPUs over a real host driver. Calls on a GPU in `stuck` wait until it is taken out and answer()
/// is called.
class FakePool final : public GpuPool {
 public:
  explicit FakePool(GpuDriver& driver) : driver_(driver) {}

  const std::vector<GpuDevice>& gpus() const override { return driver_.devices(); }
  void allocate(int gpu, uint64_t size_bytes, MemoryKind kind, Done done) override {
    run(gpu, [this, gpu, size_bytes, kind, done = std::move(done)]() mutable {
      done(make(gpu, size_bytes, kind));
    });
  }
  void adopt(int gpu, UniqueFd fd, uint64_t size_bytes, Done done) override {
    run(gpu, [this, gpu, fd = std::move(fd), size_bytes, done = std::move(done)]() mutable {
      absl::StatusOr<GpuMemory> memory = driver_.import_fd(gpu, fd, size_bytes);
      if (!memory.ok()) return done(memory.status());
      ++live_;
      done(SlabMemory{*std::move(memory), std::move(fd)});
    });
  }
  void release(int, SlabMemory memory) override {
    --live_;
    memory = SlabMemory();
  }
  void when_idle(int gpu, absl::AnyInvocable<void()> done) override { run(gpu, std::move(done)); }
  bool is_open(int gpu) const override { return closed.count(gpu) == 0; }
  bool enforces_read_only() const override { return enforces; }
  absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd exported) override {
    return driver_.read_only_fd(exported);
  }
  Milliseconds busy(int gpu) const override { return Milliseconds(stuck.count(gpu) != 0 ? 1 : 0); }

  void answer() {
    for (auto& task : std::exchange(waiting_, {})) task();
  }
  int live() const { return live_; }
  int calls() const { return calls_; }  // Of the driver, to allocate.

  std::set<int> stuck;
  std::set<int> closed;
  int fail_call = -1;  // This call, counted from 0, fails.
  bool enforces = true;

 private:
  absl::StatusOr<SlabMemory> make(int gpu, uint64_t size_bytes, MemoryKind kind) {
    if (calls_++ == fail_call) return absl::ResourceExhaustedError("injected");
    CCO_ASSIGN_OR_RETURN(GpuMemory memory, driver_.allocate(gpu, size_bytes, kind));
    CCO_ASSIGN_OR_RETURN(UniqueFd fd, driver_.export_fd(memory));
    ++live_;
    return SlabMemory{std::move(memory), std::move(fd)};
  }
  void run(int gpu, Executor::Task task) {
    if (stuck.count(gpu) != 0) return waiting_.push_back(std::move(task));
    task();
  }

  GpuDriver& driver_;
  std::vector<Executor::Task> waiting_;
  int calls_ = 0;
  int live_ = 0;
};

class FakeNoticeBoard final : public NoticeBoard {
 public:
  struct Page final : NoticePage {
    const UniqueFd& fd() const override { return none; }
    void set_rank_out(uint32_t rank, uint64_t) override { out.insert(rank); }
    void set_abort(uint64_t word) override { aborts.push_back(word); }
    void set_condition(uint32_t bits, bool holds) override {
      conditions = holds ? conditions | bits : conditions & ~bits;
    }
    uint32_t conditions = 0;
    UniqueFd none;
    std::set<uint32_t> out;
    std::vector<uint64_t> aborts;
  };
  absl::StatusOr<std::unique_ptr<NoticePage>> create_page(uint32_t) override {
    auto page = std::make_unique<Page>();
    pages.push_back(page.get());
    return page;
  }
  absl::StatusOr<std::unique_ptr<NoticePage>> adopt_page(UniqueFd) override {
    return create_page(0);
  }
  std::vector<Page*> pages;  // In order of creation; owned by the broker.
};

class FakeProcesses final : public Processes {
 public:
  bool is_stopped(int64_t pid, BorrowedFd) const override { return stopped.count(pid) != 0; }
  std::set<int64_t> stopped;
};

class NoJournal final : public Journal {
 public:
  void record(Severity, const std::string&, const std::string&) override {}
};

class RecordingJournal final : public Journal {
 public:
  void record(Severity, const std::string& event, const std::string& fields) override {
    lines.push_back(absl::StrCat(event, " ", fields));
  }
  std::vector<std::string> lines;
};

/// A broker on fakes, and shorthand for what tests ask of it.
class Fixture {
 public:
  explicit Fixture(BrokerOptions options = small_options())
      : driver(*HostDriver::create(4, 64 << 20)),
        pool(*driver),
        broker(std::move(options), ports()) {}
  ~Fixture() { broker.stop(); }

  static BrokerOptions small_options() {
    BrokerOptions options;
    options.slab_bytes = 1 << 20;
    options.control_bytes = 64 * 1024;
    return options;
  }
  SessionId attach(uint32_t uid = 1000) {
    return broker.open_session({uid, uid, ++pid, uid == 0}, UniqueFd())->session;
  }
  Session& session(SessionId id) { return *broker.session(id); }

  template <typename Result>
  Reply<Result> into(std::shared_ptr<absl::StatusOr<Result>> slot) {
    return [slot](absl::StatusOr<Result> result) { *slot = std::move(result); };
  }
  /// UNKNOWN until the answer comes.
  template <typename Result>
  using Answer = std::shared_ptr<absl::StatusOr<Result>>;

  Answer<JoinResult> join(SessionId id, uint32_t rank, uint32_t size,
                          const std::string& name = "g") {
    JoinRequest request;
    request.name = name;
    request.rank = rank;
    request.size = size;
    request.gpu_uuid = absl::StrCat("HOST-", rank % 4);
    return join(id, request);
  }
  Answer<JoinResult> join(SessionId id, JoinRequest request) {
    auto answer = std::make_shared<absl::StatusOr<JoinResult>>();
    broker.join(session(id), std::move(request), into(answer));
    return answer;
  }
  /// A running group of fresh sessions.
  GroupId form(uint32_t size, std::vector<SessionId>* members, const std::string& name = "g") {
    std::vector<Answer<JoinResult>> answers;
    for (uint32_t rank = 0; rank < size; ++rank) {
      members->push_back(attach());
      answers.push_back(join(members->back(), rank, size, name));
    }
    return (*answers[0])->group;
  }
  WindowRequest window(GroupId group, uint32_t rank, uint64_t size_bytes,
                       const std::string& name = "w") {
    WindowRequest request;
    request.group = group;
    request.rank = rank;
    request.name = name;
    request.size_bytes = size_bytes;
    return request;
  }
  Answer<WindowResult> create(SessionId id, WindowRequest request) {
    auto answer = std::make_shared<absl::StatusOr<WindowResult>>();
    broker.create_window(session(id), std::move(request), into(answer));
    return answer;
  }
  std::vector<Answer<WindowResult>> create_all(const std::vector<SessionId>& members,
                                               WindowRequest request) {
    std::vector<Answer<WindowResult>> answers;
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      request.rank = rank;
      answers.push_back(create(members[rank], request));
    }
    return answers;
  }
  Answer<BarrierResult> barrier(SessionId id, GroupId group, uint32_t rank, uint64_t sequence,
                                Milliseconds timeout = Milliseconds(0),
                                const std::string& problem = "") {
    auto answer = std::make_shared<absl::StatusOr<BarrierResult>>();
    broker.barrier(session(id), {group, rank, sequence, timeout, problem}, into(answer));
    return answer;
  }

  ManualExecutor executor;
  std::unique_ptr<HostDriver> driver;
  FakePool pool;
  FakeNoticeBoard notices;
  RecordingJournal journal;
  FakeProcesses processes;
  int64_t pid = 100;
  uint64_t secrets = 0;
  Broker broker;

 private:
  Broker::Ports ports() {
    return {executor, pool,      notices,
            journal,  processes, [this] { return absl::StrCat("secret-", ++secrets); }};
  }
};

}  // namespace cco::memd
