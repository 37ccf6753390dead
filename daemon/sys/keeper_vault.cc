#include "daemon/sys/keeper_vault.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/sys/listener.h"

extern char** environ;

namespace cco::memd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPauseMs = 10;
constexpr int kListener = 3, kLock = 4;  // Their numbers in the keeper; see its main.cc.

// Of posix_spawn(3): what the keeper inherits, and nothing else.
class SpawnPlan {
 public:
  SpawnPlan(const UniqueFd& listener, const UniqueFd& lock)
      : listener_(::fcntl(listener.get(), F_DUPFD_CLOEXEC, kLock + 1)),
        lock_(::fcntl(lock.get(), F_DUPFD_CLOEXEC, kLock + 1)) {
    ::posix_spawn_file_actions_init(&actions_);
    // No terminal and no pipe: somebody may wait for the end of what the daemon writes.
    ::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDWR, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, 0, 1);
    ::posix_spawn_file_actions_adddup2(&actions_, 0, 2);
    ::posix_spawn_file_actions_adddup2(&actions_, listener_.get(), kListener);
    ::posix_spawn_file_actions_adddup2(&actions_, lock_.get(), kLock);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, kLock + 1);
    ::posix_spawnattr_init(&attributes_);
    // A session of its own, so that no signal to the daemon's group or terminal reaches it.
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }

  /// 0, or errno.
  int run(std::string program, std::string argument, pid_t* pid) const {
    if (!listener_ || !lock_) return EMFILE;
    char* arguments[] = {program.data(), argument.data(), nullptr};
    return ::posix_spawn(pid, program.c_str(), &actions_, &attributes_, arguments, environ);
  }

 private:
  UniqueFd listener_, lock_;
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

absl::Status with_prefix(const std::string& prefix, const absl::Status& status) {
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeeperVault>> KeeperVault::open(const Options& options) {
  std::unique_ptr<KeeperVault> vault(new KeeperVault(options));
  vault->broken_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!vault->broken_) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll_create: ", std::strerror(errno)));
  }
  vault->answer_timeout_ = options.answer_timeout;
  CCO_RETURN_IF_ERROR(vault->connect());
  return vault;
}

absl::Status KeeperVault::connect() {
  const auto deadline = Clock::now() + answer_timeout_;
  connection_.reset();
  is_full_ = false;
  absl::StatusOr<UniqueFd> connection = try_connect();
  // A keeper that is starting or ending, or that has not seen the end of our predecessor yet:
  // nothing tells when that is over.
  while (absl::IsUnavailable(connection.status()) && Clock::now() < deadline) {
    ::poll(nullptr, 0, kPauseMs);
    connection = try_connect();
  }
  if (!connection.ok()) return with_prefix(describe(), connection.status());
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(broken_.get(), EPOLL_CTL_ADD, connection->get(), &event) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  }
  connection_ = *std::move(connection);
  return absl::OkStatus();
}

// Whoever gets the lock starts a keeper, and the keeper has it for life.
absl::StatusOr<UniqueFd> KeeperVault::try_connect() {
  const std::string path = options_.state_dir + "/keeper.lock";
  const UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) {
    return absl::FailedPreconditionError(
        absl::StrCat("open ", path, ": ", std::strerror(errno),
                     ". Does state_dir exist, and may this user write there?"));
  }
  absl::StatusOr<UniqueFd> connection = ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0
                                            ? start_keeper(lock)
                                            : connect_unix(options_.state_dir + "/keeper.sock",
                                                           SOCK_SEQPACKET, options_.send_timeout);
  CCO_RETURN_IF_ERROR(connection.status());
  CCO_RETURN_IF_ERROR(wait_ready(*connection));
  return connection;
}

absl::StatusOr<UniqueFd> KeeperVault::start_keeper(const UniqueFd& lock) {
  const std::string path = options_.state_dir + "/keeper.sock";
  CCO_ASSIGN_OR_RETURN(const UniqueFd listener, listen_on(path, SOCK_SEQPACKET, {path, 0600, -1}));
  // Before there is a keeper: one that finds nobody there would end at once.
  CCO_ASSIGN_OR_RETURN(UniqueFd connection,
                       connect_unix(path, SOCK_SEQPACKET, options_.send_timeout));
  CCO_RETURN_IF_ERROR(spawn_keeper(listener, lock));
  return connection;
}

absl::Status KeeperVault::spawn_keeper(const UniqueFd& listener, const UniqueFd& lock) {
  pid_t pid = -1;
  const SpawnPlan plan(listener, lock);
  const int error = plan.run(options_.program, absl::StrCat(options_.linger.count()), &pid);
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("start ", options_.program, ": ", std::strerror(error)));
  }
  // The keeper is its child, and no zombie of ours. This one has only to fork.
  const UniqueFd parent(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!parent || !wait_readable(parent, answer_timeout_).ok()) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(options_.program, " ended with ",
                   WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                       : absl::StrCat("exit code ", WEXITSTATUS(status)),
                   ". Is it of the same build as cco-memd?"));
}

absl::Status KeeperVault::wait_ready(const UniqueFd& connection) {
  if (!wait_readable(connection, answer_timeout_).ok()) {
    return absl::UnavailableError(
        absl::StrCat("it does not answer within ", answer_timeout_.count(), " ms. Is it stopped?"));
  }
  CCO_ASSIGN_OR_RETURN(const FdFrame ready, receive_frame(connection));
  uint64_t limit = 0;
  if (ready.code != absl::StatusCode::kOk) return absl::Status(ready.code, ready.payload);
  if (ready.type != FdFrameType::kReady || ready.payload.size() != sizeof limit) {
    return absl::InternalError("it does not speak as a cco-keeper does");
  }
  std::memcpy(&limit, ready.payload.data(), sizeof limit);
  names_ = VaultNames(limit);
  return absl::OkStatus();
}

