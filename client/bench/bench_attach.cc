// cco-bench attach: many processes attach, form groups and make windows; then all is returned.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/bench/bench.h"
#include "client/ctl/child.h"
#include "client/ctl/statistics.h"

namespace cco::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPhaseTimeout{300};
constexpr std::chrono::seconds kReturnTimeout{30};
constexpr uint32_t kWorkerTimeoutMs = 120000;
constexpr uint64_t kWindowBytes = 4096;

// Targets of 256 processes, 64 groups, 4096 windows.
constexpr double kResidentTargetMib = 256;
constexpr double kAttachTargetMs = 250;
constexpr double kFdsPerSession = 4;
// The driver's handle (on host a descriptor, elsewhere often one too) and the export.
constexpr double kFdsPerSlab = 2;

// Between parent and worker: an order is a byte, its answer how long it took.
enum Order : char { kAttach = 'a', kJoin = 'j', kQuit = 'q' };
struct Answer {
  double elapsed_us;
};

struct Shape {
  uint32_t processes;
  uint32_t groups;
  uint32_t windows;
  uint32_t concurrency;
};

struct Worker {
  ctl::Child child;
  UniqueFd socket;
};

absl::StatusOr<Shape> shape_of(const Context& context) {
  const Settings& settings = context.settings;
  const auto choose = [&](uint32_t given, uint32_t host, uint32_t gpu) {
    return given != 0 ? given : context.is_host() ? host : gpu;
  };
  Shape shape;
  shape.processes = choose(settings.processes, 256, 8);
  shape.groups = choose(settings.groups, 64, 2);
  shape.windows = choose(settings.windows, 4096, 64);
  shape.concurrency =
      settings.concurrency != 0 ? settings.concurrency : std::thread::hardware_concurrency();
  if (shape.processes % shape.groups != 0 || shape.windows % shape.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(shape.processes, " processes and ",
                                                   shape.windows, " windows do not divide into ",
                                                   shape.groups, " groups"));
  }
  return shape;
}

void raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

absl::StatusOr<std::vector<Worker>> start_workers(const Context& context, const Shape& shape) {
  std::vector<Worker> workers;
  for (uint32_t i = 0; i < shape.processes; ++i) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("socketpair for process ", i));
    }
    UniqueFd ours(pair[0]);
    const UniqueFd theirs(pair[1]);
    const uint32_t ranks = shape.processes / shape.groups;
    ctl::ChildOptions options;
    options.command = {"/proc/self/exe", "attach-worker",
                       "--socket",       context.connection->socket_path(),
                       "--index",        absl::StrCat(i),
                       "--ranks",        absl::StrCat(ranks),
                       "--windows",      absl::StrCat(shape.windows / shape.groups),
                       "--group",        absl::StrCat(context.place.job, "-attach-", i / ranks)};
    options.in = theirs;
    CCO_ASSIGN_OR_RETURN(ctl::Child child, ctl::Child::start(options));
    workers.push_back(Worker{std::move(child), std::move(ours)});
  }
  return workers;
}

// Gives an order to all workers, `concurrency` at a time; returns how long each took.
absl::StatusOr<std::vector<double>> order_all(const std::vector<Worker>& workers, Order order,
                                              size_t concurrency) {
  const auto deadline = Clock::now() + kPhaseTimeout;
  std::vector<double> times;
  size_t ordered = 0;
  std::vector<pollfd> waiting;
  while (times.size() < workers.size()) {
    while (ordered < workers.size() && waiting.size() < concurrency) {
      const char byte = order;
      const int fd = workers[ordered++].socket.get();
      if (::send(fd, &byte, 1, MSG_NOSIGNAL) != 1) {
        return absl::ErrnoToStatus(errno, absl::StrCat("ordering process ", ordered - 1));
      }
      waiting.push_back({fd, POLLIN, 0});
    }
    ::poll(waiting.data(), waiting.size(), 1000);
    absl::Status failure;
    std::erase_if(waiting, [&](const pollfd& worker) {
      if (worker.revents == 0) return false;
      Answer answer;
      if (::recv(worker.fd, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer)) {
        times.push_back(answer.elapsed_us);
      } else {
        failure = absl::UnavailableError("a process ended early; its message is above");
      }
      return true;
    });
    CCO_RETURN_IF_ERROR(failure);
    if (Clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(workers.size() - times.size(), " processes have not answered order '",
                       std::string(1, order), "' after ", kPhaseTimeout.count(), " s"));
    }
  }
  return times;
}

