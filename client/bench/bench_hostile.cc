// cco-bench hostile: what a call costs a client that behaves while others do what they can to
// disturb it, beside the same call in peace.
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "client/ctl/statistics.h"

namespace cco::bench {
namespace {

constexpr uint32_t kCalls = 2000;  // Measured in a round.
constexpr uint32_t kSilentConnections = 100;
constexpr std::chrono::milliseconds kTimeout{30000};

/// Connections that say nothing, calls without end, and descriptors that nobody asked for, from
/// threads of this process, so that they take no more than its share of the machine.
class Attack {
 public:
  explicit Attack(const std::string& socket_path) : socket_path_(socket_path) {
    for (uint32_t i = 0; i < kSilentConnections; ++i) {
      for (const bool is_rpc : {true, false}) {
        auto socket = is_rpc ? connect_unix(socket_path, SOCK_STREAM)
                             : connect_unix(fd_socket_path(socket_path), SOCK_SEQPACKET);
        if (socket.ok()) silent_.push_back(*std::move(socket));
      }
    }
    threads_.emplace_back([this] { call(); });
    threads_.emplace_back([this] { offer(); });
  }
  /// UNAVAILABLE: not all of it took place.
  absl::Status took_place() const {
    if (calls_ > 0 && offers_ > 0 && silent_.size() == size_t{2} * kSilentConnections) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat("the attack made ", calls_.load(), " calls, ",
                                               offers_.load(), " offers and ", silent_.size(),
                                               " of ", 2 * kSilentConnections,
                                               " silent connections: raise the limits of "
                                               "cco-memd and of this process"));
  }
  ~Attack() {
    ended_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void call() {
    auto connection = Connection::open(socket_path_, kTimeout);
    const v1::ListSessionsRequest request;
    while (connection.ok() && !ended_) {
      v1::ListSessionsResponse response;
      (void)(*connection)->call(&v1::MemdService::Stub::ListSessions, request, &response, kTimeout);
      ++calls_;
    }
  }
  void offer() {
    auto connection = Connection::open(socket_path_, kTimeout);
    const UniqueFd memory(::memfd_create("offer", MFD_CLOEXEC));
    while (connection.ok() && !ended_) {
      (void)(*connection)->offer(memory);
      ++offers_;
    }
  }

  const std::string socket_path_;
  std::vector<UniqueFd> silent_;
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> calls_{0}, offers_{0};
  std::vector<std::thread> threads_;
};

absl::StatusOr<std::vector<double>> time_calls(Context& context) {
  std::vector<double> samples;
  for (uint32_t call = 0; call < kCalls; ++call) {
    CCO_ASSIGN_OR_RETURN(const double us, time_us([&] { return get_node(context).status(); }));
    samples.push_back(us);
  }
  return samples;
}

}  // namespace

absl::Status bench_hostile(Context& context) {
  std::vector<double> calm, attacked, ratios;
  for (uint32_t round = 0; round < 5; ++round) {  // In turn, so that both meet the same machine.
    CCO_ASSIGN_OR_RETURN(const std::vector<double> in_peace, time_calls(context));
    const Attack attack(context.connection->socket_path());
    CCO_ASSIGN_OR_RETURN(const std::vector<double> under_attack, time_calls(context));
    CCO_RETURN_IF_ERROR(attack.took_place());
    calm.insert(calm.end(), in_peace.begin(), in_peace.end());
    attacked.insert(attacked.end(), under_attack.begin(), under_attack.end());
    ratios.push_back(spread_of(under_attack).p99 / spread_of(in_peace).p99);
  }
  context.results.add({"hostile", "GetNode", 0, 1, 0, 0}, attacked, "in peace", calm);
  context.results.note("p99 of a call under attack, over the same in peace",
                       spread_of(ratios).median, "times");
  return absl::OkStatus();
}

}  // namespace cco::bench
