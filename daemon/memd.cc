#include "daemon/memd.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "client/base/inode.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"
#include "daemon/service/fd_server.h"
#include "daemon/service/memd_service.h"
#include "daemon/state/recorder.h"
#include "daemon/sys/acceptor.h"
#include "daemon/sys/driver_library.h"
#include "daemon/sys/event_loop.h"
#include "daemon/sys/gpu_workers.h"
#include "daemon/sys/listener.h"
#include "daemon/sys/memfd_notice_board.h"
#include "daemon/sys/notify.h"
#include "daemon/sys/proc_processes.h"
#include "device/runtime/visible_gpus.h"

namespace cco::memd {
namespace {

constexpr Milliseconds kDrainTimeout{2000};
constexpr int kMaxMessageBytes = 1024 * 1024;
// A client makes its first call at once. gRPC itself would keep a silent connection for ever.
constexpr Milliseconds kFirstCallTimeout{10000};

uint64_t new_incarnation() {
  uint64_t value = 0;
  while (value == 0) std::memcpy(&value, random_bytes(sizeof value).data(), sizeof value);
  return value;
}

absl::StatusOr<int64_t> optional_group(const std::string& name) {
  if (name.empty()) return -1;
  CCO_ASSIGN_OR_RETURN(uint32_t gid, group_id(name));
  return gid;
}

absl::StatusOr<Listeners> open_listeners(const Config& config, std::vector<UniqueFd> sockets) {
  if (!sockets.empty()) return Listeners::adopt(config.socket_path, std::move(sockets));
  CCO_ASSIGN_OR_RETURN(const int64_t gid, optional_group(config.socket_group));
  return Listeners::create({config.socket_path, config.socket_mode, gid});
}

// A driver's library keeps a GPU's device files open until the process ends.
std::string drain_refusal(const GpuDriver& driver, bool keeps_state) {
  if (driver.library().empty()) return "";
  if (!keeps_state) {
    return absl::StrCat("the driver '", std::string(driver.name()),
                        "' lets go of a GPU only when the process ends, and without a state_dir "
                        "all groups end with it. Set state_dir in cco-memd's configuration, or "
                        "stop cco-memd");
  }
  return std::string(check_selectable(driver.devices()).message());
}

BrokerOptions broker_options(const Config& config, uint64_t incarnation,
                             uint64_t kept_descriptors) {
  BrokerOptions options;
  options.limits = config.limits;
  options.tenants = config.tenants;
  options.incarnation = incarnation;
  options.kept_descriptors = kept_descriptors;
  options.slab_bytes = config.slab_bytes;
  options.control_bytes = config.control_bytes;
  options.default_timeout = config.default_timeout;
  options.ticket_lifetime = config.ticket_lifetime;
  options.allow_unenforced_read_only = config.allow_unenforced_read_only;
  options.memory_pressure_percent = config.memory_pressure_percent;
  return options;
}

}  // namespace

// In the order of construction: each may use those before it, and goes before them.
struct Memd::Parts {
  Parts(GpuDriver& driver, Journal& journal, Listeners taken, std::unique_ptr<EventLoop> made,
        std::unique_ptr<Recorder> keeper, const std::vector<GpuDevice>& closed,
        BrokerOptions options, int64_t operator_gid)
      : journal(journal),
        operator_gid(operator_gid),
        incarnation(options.incarnation),
        loop(std::move(made)),
        listeners(std::move(taken)),
        recorder(std::move(keeper)),
        outbox(recorder != nullptr ? static_cast<Outbox&>(*recorder) : direct),
        workers(driver, closed, *loop),
        library(driver.library()),
        broker(std::move(options), {*loop, workers, notices, journal, processes,
                                    [] { return random_bytes(kSecretBytes); }}),
        service(broker, *loop, outbox,
                {CCO_VERSION, std::string(driver.name()), driver.version(), loop->now(),
                 [this] { return library.change(); }}),
        fd_server(*loop, broker, outbox, journal,
                  {operator_gid, incarnation, recorder != nullptr}) {}