absl::Status KeeperVault::list(Visitor visit) {
  CCO_RETURN_IF_ERROR(
      send_frame(connection_, FdFrameType::kList, absl::StatusCode::kOk, std::string_view()));
  bool has_linger = false;
  for (;;) {
    if (!wait_readable(connection_, answer_timeout_).ok()) {
      return absl::UnavailableError(
          absl::StrCat("no answer within ", answer_timeout_.count(), " ms. Is it stopped?"));
    }
    CCO_ASSIGN_OR_RETURN(FdFrame frame, receive_frame(connection_));
    if (frame.code != absl::StatusCode::kOk) return absl::Status(frame.code, frame.payload);
    if (frame.type == FdFrameType::kListEnd) return has_linger ? absl::OkStatus() : share_linger();
    if (frame.type != FdFrameType::kKept || !frame.fd) {
      return absl::InternalError("it does not speak as a cco-keeper does");
    }
    if (frame.payload == kLingerName) {
      linger_ = std::move(frame.fd);
      has_linger = true;
      continue;
    }
    names_.adopt(frame.payload);
    visit(frame.payload, std::move(frame.fd));
  }
}

absl::Status KeeperVault::share_linger() {
  if (!linger_) {
    linger_.reset(::memfd_create("cco-keeper-linger", MFD_CLOEXEC));
    if (!linger_) {
      return absl::ResourceExhaustedError(absl::StrCat("memfd_create: ", std::strerror(errno)));
    }
    CCO_RETURN_IF_ERROR(hold_for(std::chrono::milliseconds(0)));
  }
  return send(FdFrameType::kKeep, kLingerName, linger_);
}

absl::Status KeeperVault::hold_for(std::chrono::milliseconds keep) {
  CCO_ASSERT(linger_);  // Since take_over().
  const auto ms = static_cast<uint64_t>(std::max(keep, options_.linger).count());
  if (::pwrite(linger_.get(), &ms, sizeof ms, 0) == sizeof ms) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("no memory to tell ", describe(),
                                                   " how long to hold on: ", std::strerror(errno)));
}

absl::StatusOr<std::map<std::string, UniqueFd>> KeeperVault::take_over() {
  std::map<std::string, UniqueFd> kept;
  const absl::Status status =
      list([&](const std::string& name, UniqueFd fd) { kept.emplace(name, std::move(fd)); });
  if (!status.ok()) return with_prefix(absl::StrCat(describe(), ", asked for all"), status);
  return kept;
}

absl::Status KeeperVault::put(const std::string& name, BorrowedFd fd) {
  CCO_RETURN_IF_ERROR(names_.add(name));
  const absl::Status sent = send(FdFrameType::kKeep, name, fd);
  if (!sent.ok()) names_.remove(name);
  return sent;
}

absl::Status KeeperVault::remove(const std::string& name) {
  if (!names_.has(name)) return absl::OkStatus();
  CCO_RETURN_IF_ERROR(send(FdFrameType::kDrop, name, std::nullopt));
  names_.remove(name);
  return absl::OkStatus();
}

absl::Status KeeperVault::send(FdFrameType type, const std::string& name,
                               std::optional<BorrowedFd> fd) {
  const std::string what =
      absl::StrCat(describe(), type == FdFrameType::kKeep ? ", put " : ", remove ", name);
  if (!connection_) {
    return absl::UnavailableError(absl::StrCat(what, ": there is no connection; recover first"));
  }
  if (is_full_ && !has_room()) {
    return absl::UnavailableError(
        absl::StrCat(what, ": the keeper reads nothing, and its socket is full. Is it stopped?"));
  }
  const absl::Status sent = fd.has_value()
                                ? send_frame(connection_, type, name, *fd)
                                : send_frame(connection_, type, absl::StatusCode::kOk, name);
  is_full_ = absl::IsUnavailable(sent);
  return with_prefix(what, sent);
}

bool KeeperVault::has_room() const {
  pollfd socket{connection_.get(), POLLOUT, 0};
  return ::poll(&socket, 1, 0) > 0;
}

absl::Status KeeperVault::recover(const std::map<std::string, BorrowedFd>& all) {
  answer_timeout_ = options_.recover_timeout;
  CCO_RETURN_IF_ERROR(connect());
  std::set<std::string> surplus, missing;
  for (const auto& [name, fd] : all) missing.insert(name);
  absl::Status status = list([&](const std::string& name, const UniqueFd&) {
    if (missing.erase(name) == 0) surplus.insert(name);
  });
  for (const std::string& name : surplus) status.Update(remove(name));
  for (const std::string& name : missing) status.Update(put(name, all.at(name)));
  if (!status.ok()) connection_.reset();
  return status;
}

std::string KeeperVault::describe() const {
  return absl::StrCat("the keeper of ", options_.state_dir);
}

absl::StatusOr<std::string> find_keeper_program() {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string candidates[] = {folder / "cco-keeper", folder / "../libexec/cco/cco-keeper"};
  for (const std::string& path : candidates) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return absl::NotFoundError(absl::StrCat("there is no cco-keeper: tried ", candidates[0], " and ",
                                          candidates[1], ". Install it beside cco-memd"));
}

}  // namespace cco::memd
