// Goal    no sequence of calls, by whomever, makes the daemon crash, lose count of its memory, show
//         one tenant what is another's, give a descriptor to whom it was not issued, forget to
//         answer, or keep anything once all have gone; a daemon that goes on after it agrees.
// Method  the input is read as what four processes of three users do, the real handlers, broker and
//         recorder answering: calls of every method, their fields chosen by name from what fits and
//         what does not; connections, processes and daemons that end; GPUs that fail. Everything is
//         checked after each step.
#include <grpcpp/test/default_reactor_test_peer.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/inode.h"
#include "client/base/status_macros.h"
#include "daemon/service/memd_service.h"
#include "daemon/state/recorder.h"
#include "daemon/sys/memfd_notice_board.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/rpc_fields.h"
#include "tests/unit/daemon/broker_checks.h"
#include "tests/unit/daemon/fakes.h"
#include "tests/unit/daemon/kept_fakes.h"

namespace cco::memd {
namespace {

using fuzz::Input;
using fuzz::Known;

constexpr int kGpuCount = 2;
constexpr Milliseconds kLongerThanAnything{3'000'000'000};
constexpr uint32_t kUids[] = {1000, 1000, 2000, 0};  // The last is an operator.
constexpr size_t kProcesses = std::size(kUids);

UniqueFd memory_file() {
  UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC));
  CCO_ASSERT(static_cast<bool>(file));
  return file;
}

Identity identity(size_t process) {
  const uint32_t uid = kUids[process];
  return {uid, uid, static_cast<int64_t>(100 + process), uid == 0, "/a\xff"};
}

BrokerOptions options() {
  BrokerOptions options;
  options.slab_bytes = options.control_bytes = kUnitBytes;
  options.limits.sessions = 6;
  options.limits.groups = 5;
  options.limits.ranks_per_group = 4;
  options.limits.windows_per_group = 6;
  options.limits.slabs_per_group = 4;
  options.limits.tickets_per_session = 8;
  options.limits.requests_per_session = 4;
  options.limits.calls_per_session = 6;
  options.limits.grants_per_group = 4;
  options.limits.attachments_per_session = 3;
  Tenant team;
  team.name = "team";
  team.uids = {2000};
  team.quotas = {.bytes_per_gpu = 3 * kUnitBytes, .groups = 2, .windows = 3, .sessions = 2};
  options.tenants = Tenants({team}, Tenant());
  return options;
}

/// Told whose call comes next, as gRPC connections are left out.
class Service final : public MemdService {
 public:
  Service(Broker& broker, Executor& executor, Outbox& outbox)
      : MemdService(broker, executor, outbox, {"0", "told", "0", executor.now()}),
        broker_(broker) {}
  void next_caller(const std::string& token, const Identity& who) {
    token_ = token;
    who_ = who;
  }

 private:
  grpc::ServerUnaryReactor* open_call(grpc::CallbackServerContext* context) override {
    return context->DefaultReactor();  // Bound to a test's.
  }
  FairQueue::Source arrive(const grpc::CallbackServerContext&, grpc::ServerUnaryReactor*) override {
    return {};
  }
  absl::StatusOr<Session*> caller(const grpc::CallbackServerContext&) override {
    return broker_.authenticate(token_, who_);
  }
  Broker& broker_;
  std::string token_;
  Identity who_;
};

struct Daemon {
  Daemon(MemoryStore& store, MemoryVault& vault, uint64_t& secrets, Problems& problems)
      : pool(kGpuCount, 8, problems),
        recorder({executor, store, vault, journal}),
        broker(options(), {executor, pool, notices, journal, processes,
                           [&secrets] { return absl::StrCat("secret-", ++secrets); }}),
        service(broker, executor, recorder) {
    pool.is_mapped = [](uint64_t) { return false; };
  }
  ManualExecutor executor;
  ToldPool pool;
  MemfdNoticeBoard notices;
  NoJournal journal;
  FakeProcesses processes;
  Recorder recorder;
  Broker broker;
  Service service;
};

/// One call; it stays until its answer has come.
struct Call {
  virtual ~Call() = default;
  grpc::CallbackServerContext context;
  std::optional<grpc::Status> status;
};
template <typename Request, typename Response>
struct CallOf final : Call {
  Request request;
  Response response;
};

struct Process {
  SessionId session{};
  std::string token = "none";
  bool is_away = false;
  std::vector<SessionId> lost;
};

class Node {
 public:
  explicit Node(Input& input) : input_(input) { start(); }