  Journal& journal;
  int64_t operator_gid;
  uint64_t incarnation;
  std::unique_ptr<EventLoop> loop;
  Listeners listeners;
  MemfdNoticeBoard notices;
  ProcProcesses processes;
  DirectOutbox direct;
  std::unique_ptr<Recorder> recorder;  // Null: nothing is kept.
  Outbox& outbox;
  GpuWorkers workers;
  DriverLibrary library;
  Broker broker;
  MemdService service;
  FdServer fd_server;
  BorrowedFd broken{-1};  // The vault's.
  UniqueFd library_watch;
  std::string told_change;  // Of the library.
  std::unique_ptr<grpc::Server> server;
  std::thread stopper;  // Ends gRPC while the loop still answers the calls that it waits for.
  Acceptor acceptor;    // Of the RPC socket.
  bool drained = true;
  bool restarts = false;
  bool told_to_stop = false;  // By a signal: that goes before a restart.
};

Memd::Memd(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Memd::~Memd() = default;

absl::StatusOr<std::unique_ptr<Memd>> Memd::create(const Config& config, GpuDriver& driver,
                                                   Journal& journal, const Keeping* keeping,
                                                   std::vector<UniqueFd> sockets) {
  CCO_ASSIGN_OR_RETURN(const int64_t operator_gid, optional_group(config.operator_group));
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::create());
  CCO_ASSIGN_OR_RETURN(Listeners listeners, open_listeners(config, std::move(sockets)));
  std::unique_ptr<Recorder> recorder;
  Decoded left;
  if (keeping != nullptr) {
    MemfdNoticeBoard notices;
    recorder =
        std::make_unique<Recorder>(Recorder::Ports{*loop, keeping->store, keeping->vault, journal});
    CCO_ASSIGN_OR_RETURN(left,
                         recorder->load(std::string(driver.name()), driver.devices(), notices));
  }
  const uint64_t incarnation =
      left.facts.incarnation != 0 ? left.facts.incarnation : new_incarnation();
  BrokerOptions options =
      broker_options(config, incarnation, keeping == nullptr ? 0 : keeping->vault.limit());
  options.drains_by_restart = !driver.library().empty();
  options.drain_refusal = drain_refusal(driver, keeping != nullptr);
  auto parts =
      std::make_unique<Parts>(driver, journal, std::move(listeners), std::move(loop),
                              std::move(recorder), left.closed, std::move(options), operator_gid);
  std::unique_ptr<Memd> memd(new Memd(std::move(parts)));
  if (keeping != nullptr) CCO_RETURN_IF_ERROR(memd->adopt(std::move(left), keeping->vault));
  CCO_RETURN_IF_ERROR(memd->watch_driver());
  CCO_RETURN_IF_ERROR(memd->listen());
  return memd;
}

absl::Status Memd::adopt(Decoded left, const FdVault& vault) {
  Parts& parts = *parts_;
  const std::vector<std::string> losses = std::move(left.losses);
  const bool is_new = left.facts.incarnation == 0;
  CCO_RETURN_IF_ERROR(parts.recorder->restore(parts.broker, std::move(left), parts.incarnation));
  parts.loop->set_after_round([this, &parts] {
    parts.recorder->flush();
    if (parts.broker.wants_restart() && parts.recorder->accepting().ok()) restart();
  });
  parts.broken = vault.broken();
  if (parts.broken.get() >= 0) {
    CCO_RETURN_IF_ERROR(
        parts.loop->watch(parts.broken, [&parts] { parts.recorder->recover_vault(); }));
  }
  for (const std::string& loss : losses) {
    parts.journal.record(Severity::kError, "state_lost", absl::StrCat("what=\"", loss, "\""));
  }
  for (const auto& [gpu, drain] : parts.broker.drains()) {
    if (drain.service != GpuService::kDrained || parts.broker.service(gpu) == drain.service)
      continue;
    parts.journal.record(
        Severity::kError, "gpu_not_released",
        absl::StrCat("gpu=", parts.workers.gpus()[static_cast<size_t>(gpu)].uuid,
                     " reason=\"the driver's library was told to leave it out, and "
                     "opened it\""));
  }
  if (is_new) return absl::OkStatus();
  parts.journal.record(Severity::kInfo, "state_adopted",
                       absl::StrCat("sessions=", parts.broker.sessions().size(),
                                    " groups=", parts.broker.groups().size(),
                                    " windows=", parts.broker.window_count(),
                                    " slabs=", parts.broker.slabs().size()));
  return absl::OkStatus();
}

void Memd::tell_driver_change() {
  Parts& parts = *parts_;
  const std::string change = parts.library.change();
  if (change != std::exchange(parts.told_change, change) && !change.empty()) {
    parts.journal.record(Severity::kWarning, "driver_changed",
                         absl::StrCat("what=\"", change, "\""));
  }
}

absl::Status Memd::watch_driver() {
  Parts& parts = *parts_;
  absl::StatusOr<UniqueFd> watch = parts.library.watch();
  if (!watch.ok()) {  // Then only who asks is told.
    parts.journal.record(Severity::kWarning, "driver_not_watched",
                         absl::StrCat("reason=\"", std::string(watch.status().message()), "\""));
    return absl::OkStatus();
  }
  parts.library_watch = *std::move(watch);
  if (!parts.library_watch) return absl::OkStatus();
  return parts.loop->watch(parts.library_watch, [this] {
    DriverLibrary::drain(parts_->library_watch);
    tell_driver_change();
  });
}

absl::Status Memd::listen() {
  auto& parts = parts_;
  // gRPC gets no port: connections are accepted here, where the kernel says who they are.
  grpc::ServerBuilder builder;
  builder.RegisterService(&parts->service);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) return absl::InternalError("gRPC could not start a server");

