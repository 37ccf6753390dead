#include "tests/support/daemon_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "tests/support/patience.h"

namespace cco::test {
namespace {

UniqueFd bind_datagram(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  CCO_ASSERT(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  ::chmod(path.c_str(), 0777);  // The daemon may run as another user.
  return fd;
}

// READY=1 has come, or the process has ended, or neither in time.
bool wait_ready(BorrowedFd notify, const Process& process) {
  const Stopwatch watch;
  while (watch.elapsed() < patience()) {
    pollfd events[2] = {{notify.get(), POLLIN, 0}, {process.pidfd().get(), POLLIN, 0}};
    const auto left = patience() - watch.elapsed();
    if (::poll(events, 2, static_cast<int>(left.count())) <= 0) return false;
    if ((events[0].revents & POLLIN) == 0) return false;
    char text[256] = {};
    const ssize_t size = ::recv(notify.get(), text, sizeof text - 1, MSG_DONTWAIT);
    if (size > 0 && std::string(text).find("READY=1") != std::string::npos) return true;
  }
  return false;
}

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int ends[2];
  CCO_ASSERT(::pipe2(ends, O_CLOEXEC) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::start(const Options& options) {
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess);
  daemon->folder_ = std::make_unique<TempDir>();
  ::chmod(daemon->folder_->path().c_str(), 0777);  // Clients and daemon may be other users.
  daemon->socket_path_ =
      options.socket_path.empty() ? daemon->folder_->file("memd.sock") : options.socket_path;
  const std::string config = daemon->folder_->file("memd.textproto");
  std::ofstream(config) << "socket_path: \"" << daemon->socket_path_ << "\"\ndriver: \""
                        << options.driver << "\"\n"
                        << options.config << "\n";
  const std::string notify_path = daemon->folder_->file("notify");
  const UniqueFd notify = bind_datagram(notify_path);
  auto [read_end, write_end] = make_pipe();

  Process::Options process;
  process.arguments = options.wrapper;
  process.arguments.insert(process.arguments.end(),
                           {CCO_MEMD_PROGRAM, "--config", config, "--log-level", "debug"});
  process.environment = options.environment;
  process.environment["NOTIFY_SOCKET"] = notify_path;
  process.fds = options.fds;
  process.fds.emplace_back(write_end.get(), 2);
  daemon->process_ = std::make_unique<Process>(process);
  write_end.reset();
  daemon->reader_ = std::thread([raw = daemon.get(), pipe = std::move(read_end)]() mutable {
    raw->read_log(std::move(pipe));
  });
  if (wait_ready(notify, *daemon->process_)) return daemon;
  daemon->signal(SIGKILL);
  const std::optional<int> status = daemon->process_->wait(patience());
  daemon->reader_.join();
  return absl::FailedPreconditionError(
      absl::StrCat(status.has_value() ? describe_status(*status) : "no end", ": ", daemon->log_));
}

DaemonProcess::~DaemonProcess() {
  process_.reset();  // Its end is the log's end.
  if (reader_.joinable()) reader_.join();
}

void DaemonProcess::read_log(UniqueFd pipe) {
  char buffer[4096];
  for (;;) {
    const ssize_t size = ::read(pipe.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (size > 0) log_.append(buffer, static_cast<size_t>(size));
    log_ended_ = size <= 0;
    grown_.notify_all();
    if (log_ended_) return;
  }
}

std::optional<int> DaemonProcess::stop() {
  process_->signal(SIGTERM);
  return process_->wait(patience());
}

void DaemonProcess::kill() {
  process_->signal(SIGKILL);
  process_->wait(patience());
}

std::string DaemonProcess::log() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return log_;
}

bool DaemonProcess::logs(const std::string& text) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = [&] { return log_.find(text) != std::string::npos; };
  grown_.wait_for(lock, patience(), [&] { return found() || log_ended_; });
  return found();
}

Ended run_memd(const std::vector<std::string>& arguments, const std::vector<std::string>& wrapper) {
  auto [read_end, write_end] = make_pipe();
  Process::Options options;
  options.arguments = wrapper;
  options.arguments.push_back(CCO_MEMD_PROGRAM);
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.fds = {{write_end.get(), 1}, {write_end.get(), 2}};
  Process process(options);
  write_end.reset();
  Ended ended{-1, ""};
  const Stopwatch watch;
  char buffer[4096];
  for (;;) {
    pollfd ready{read_end.get(), POLLIN, 0};
    const auto left = patience() - watch.elapsed();
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return ended;
    const ssize_t size = ::read(read_end.get(), buffer, sizeof buffer);
    if (size <= 0) break;
    ended.output.append(buffer, static_cast<size_t>(size));
  }
  const std::optional<int> status = process.wait(patience());
  if (status.has_value() && WIFEXITED(*status)) ended.exit_code = WEXITSTATUS(*status);
  return ended;
}

}  // namespace cco::test