struct Footprint {
  uint32_t sessions = 0;
  uint32_t fds = 0;
  uint32_t slabs = 0;
  uint64_t slab_bytes = 0;
  double resident_mib = 0;  // 0: the daemon is not to be seen from here.

  bool holds_more_than(const Footprint& other) const {
    return sessions > other.sessions || fds > other.fds || slabs > other.slabs ||
           slab_bytes > other.slab_bytes;
  }
};

double resident_mib_of(int64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == "VmRSS:" && file >> kib) return kib / 1024;
  }
  return 0;
}

absl::StatusOr<Footprint> footprint_of(Context& context) {
  CCO_ASSIGN_OR_RETURN(const v1::GetNodeResponse node, get_node(context));
  Footprint footprint;
  footprint.sessions = node.session_count();
  footprint.fds = node.open_fds();
  footprint.resident_mib = resident_mib_of(node.daemon_pid());
  for (const v1::Gpu& gpu : node.gpus()) {
    footprint.slabs += gpu.slab_count();
    footprint.slab_bytes += gpu.slab_bytes();
  }
  return footprint;
}

// Ends well once nothing is left of the workers; else says what.
absl::StatusOr<double> wait_for_return(Context& context, const Footprint& before) {
  const auto start = Clock::now();
  for (;;) {
    CCO_ASSIGN_OR_RETURN(const Footprint now, footprint_of(context));
    const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;
    if (!now.holds_more_than(before)) return elapsed.count();
    if (Clock::now() - start > kReturnTimeout) {
      return absl::DataLossError(absl::StrFormat(
          "%d s after the last process ended the daemon still holds %d sessions (%d before), %d "
          "descriptors (%d), %d slabs (%d), %d bytes (%d)",
          kReturnTimeout.count(), now.sessions, before.sessions, now.fds, before.fds, now.slabs,
          before.slabs, now.slab_bytes, before.slab_bytes));
    }
    ::poll(nullptr, 0, 10);
  }
}

void report_footprint(Context& context, const Shape& shape, const Footprint& before,
                      const Footprint& during, const std::vector<double>& attach_us,
                      double return_ms) {
  Results& results = context.results;
  const Spread attach = spread_of(attach_us);
  const double fds = static_cast<double>(during.fds - before.fds) -
                     kFdsPerSlab * static_cast<double>(during.slabs - before.slabs);
  results.note("processes attached", shape.processes, "");
  results.promise("attach, p99", attach.p99 / 1000, Bound::kAtMost, kAttachTargetMs, "ms");
  results.promise("daemon's descriptors per session, beside two for each slab",
                  fds / shape.processes, Bound::kAtMost, kFdsPerSession, "");
  if (during.resident_mib > 0) {
    results.promise("daemon's resident memory", during.resident_mib, Bound::kAtMost,
                    kResidentTargetMib, "MiB");
  }
  results.note("bytes of slabs", static_cast<double>(during.slab_bytes) / (1 << 20), "MiB");
  results.note("all returned after the last process", return_ms, "ms");
}

}  // namespace