  void run() {
    while (!input_.at_end()) {
      step();
      settle();
    }
    wind_down();
  }

  template <typename Request, typename Response>
  void call(grpc::ServerUnaryReactor* (MemdService::*method)(grpc::CallbackServerContext*,
                                                             const Request*, Response*));

 private:
  void start();
  void step();
  void attach(size_t process);
  void resume(size_t process);
  void cut(size_t process);
  void exit(size_t process);
  void redeem(size_t process);
  void offer(size_t process);
  void restart();
  void settle();
  void wind_down();
  void expect(bool good, const std::string& what) {
    if (!good) problems_.push_back(what);
  }
  void check_answer(const google::protobuf::Message& response, const Identity& who);

  Input& input_;
  Known known_;
  Problems problems_;
  MemoryStore store_;
  MemoryVault vault_;
  uint64_t secrets_ = 0;
  Process processes_[kProcesses];
  std::vector<std::shared_ptr<Call>> calls_;
  std::map<std::string, SessionId> issued_;  // Tickets.
  std::unique_ptr<Daemon> daemon_;
};

void Node::start() {
  daemon_ = std::make_unique<Daemon>(store_, vault_, secrets_, problems_);
  auto left = daemon_->recorder.load("told", daemon_->pool.gpus(), daemon_->notices);
  if (!left.ok()) std::fprintf(stderr, "%s\n", left.status().ToString().c_str());
  CCO_ASSERT(left.ok() && left->losses.empty());
  CCO_ASSERT(daemon_->recorder.restore(daemon_->broker, *std::move(left), 77).ok());
  for (const auto& [id, slab] : daemon_->broker.slabs().all()) {
    daemon_->pool.restore(inode_of(slab.memory.fd.get()),
                          {slab.gpu, slab.size_bytes, slab.is_external});
  }
}

void Node::attach(size_t index) {
  Process& process = processes_[index];
  if (process.session != SessionId{}) return;
  auto welcome = daemon_->broker.open_session(identity(index), memory_file());
  if (!welcome.ok()) return;
  process.session = welcome->session;
  process.token = welcome->token;
}

void Node::resume(size_t index) {
  Process& process = processes_[index];
  auto welcome = daemon_->broker.resume_session(process.token, identity(index), memory_file());
  expect(welcome.ok() == process.is_away, "a session comes back that may not, or cannot");
  process.is_away = false;
}

void Node::cut(size_t index) {
  Process& process = processes_[index];
  if (process.session == SessionId{} || process.is_away) return;
  const SessionId id = std::exchange(process.session, {});
  daemon_->broker.close_session(id);
  if (daemon_->broker.session(id) != nullptr) process.lost.push_back(id);
}

void Node::exit(size_t index) {
  const Process process = std::exchange(processes_[index], {});
  if (process.session != SessionId{}) daemon_->broker.process_exited(process.session);
  for (const SessionId id : process.lost) daemon_->broker.process_exited(id);
}

void Node::redeem(size_t index) {
  const Process& process = processes_[index];
  if (process.session == SessionId{} || process.is_away) return;
  const std::string ticket = known_.ticket(input_);
  const auto fd = daemon_->broker.desk().redeem(process.session, ticket);
  if (!fd.ok()) return;
  expect(issued_.count(ticket) == 1 && issued_.at(ticket) == process.session,
         "a ticket works for whom it was not issued to");
  issued_.erase(ticket);
  const uint64_t inode = inode_of((*fd)->get());
  bool is_own_page = false;
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (const Rank& rank : group->ranks) {
      is_own_page |= rank.session == process.session && rank.notice->fd().get() >= 0 &&
                     inode_of(rank.notice->fd().get()) == inode;
    }
  }
  const Group* owner = owner_of(daemon_->broker, inode);
  expect(is_own_page || is_attached(daemon_->broker, inode, process.session) ||
             (owner != nullptr && may_map(*owner, process.session)),
         "a ticket gives what belongs to a group that the process is not in, nor granted to it");
}

