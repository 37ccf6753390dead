// Goal    no sequence of frames gives a descriptor to a session that it was not issued to, or
//         twice, or after its rank has left; what was issued is given; none is kept.
// Method  the real fd server on a socket, four connections of this process. The input says what
//         they do: hellos with and without tokens, tickets of any session, true and made up, offers
//         with and without a descriptor, noise, ends; and when ranks get tickets and leave. Which
//         descriptor comes for which ticket is known by its inode.
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "client/base/inode.h"
#include "client/base/status_macros.h"
#include "daemon/service/fd_server.h"
#include "daemon/sys/listener.h"
#include "daemon/sys/memfd_notice_board.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/rpc_fields.h"
#include "tests/unit/daemon/fakes.h"
#include "tests/unit/daemon/told_pool.h"

namespace cco::memd {
namespace {

using fuzz::Input;

constexpr size_t kClients = 4;

/// Where the server listens; it goes with the process.
class Listener {
 public:
  Listener() {
    CCO_ASSERT(::mkdtemp(folder_) != nullptr);
    auto socket = listen_on(path(), SOCK_SEQPACKET, ListenerOptions());
    CCO_ASSERT(socket.ok());
    socket_ = *std::move(socket);
  }
  ~Listener() { std::filesystem::remove_all(folder_); }
  std::string path() const { return std::string(folder_) + "/fd.sock"; }
  const UniqueFd& socket() const { return socket_; }

 private:
  char folder_[32] = "/tmp/cco-fd-fuzz-XXXXXX";
  UniqueFd socket_;
};

const Listener& listener() {
  static const Listener kept;
  return kept;
}

UniqueFd memory_file() { return UniqueFd(::memfd_create("fuzz", MFD_CLOEXEC)); }

int lowest_free_fd() {
  const UniqueFd probe(::dup(0));
  return probe.get();
}

BrokerOptions options() {
  BrokerOptions options;
  options.slab_bytes = options.control_bytes = kUnitBytes;
  options.limits.tickets_per_session = 8;
  return options;
}

struct Client {
  UniqueFd socket;
  SessionId session{};  // 0: no hello yet.
  std::string token = "none";
  std::optional<std::string> asked;  // The ticket of its last request.
};

/// What a ticket is good for.
struct Issue {
  SessionId session{};
  GroupId group{};
  uint64_t inode = 0;
};

class Node {
 public:
  explicit Node(Input& input)
      : input_(input),
        loop_(*EventLoop::create()),
        pool_(1, 64, problems_),
        broker_(options(),
                {*loop_, pool_, notices_, journal_, processes_, [this] { return secret(); }}),
        server_(*loop_, broker_, outbox_, journal_, {}) {
    pool_.is_mapped = [](uint64_t) { return false; };
    CCO_ASSERT(server_.serve(listener().socket()).ok());
  }
  ~Node() {
    pool_.die();
    broker_.stop();
  }
  void run() {
    while (!input_.at_end()) {
      step(clients_[input_.below(kClients)]);
      for (int round = 0; round < 2; ++round) {  // The second for what the first has posted.
        loop_->quit();
        loop_->run();
      }
      for (Client& client : clients_) read_answers(client);
      CCO_ASSERT(problems_.empty());
    }
  }

 private:
  std::string secret() {
    const std::string number = absl::StrCat(++secrets_);
    return number + std::string(kSecretBytes - number.size(), '.');
  }
  void step(Client& client);
  void connect(Client& client);
  void redeem(Client& client);
  void make_tickets(const Client& client);
  void leave(const Client& client);
  void read_answers(Client& client);
  void check_grant(Client& client, const FdFrame& frame);

  void send(const Client& client, FdFrameType type, const std::string& payload,
            const UniqueFd* fd = nullptr) {
    if (client.socket) {
      (void)send_frame(client.socket, type, absl::StatusCode::kOk, payload, fd);
    }
  }