absl::Status bench_attach(Context& context) {
  CCO_ASSIGN_OR_RETURN(const Shape shape, shape_of(context));
  if (context.place.process_count > 1) {
    return absl::InvalidArgumentError("attach starts its own processes: run it without a launcher");
  }
  raise_descriptor_limit();
  CCO_ASSIGN_OR_RETURN(const Footprint before, footprint_of(context));
  CCO_ASSIGN_OR_RETURN(std::vector<Worker> workers, start_workers(context, shape));
  CCO_ASSIGN_OR_RETURN(const std::vector<double> attach_us,
                       order_all(workers, kAttach, shape.concurrency));
  CCO_ASSIGN_OR_RETURN(const std::vector<double> join_us,
                       order_all(workers, kJoin, workers.size()));
  CCO_ASSIGN_OR_RETURN(const Footprint during, footprint_of(context));
  CCO_RETURN_IF_ERROR(order_all(workers, kQuit, workers.size()).status());
  for (const Worker& worker : workers) {
    const auto exit = worker.child.wait(kPhaseTimeout);
    if (!exit || exit->code() != 0) {
      return absl::InternalError(
          absl::StrCat("process ", worker.child.pid(), " ended with ", exit ? exit->code() : -1));
    }
  }
  workers.clear();
  CCO_ASSIGN_OR_RETURN(const double return_ms, wait_for_return(context, before));
  Subject subject{"attach", absl::StrCat("session, ", shape.concurrency, " at a time"), 0, 0, 0, 0};
  context.results.add(subject, attach_us, "", {});
  subject.variant = absl::StrCat("group of ", shape.processes / shape.groups, ", ",
                                 shape.windows / shape.groups, " windows, all at once");
  context.results.add(subject, join_us, "", {});
  report_footprint(context, shape, before, during, attach_us, return_ms);
  return absl::OkStatus();
}

namespace {

struct WorkerState {
  Client client;
  Group group;
  std::vector<Window> windows;
};

absl::Status join_and_create(WorkerState* state, uint32_t index, uint32_t ranks, uint32_t windows,
                             const std::string& name) {
  cco_client_info info{};
  CCO_RETURN_IF_ERROR(to_status(state->client.get_info(&info), "asking for the driver"));
  Group::Options group;
  group.rank = index % ranks;
  group.size = ranks;
  group.device = static_cast<int32_t>(index % info.gpu_count);
  group.name = name.c_str();
  group.timeout_ms = kWorkerTimeoutMs;
  CCO_RETURN_IF_ERROR(
      to_status(Group::create(state->client, group, &state->group), "joining " + name));
  Window::Options options;
  options.size_bytes = kWindowBytes;
  options.timeout_ms = kWorkerTimeoutMs;
  state->windows.resize(windows);
  for (Window& window : state->windows) {
    CCO_RETURN_IF_ERROR(
        to_status(Window::create(state->group, nullptr, options, &window), "creating a window"));
  }
  return absl::OkStatus();
}

absl::Status obey(WorkerState* state, char order, const std::string& socket, uint32_t index,
                  uint32_t ranks, uint32_t windows, const std::string& group) {
  if (order == kAttach) {
    Client::Options options;
    options.socket_path = socket.c_str();
    options.timeout_ms = kWorkerTimeoutMs;
    return to_status(Client::create(options, &state->client), "attaching");
  }
  if (order == kJoin) return join_and_create(state, index, ranks, windows, group);
  return absl::OkStatus();
}

}  // namespace

int attach_worker(const std::string& socket, uint32_t index, uint32_t ranks, uint32_t windows,
                  const std::string& group) {
  WorkerState state;
  char order = 0;
  while (order != kQuit && ::read(STDIN_FILENO, &order, 1) == 1) {
    const absl::StatusOr<double> elapsed_us =
        time_us([&] { return obey(&state, order, socket, index, ranks, windows, group); });
    if (!elapsed_us.ok()) {
      std::cerr << "cco-bench: process " << index << ": " << elapsed_us.status().message() << "\n";
      return 1;
    }
    const Answer answer{*elapsed_us};
    if (::send(STDIN_FILENO, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer)) return 1;
  }
  return order == kQuit ? 0 : 1;
}

}  // namespace cco::bench