void Node::offer(size_t index) {
  const Process& process = processes_[index];
  if (process.session == SessionId{} || process.is_away) return;
  auto offer = daemon_->broker.desk().take_offer(process.session, memory_file());
  if (offer.ok()) known_.offers.push_back(*offer);
}

void Node::restart() {
  daemon_->broker.stop();
  daemon_->recorder.stop();
  daemon_->executor.run_posted();
  daemon_->recorder.flush();
  for (const auto& call : calls_)
    expect(call->status.has_value(), "a daemon stops, and owes an answer");
  daemon_->pool.die();
  daemon_.reset();
  calls_.clear();
  start();
  issued_.clear();
  for (Process& process : processes_) process.is_away = process.session != SessionId{};
}

// No tenant is named but one's own, except to operators.
void Node::check_answer(const google::protobuf::Message& response, const Identity& who) {
  const TenantId tenant = daemon_->broker.tenants().find(who);
  const std::string name = daemon_->broker.tenants().name(tenant);
  fuzz::visit(response, [&](const std::string& field, const std::string& value) {
    if (field == "tenant") expect(value == name, "an answer names another tenant: " + value);
    if (field != "group_id" || value == "0") return;
    const auto group = daemon_->broker.groups().find(GroupId{std::stoull(value)});
    expect(group == daemon_->broker.groups().end() || group->second->tenant == tenant,
           "an answer tells of another tenant's group");
  });
}

template <typename Request, typename Response>
void Node::call(grpc::ServerUnaryReactor* (MemdService::*method)(grpc::CallbackServerContext*,
                                                                 const Request*, Response*)) {
  const size_t index = input_.below(kProcesses);
  const size_t token_of = input_.below(8) == 0 ? input_.below(kProcesses) : index;
  const Process& process = processes_[index];
  const Identity who = identity(index);
  auto call = std::make_shared<CallOf<Request, Response>>();
  fuzz::fill(&call->request, input_, known_);
  const bool may = token_of == index && process.session != SessionId{} && !process.is_away;
  const auto ended = [this, call = call.get(), who, may,
                      id = process.session](grpc::Status status) {
    expect(!call->status.has_value(), "a call is answered twice");
    expect(may || status.error_code() == grpc::UNAUTHENTICATED, "a call without right is let in");
    call->status = status;
    if (!status.ok()) return expect(!status.error_message().empty(), "an error says nothing");
    if (!who.is_operator) check_answer(call->response, who);
    known_.learn(call->response);
    fuzz::visit(call->response, [&](const std::string& field, const std::string& value) {
      if (absl::EndsWith(field, "ticket") && !value.empty()) issued_.emplace(value, id);
    });
  };
  calls_.push_back(call);
  grpc::testing::DefaultReactorTestPeer peer(&call->context, ended);
  daemon_->service.next_caller(processes_[token_of].token, who);
  daemon_->pool.begin_batch("call");
  (daemon_->service.*method)(&call->context, &call->request, &call->response);
}

using Method = std::function<void(Node&)>;
template <typename Pointer>
Method method(Pointer pointer) {
  return [pointer](Node& node) { node.call(pointer); };
}

