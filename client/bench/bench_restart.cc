// cco-bench restart: the daemon is killed under many sessions, groups and windows; how long until
// the next one serves, and until every session has had a call answered. It starts daemons of its
// own, whatever runs.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "client/bench/private_daemon.h"
#include "client/ctl/statistics.h"

namespace cco::bench {
namespace {

constexpr uint32_t kGroups = 25, kRanks = 4, kSessions = kGroups * kRanks;
constexpr uint32_t kWindowsPerGroup = 40, kWindows = kGroups * kWindowsPerGroup;
constexpr uint64_t kWindowBytes = 4096;
constexpr uint64_t kSlotBytes = uint64_t{4} << 30;  // The least: all maps are in this process.
constexpr uint32_t kRounds = 10;
constexpr uint32_t kTimeoutMs = 60000;
constexpr double kServingTargetMs = 300, kReconnectTargetMs = 2000;

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// One session, which is one rank and holds its group's windows.
struct Session {
  Client client;
  Group group;
  std::vector<Window> windows;

  absl::Status open(const std::string& socket, uint32_t index, uint32_t gpu_count) {
    const Client::Options options{socket.c_str(), kTimeoutMs};
    CCO_RETURN_IF_ERROR(to_status(Client::create(options, &client), "attaching"));
    const std::string name = absl::StrCat("restart-", index / kRanks);
    Group::Options member;
    member.rank = index % kRanks;
    member.size = kRanks;
    member.device = static_cast<int32_t>(index % gpu_count);
    member.name = name.c_str();
    member.slot_bytes = kSlotBytes;
    member.timeout_ms = kTimeoutMs;
    CCO_RETURN_IF_ERROR(to_status(Group::create(client, member, &group), "joining " + name));
    windows.resize(kWindowsPerGroup);
    for (Window& window : windows) {
      CCO_RETURN_IF_ERROR(to_status(
          Window::create(group, nullptr, {.size_bytes = kWindowBytes}, &window), "a window"));
    }
    return absl::OkStatus();
  }
};

// `body` for each session, a thread each: a rank's calls wait for those of others.
absl::Status for_all(std::vector<Session>& sessions,
                     const std::function<absl::Status(Session&, uint32_t index)>& body) {
  std::vector<absl::Status> outcomes(sessions.size());
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < sessions.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = body(sessions[i], i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) CCO_RETURN_IF_ERROR(outcome);
  return absl::OkStatus();
}

// Of a daemon that has just been killed: from the start of the next one to an answer of its own.
absl::StatusOr<double> time_to_serve(PrivateDaemon& daemon, Clock::time_point start) {
  CCO_RETURN_IF_ERROR(daemon.start_next());
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                       Connection::open(daemon.socket(), std::chrono::milliseconds(kTimeoutMs)));
  v1::GetNodeResponse node;
  CCO_RETURN_IF_ERROR(connection->call(&v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &node,
                                       connection->timeout()));
  return microseconds_since(start);
}

struct Samples {
  std::vector<double> serving, reconnected, empty;
};

absl::Status restart_once(PrivateDaemon& full, PrivateDaemon& empty, std::vector<Session>& sessions,
                          Samples* samples) {
  empty.kill();
  CCO_ASSIGN_OR_RETURN(const double empty_us, time_to_serve(empty, Clock::now()));
  full.kill();
  const auto start = Clock::now();
  absl::Status called;
  std::thread callers([&] {  // A barrier is a call of each session's.
    called = for_all(sessions, [](Session& session, uint32_t) {
      return to_status(session.group.barrier(kTimeoutMs), "a barrier over the restart");
    });
  });
  const absl::StatusOr<double> serving_us = time_to_serve(full, start);
  callers.join();
  const double reconnected_us = microseconds_since(start);
  CCO_RETURN_IF_ERROR(serving_us.status());
  CCO_RETURN_IF_ERROR(called);
  samples->empty.push_back(empty_us);
  samples->serving.push_back(*serving_us);
  samples->reconnected.push_back(reconnected_us);
  return absl::OkStatus();
}

void add_results(Results& results, const Samples& samples) {
  const std::string held = absl::StrCat(kSessions, " sessions, ", kWindows, " windows");
  results.add({"restart", "serving, " + held, 0, kSessions, 0, 0}, samples.serving, "nothing kept",
              samples.empty);
  results.add({"restart", "all sessions answered", 0, kSessions, 0, 0}, samples.reconnected, "",
              {});
  const auto worst = [](const std::vector<double>& times_us) {
    return *std::max_element(times_us.begin(), times_us.end()) / 1000;
  };
  results.note("restart to serving, p50", spread_of(samples.serving).median / 1000, "ms");
  results.promise("restart to serving, " + held + ", worst", worst(samples.serving), Bound::kAtMost,
                  kServingTargetMs, "ms");
  results.note("restart to all sessions answered, p50",
               spread_of(samples.reconnected).median / 1000, "ms");
  results.promise("restart to all sessions answered, worst", worst(samples.reconnected),
                  Bound::kAtMost, kReconnectTargetMs, "ms");
}

}  // namespace

absl::Status bench_restart(Context& context) {
  if (context.place.process_count > 1) {
    return absl::InvalidArgumentError(
        "restart starts daemons of its own: run it without a launcher");
  }
  PrivateDaemon::Options options{context.settings.daemon, context.gpus->info().driver, "", true};
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<PrivateDaemon> empty, PrivateDaemon::start(options));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<PrivateDaemon> full, PrivateDaemon::start(options));
  std::vector<Session> sessions(kSessions);
  const auto gpu_count = static_cast<uint32_t>(context.gpus->gpus().size());
  CCO_RETURN_IF_ERROR(for_all(sessions, [&](Session& session, uint32_t index) {
    return session.open(full->socket(), index, gpu_count);
  }));
  Samples samples;
  for (uint32_t round = 0; round < kRounds; ++round) {
    CCO_RETURN_IF_ERROR(restart_once(*full, *empty, sessions, &samples));
  }
  add_results(context.results, samples);
  return absl::OkStatus();
}

}  // namespace cco::bench