  Input& input_;
  Problems problems_;
  std::unique_ptr<EventLoop> loop_;
  ToldPool pool_;
  MemfdNoticeBoard notices_;
  NoJournal journal_;
  FakeProcesses processes_;
  DirectOutbox outbox_;
  uint64_t secrets_ = 0;
  Broker broker_;
  FdServer server_;
  Client clients_[kClients];
  std::map<std::string, Issue> issued_;
  std::vector<std::string> tickets_{"none"};  // All that ever were.
};

void Node::connect(Client& client) {
  client = Client();
  auto socket = connect_unix(listener().path(), SOCK_SEQPACKET);
  if (socket.ok()) client.socket = *std::move(socket);
}

void Node::redeem(Client& client) {
  client.asked = tickets_[input_.below(tickets_.size())];
  send(client, FdFrameType::kRedeem, *client.asked);
}

void Node::make_tickets(const Client& client) {
  Session* session = broker_.session(client.session);
  if (session == nullptr) return;
  if (session->ranks.empty()) {
    JoinRequest request;
    request.name = absl::StrCat("group ", ++secrets_);
    request.size = 1;
    request.gpu_uuid = "TOLD-0";
    pool_.begin_batch("join");
    broker_.join(*session, std::move(request), [](const absl::StatusOr<JoinResult>&) {});
    if (pool_.has_call(0)) pool_.answer(0, true);
  }
  if (session->ranks.empty()) return;
  const GroupId group = session->ranks.begin()->first;
  const auto tickets = broker_.export_slab(*session, group, 0, 0);
  if (!tickets.ok()) return;
  const Group& made = *broker_.groups().at(group);
  const uint64_t slab = inode_of(broker_.slabs().fd(made.slabs.at(0).ids[0])->get());
  const uint64_t page = inode_of(made.ranks[0].notice->fd().get());
  issued_[tickets->slabs[0].ticket] = {client.session, group, slab};
  issued_[tickets->notice] = {client.session, group, page};
  tickets_.push_back(tickets->slabs[0].ticket);
  tickets_.push_back(tickets->notice);
}

void Node::leave(const Client& client) {
  Session* session = broker_.session(client.session);
  if (session == nullptr || session->ranks.empty()) return;
  const GroupId group = session->ranks.begin()->first;
  CCO_ASSERT(broker_.leave(*session, group, 0).ok());
  std::erase_if(issued_, [&](const auto& entry) { return entry.second.group == group; });
}

void Node::step(Client& client) {
  const UniqueFd memory = memory_file();
  client.asked.reset();
  switch (input_.below(12)) {
    case 0:
      return connect(client);
    case 1:
    case 2:
      if (!client.socket) connect(client);
      return send(client, FdFrameType::kHello, "");
    case 3:  // With somebody's token.
      return send(client, FdFrameType::kHello, clients_[input_.below(kClients)].token);
    case 4:
    case 5:
      return make_tickets(client);
    case 6:
      return leave(client);
    case 7:
      return send(client, FdFrameType::kOffer, "", input_.below(4) == 0 ? nullptr : &memory);
    case 8:
      return send(client, static_cast<FdFrameType>(input_.byte()),
                  std::string(input_.below(40), 'x'), input_.below(2) == 0 ? nullptr : &memory);
    case 9: {
      std::string noise(input_.below(64), '\0');
      for (char& byte : noise) byte = static_cast<char>(input_.byte());
      if (client.socket) ::send(client.socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
      return;
    }
    default:
      return redeem(client);
  }
}

void Node::check_grant(Client& client, const FdFrame& frame) {
  const bool was_asked = client.asked.has_value();
  const auto issue = was_asked ? issued_.find(*client.asked) : issued_.end();
  const bool is_due = issue != issued_.end() && issue->second.session == client.session;
  CCO_ASSERT(static_cast<bool>(frame.fd) == (frame.code == absl::StatusCode::kOk));
  CCO_ASSERT(static_cast<bool>(frame.fd) == is_due);
  if (!is_due) return;
  CCO_ASSERT(inode_of(frame.fd.get()) == issue->second.inode);
  issued_.erase(issue);
}

void Node::read_answers(Client& client) {
  while (client.socket) {
    pollfd ready{client.socket.get(), POLLIN, 0};
    if (::poll(&ready, 1, 0) == 0) return;
    const absl::StatusOr<FdFrame> frame = receive_frame(client.socket);
    if (!frame.ok()) {  // The end: the session's tickets are void.
      std::erase_if(issued_,
                    [&](const auto& entry) { return entry.second.session == client.session; });
      client = Client();
      return;
    }
    if (frame->type == FdFrameType::kGrant) {
      check_grant(client, *frame);
      continue;
    }
    CCO_ASSERT(!frame->fd);
    if (frame->type != FdFrameType::kWelcome || frame->code != absl::StatusCode::kOk) continue;
    CCO_ASSERT(client.session == SessionId{});
    client.token = frame->payload.substr(0, kSecretBytes);
    client.session = SessionId{broker_.last_ids().session};
  }
}

}  // namespace
}  // namespace cco::memd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  cco::memd::listener();
  const int before = cco::memd::lowest_free_fd();
  cco::fuzz::Input input(bytes, size);
  cco::memd::Node(input).run();
  CCO_ASSERT(cco::memd::lowest_free_fd() == before);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds(1);
  for (uint32_t seed = 1; seed <= 40; ++seed) {  // Any bytes are steps.
    std::mt19937 random(seed);
    std::string bytes(400, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    seeds.push_back(std::move(bytes));
  }
  return seeds;
}