const std::vector<Method>& methods() {
  static const std::vector<Method> all{
      method(&MemdService::JoinGroup),        method(&MemdService::LeaveGroup),
      method(&MemdService::AbortGroup),       method(&MemdService::Barrier),
      method(&MemdService::CreateWindow),     method(&MemdService::DestroyWindow),
      method(&MemdService::ExportSlabs),      method(&MemdService::ReportPeers),
      method(&MemdService::ReportTransports), method(&MemdService::ListSessions),
      method(&MemdService::ListGroups),       method(&MemdService::ListWindows),
      method(&MemdService::ListTenants),      method(&MemdService::ExplainGroup),
      method(&MemdService::CreateLease),      method(&MemdService::ListLeases),
      method(&MemdService::EndLease),         method(&MemdService::ListKept),
      method(&MemdService::EvictKept),        method(&MemdService::ShrinkGroup),
      method(&MemdService::OpenWindow),       method(&MemdService::GrantWindow),
      method(&MemdService::RevokeGrant),      method(&MemdService::AttachWindow),
      method(&MemdService::DetachWindow),     method(&MemdService::GetNode),
      method(&MemdService::DrainGpu),         method(&MemdService::UndrainGpu)};
  const google::protobuf::ServiceDescriptor* service =
      v1::GetNodeRequest::descriptor()->file()->FindServiceByName("MemdService");
  CCO_ASSERT(static_cast<size_t>(service->method_count()) == all.size());  // None is forgotten.
  return all;
}

void Node::step() {
  const size_t what = input_.below(32);
  const size_t process = what < 12 ? input_.below(kProcesses) : 0;
  const int gpu = static_cast<int>(what % kGpuCount);
  switch (what) {
    case 0:
    case 1:
    case 2:
      return attach(process);
    case 3:
      return resume(process);
    case 4:
      return cut(process);
    case 5:
      return exit(process);
    case 6:
    case 7:
      return redeem(process);
    case 8:
      return offer(process);
    case 9:
      return daemon_->executor.advance(Milliseconds(1000 * input_.below(70)));
    case 10:
      return restart();
    case 11:
    case 12:
    case 13:
    case 14:
      if (daemon_->pool.has_call(gpu)) daemon_->pool.answer(gpu, what < 13 || input_.below(4) != 0);
      return;
    default:
      // The first seven change most.
      return methods()[input_.below(input_.below(4) != 0 ? 7 : methods().size())](*this);
  }
}

void Node::settle() {
  daemon_->executor.run_posted();
  daemon_->recorder.flush();
  daemon_->executor.run_posted();
  calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                              [](const auto& call) { return call->status.has_value(); }),
               calls_.end());
  std::set<TenantId> tenants;
  for (size_t i = 0; i < kProcesses; ++i) {
    tenants.insert(daemon_->broker.tenants().find(identity(i)));
    Process& process = processes_[i];
    if (daemon_->broker.session(process.session) != nullptr) continue;
    process.session = {};  // It was given up.
    process.is_away = false;
  }
  check_broker(daemon_->broker, daemon_->pool, tenants, &problems_);
  for (const std::string& problem : problems_) std::fprintf(stderr, "%s\n", problem.c_str());
  CCO_ASSERT(problems_.empty());
}

void Node::wind_down() {
  for (size_t process = 0; process < kProcesses; ++process) exit(process);
  for (int gpu = 0; gpu < kGpuCount; ++gpu) {
    while (daemon_->pool.has_call(gpu)) daemon_->pool.answer(gpu, true);
  }
  daemon_->executor.advance(kLongerThanAnything);
  settle();
  const Broker& broker = daemon_->broker;
  expect(calls_.empty(), "at the end a call is not answered");
  expect(broker.sessions().size() == 0 && broker.groups().empty() && broker.forming().empty() &&
             broker.slabs().size() == 0 && daemon_->pool.live().empty(),
         "at the end something is left");
  // GPUs that are drained stay so.
  const size_t lasting = store_.count(RecordKind::kDaemon) + store_.count(RecordKind::kGpu);
  expect(store_.records.size() == lasting && vault_.fds.empty(),
         "at the end records or descriptors are left");
  expect(daemon_->executor.timer_count() == 0, "at the end there is a timer");
  for (const std::string& problem : problems_) std::fprintf(stderr, "%s\n", problem.c_str());
  CCO_ASSERT(problems_.empty());
}

}  // namespace
}  // namespace cco::memd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  cco::fuzz::Input input(bytes, size);
  cco::memd::Node(input).run();
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds(1);
  for (uint32_t seed = 1; seed <= 40; ++seed) {  // Any bytes are calls.
    std::mt19937 random(seed);
    std::string bytes(800, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    seeds.push_back(std::move(bytes));
  }
  return seeds;
}
