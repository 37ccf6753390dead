// cco-bench peer_loss: a process is killed while a kernel of another one waits for it; how long
// until that kernel has returned "peer lost", with the right name.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cco/device.hpp"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "client/ctl/child.h"
#include "client/ctl/statistics.h"
#include "device/kernels/kernels.h"
#include "device/transport/host_memory.h"

namespace cco::bench {
namespace {

using Clock = std::chrono::steady_clock;
using device::WaitResult;
using device::WaitStatus;

constexpr uint32_t kSurvivor = 0, kVictim = 1, kRanks = 2;
constexpr double kTargetMs = 100;
constexpr std::chrono::seconds kStartTimeout{60};
constexpr std::chrono::seconds kEndTimeout{30};
constexpr uint64_t kDeadlineNs =
    20'000'000'000;  // Of the kernel: what a loss that goes unseen takes.

Rank::Plan plan_of(uint32_t rank, const std::string& group, const GpuSet& gpus) {
  Rank::Plan plan;
  plan.rank = rank;
  plan.size = kRanks;
  plan.device = static_cast<int32_t>(rank % gpus.gpus().size());
  plan.group = group;
  plan.comm.barrier_count = 1;
  return plan;
}

/// The process that will be killed.
struct Victim {
  ctl::Child child;
  UniqueFd line;

  static absl::StatusOr<Victim> start(const Context& context, const std::string& group);
  absl::Status wait_until_joined() const;
};

absl::StatusOr<Victim> Victim::start(const Context& context, const std::string& group) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair for the process to be killed");
  }
  UniqueFd ours(pair[0]);
  const UniqueFd theirs(pair[1]);
  ctl::ChildOptions options;
  options.command = {"/proc/self/exe", "peer-loss-victim",
                     "--socket",       context.connection->socket_path(),
                     "--group",        group};
  options.in = theirs;
  CCO_ASSIGN_OR_RETURN(ctl::Child child, ctl::Child::start(options));
  return Victim{std::move(child), std::move(ours)};
}

absl::Status Victim::wait_until_joined() const {
  pollfd ready{line.get(), POLLIN, 0};
  char byte = 0;
  const auto timeout = std::chrono::milliseconds(kStartTimeout);
  if (::poll(&ready, 1, static_cast<int>(timeout.count())) == 1 &&
      ::recv(line.get(), &byte, 1, 0) == 1) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("rank ", kVictim, " has not joined within ",
                                             kStartTimeout.count(),
                                             " s, or ended; its message is above"));
}

/// The kernel that waits, and what it has told.
class Waiter {
 public:
  static absl::StatusOr<Waiter> create(Rank& rank) {
    Waiter waiter(rank);
    CCO_ASSIGN_OR_RETURN(waiter.function_, rank.context().load(kernels::bench(), "wait_noted"));
    CCO_ASSIGN_OR_RETURN(waiter.words_,
                         HostMemory::allocate(&rank.context(), 2 * sizeof(uint64_t)));
    return waiter;
  }

  absl::Status begin(uint32_t threads) {
    const uint64_t begun = words_.address(), result = begun + sizeof(uint64_t);
    CCO_RETURN_IF_ERROR(launch(rank_->stream(), function_, {1, threads, 0}, rank_->comm(),
                               kDeadlineNs, begun, result));
    for (const auto limit = Clock::now() + kStartTimeout; word(0) == 0;) {
      if (Clock::now() > limit) {
        return absl::DeadlineExceededError(absl::StrCat(
            "the kernel that is to wait has not begun within ", kStartTimeout.count(), " s"));
      }
      std::this_thread::yield();
    }
    return absl::OkStatus();
  }

