#include "client/bench/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::bench {
namespace {

constexpr std::chrono::seconds kStartTimeout{30};
constexpr std::chrono::seconds kStopTimeout{10};

// Installed, both are in one folder; in a build tree, in neighbouring ones.
std::string find_daemon() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& candidate :
       {folder / "cco-memd", folder.parent_path().parent_path() / "daemon" / "cco-memd"}) {
    if (std::filesystem::exists(candidate, error)) return candidate;
  }
  return "cco-memd";
}

// The socket on which a service says "READY=1" (sd_notify(3)).
absl::StatusOr<UniqueFd> bind_notices(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, "binding " + path);
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::start(const Options& options) {
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon(options));
  CCO_RETURN_IF_ERROR(daemon->prepare());
  CCO_RETURN_IF_ERROR(daemon->start_next());
  return daemon;
}

absl::Status PrivateDaemon::prepare() {
  ::unsetenv("CCO_LEASE");  // Of the machine's daemon, if any.
  if (options_.program.empty()) options_.program = find_daemon();
  std::string folder = std::filesystem::temp_directory_path() / "cco-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, "making a folder " + folder);
  }
  folder_ = folder;
  socket_ = folder + "/memd.sock";
  // A file of its own: the machine's configuration must not leak into measurements.
  std::ofstream config(folder + "/memd.textproto");
  config << "driver: \"" << options_.driver << "\"\n" << options_.config << "\n";
  if (options_.keeps_state) config << "state_dir: \"" << folder << "/state\"\n";
  return absl::OkStatus();
}

absl::Status PrivateDaemon::start_next() {
  const std::string notify = folder_ + "/notify";
  ::unlink(notify.c_str());
  CCO_ASSIGN_OR_RETURN(const UniqueFd notices, bind_notices(notify));
  const std::string log_path = folder_ + "/log";
  const UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return absl::ErrnoToStatus(errno, "opening " + log_path);

  ctl::ChildOptions options;
  options.command = {options_.program, "--config", folder_ + "/memd.textproto", "--socket",
                     socket_};
  options.environment = {{"NOTIFY_SOCKET", notify}};
  options.out = log;
  options.err = log;
  CCO_ASSIGN_OR_RETURN(ctl::Child child, ctl::Child::start(options));
  child_ = std::make_unique<ctl::Child>(std::move(child));
  return wait_until_ready(notices);
}

absl::Status PrivateDaemon::wait_until_ready(const UniqueFd& notices) {
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd events[] = {{notices.get(), POLLIN, 0}, {child_->pidfd().get(), POLLIN, 0}};
    ::poll(events, 2, 1000);
    char notice[256];
    const ssize_t size = ::recv(notices.get(), notice, sizeof(notice), 0);
    const std::string_view text(notice, size > 0 ? static_cast<size_t>(size) : 0);
    if (text.find("READY=1") != std::string_view::npos) return absl::OkStatus();
    if (child_->exit()) {
      return absl::UnavailableError(absl::StrCat(options_.program, " ended with code ",
                                                 child_->exit()->code(), ":\n", log_tail()));
    }
  }
  return absl::UnavailableError(absl::StrCat(options_.program, " was not ready after ",
                                             kStartTimeout.count(), " s:\n", log_tail()));
}

std::string PrivateDaemon::log_tail() const {
  constexpr size_t kTailBytes = 2000;
  std::ifstream file(folder_ + "/log");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string log = text.str();
  return log.size() > kTailBytes ? log.substr(log.size() - kTailBytes) : log;
}

void PrivateDaemon::kill() {
  child_->signal_group(SIGKILL);
  child_->wait(kStopTimeout);
  child_.reset();
}

PrivateDaemon::~PrivateDaemon() {
  if (child_ != nullptr) {
    child_->signal_group(SIGTERM);
    child_->wait(kStopTimeout);  // What it leaves undone, ~Child ends.
    child_.reset();
  }
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

}  // namespace cco::bench