  CCO_RETURN_IF_ERROR(parts->fd_server.serve(parts->listeners.fds()));
  return parts->loop->watch(parts->listeners.rpc(), [this] { accept_rpc(); });
}

void Memd::accept_rpc() {
  UniqueFd socket = parts_->acceptor.accept(parts_->listeners.rpc(), [this](const UniqueFd&) {
    parts_->journal.record_refusal(Severity::kError, "client_refused", "all",
                                   "reason=\"no file descriptor left\"");
  });
  if (!socket) return;
  absl::StatusOr<Peer> peer = read_peer(socket, parts_->operator_gid);
  absl::Status status = peer.status();
  if (status.ok()) {
    peer->who.cgroup = read_cgroup(*peer);
    status = parts_->service.connected(socket.get(), peer->who);
  }
  if (!status.ok()) {
    parts_->journal.record_refusal(Severity::kError, "client_refused",
                                   peer.ok() ? absl::StrCat("uid=", peer->who.uid) : "unknown",
                                   absl::StrCat("reason=\"", std::string(status.message()), "\""));
    return;
  }
  const int fd = socket.release();
  parts_->loop->call_at(parts_->loop->now() + kFirstCallTimeout,
                        [this, fd, inode = inode_of(fd)] { hang_up_if_silent(fd, inode); });
  grpc::AddInsecureChannelFromFd(parts_->server.get(), fd);
}

// The descriptor is gRPC's, which may have closed it. Sockets are made on this thread alone: one of
// the same inode is still that connection.
void Memd::hang_up_if_silent(int fd, uint64_t inode) {
  if (inode == 0 || inode_of(fd) != inode || parts_->service.has_called(fd)) return;
  ::shutdown(fd, SHUT_RDWR);
  parts_->journal.record_refusal(Severity::kWarning, "client_refused", "silent",
                                 "reason=\"no call came\"");
}

absl::Status Memd::run(bool handle_signals) {
  Parts& parts = *parts_;
  UniqueFd signals;
  if (handle_signals) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signals.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals)
      return absl::ResourceExhaustedError(absl::StrCat("signalfd: ", std::strerror(errno)));
    CCO_RETURN_IF_ERROR(parts.loop->watch(signals, [&] {
      signalfd_siginfo info;
      if (::read(signals.get(), &info, sizeof info) != sizeof info) return;
      parts.told_to_stop = true;
      stop();
    }));
  }
  std::function<void()> feed_watchdog;
  uint64_t watchdog_us = 0;
  const char* watchdog = std::getenv("WATCHDOG_USEC");
  if (watchdog != nullptr && absl::SimpleAtoi(watchdog, &watchdog_us) && watchdog_us > 0) {
    feed_watchdog = [&] {
      notify_systemd("WATCHDOG=1");
      parts.loop->call_at(parts.loop->now() + std::chrono::microseconds(watchdog_us / 2),
                          feed_watchdog);
    };
    feed_watchdog();
  }
  notify_systemd("READY=1");
  parts.loop->run();
  parts.stopper.join();
  if (signals) parts.loop->unwatch(signals);
  parts.drained = parts.workers.drain(kDrainTimeout);
  return absl::OkStatus();
}

void Memd::restart() {
  if (std::exchange(parts_->restarts, true)) return;
  parts_->journal.record(Severity::kInfo, "restarting", "reason=\"to open other GPUs\"");
  stop();
}

bool Memd::wants_restart() const { return parts_->restarts && !parts_->told_to_stop; }

void Memd::stop() {
  parts_->loop->post([this] {
    Parts& parts = *parts_;
    if (parts.stopper.joinable()) return;
    if (!parts.restarts) notify_systemd("STOPPING=1");
    if (parts.recorder != nullptr) parts.recorder->stop();
    parts.broker.stop();
    // Who comes now is the next daemon's, if systemd listens for both.
    parts.loop->unwatch(parts.listeners.fds());
    parts.loop->unwatch(parts.listeners.rpc());
    parts.stopper = std::thread([&parts] {
      parts.server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
      parts.loop->quit();
    });
  });
}

bool Memd::drained() const { return parts_->drained; }

}  // namespace cco::memd