  absl::Status end() {
    CCO_RETURN_IF_ERROR(rank_->stream().synchronize());
    const WaitResult result = WaitResult::decode(word(1));
    if (result.status == WaitStatus::kPeerLost && result.rank == kVictim) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the kernel returned status ",
                                            static_cast<uint32_t>(result.status), ", rank ",
                                            result.rank, " instead of peer lost (", kVictim, ")"));
  }

 private:
  explicit Waiter(Rank& rank) : rank_(&rank) {}
  uint64_t word(size_t index) const {
    return reinterpret_cast<const volatile uint64_t*>(words_.data())[index];
  }
  Rank* rank_;
  GpuFunction function_;
  HostMemory words_;
};

// Milliseconds from the kill to the kernel's end.
absl::StatusOr<double> lose_peer(Context& context, const std::string& group) {
  CCO_ASSIGN_OR_RETURN(const Victim victim, Victim::start(context, group));
  CCO_ASSIGN_OR_RETURN(
      const std::unique_ptr<Rank> rank,
      Rank::join(context.client, *context.gpus, plan_of(kSurvivor, group, *context.gpus)));
  CCO_RETURN_IF_ERROR(victim.wait_until_joined());
  CCO_ASSIGN_OR_RETURN(Waiter waiter, Waiter::create(*rank));
  CCO_RETURN_IF_ERROR(waiter.begin(context.is_host() ? 1 : 128));
  const auto start = Clock::now();
  victim.child.signal_group(SIGKILL);
  CCO_RETURN_IF_ERROR(waiter.end());
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;
  if (!victim.child.wait(kEndTimeout)) {
    return absl::DeadlineExceededError(absl::StrCat("process ", victim.child.pid(),
                                                    " was killed and has not ended within ",
                                                    kEndTimeout.count(), " s"));
  }
  return elapsed.count();
}

absl::Status join_and_stay(const std::string& socket, const std::string& group) {
  Client client;
  Client::Options options;
  options.socket_path = socket.c_str();
  CCO_RETURN_IF_ERROR(to_status(Client::create(options, &client), "attaching to cco-memd"));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<GpuSet> gpus, GpuSet::open(client));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Rank> rank,
                       Rank::join(client, *gpus, plan_of(kVictim, group, *gpus)));
  char byte = 'j';
  if (::send(STDIN_FILENO, &byte, 1, MSG_NOSIGNAL) != 1) {
    return absl::ErrnoToStatus(errno, "telling that this rank has joined");
  }
  (void)::read(STDIN_FILENO, &byte, 1);  // Nothing comes: it is killed here.
  return absl::OkStatus();
}

}  // namespace

absl::Status bench_peer_loss(Context& context) {
  if (context.place.process_count > 1) {
    return absl::InvalidArgumentError(
        "peer_loss starts its own process: run it without a launcher");
  }
  std::vector<double> times_us;
  const Settings& settings = context.settings;
  for (uint32_t i = 0; i < settings.warm_up + settings.repetitions; ++i) {
    CCO_ASSIGN_OR_RETURN(const double elapsed_ms,
                         lose_peer(context, absl::StrCat(context.place.job, "-peer-loss-", i)));
    if (i >= settings.warm_up) times_us.push_back(elapsed_ms * 1000);
  }
  const Spread spread = spread_of(times_us);
  context.results.add({"peer_loss", "barrier", 0, kRanks, 1, context.is_host() ? 1u : 128u},
                      times_us, "", {});
  context.results.note("peer killed in mid-wait, until the kernel has returned, p50",
                       spread.median / 1000, "ms");
  context.results.promise("peer killed in mid-wait, until the kernel has returned, p99",
                          spread.p99 / 1000, Bound::kAtMost, kTargetMs, "ms");
  return absl::OkStatus();
}

int peer_loss_victim(const std::string& socket, const std::string& group) {
  const absl::Status status = join_and_stay(socket, group);
  if (status.ok()) return 0;
  std::cerr << "cco-bench: rank " << kVictim << " of peer_loss: " << status.message() << "\n";
  return 1;
}

}  // namespace cco::bench
