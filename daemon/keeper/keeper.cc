#include "daemon/keeper/keeper.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

constexpr timeval kSendTimeout{5, 0};  // For a daemon that asks and does not read.
constexpr int kPauseMs = 100;
constexpr char kSession[] = "session-";
// As long as a window can be kept. Without a bound a mistaken daemon's memory would stay for ever.
constexpr std::chrono::milliseconds kMostLinger = std::chrono::hours(30 * 24);

using Clock = std::chrono::steady_clock;

int poll_ms(Clock::duration left) {
  const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, std::numeric_limits<int>::max()));
}

}  // namespace

void Keeper::run() {
  Clock::time_point last_needed = Clock::now();
  for (;;) {
    std::vector<pollfd> watched = {{daemon_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    bool is_needed = static_cast<bool>(daemon_);
    if (!is_needed) {
      const std::vector<pollfd> living = watch_sessions();
      watched.insert(watched.end(), living.begin(), living.end());
      is_needed = !living.empty();
    }
    const Clock::time_point end = held_.empty() ? last_needed : last_needed + linger();
    const int timeout_ms = is_needed ? -1 : poll_ms(end - Clock::now());
    const int ready = ::poll(watched.data(), watched.size(), timeout_ms);
    if (is_needed) last_needed = Clock::now();
    if (ready == 0 && Clock::now() >= end) return;
    // All that a dead daemon has sent comes before its successor's first word.
    if (watched[0].revents != 0) {
      serve_daemon();
    } else if (watched[1].revents != 0) {
      accept_daemon();
    }
  }
}

std::vector<pollfd> Keeper::watch_sessions() const {
  std::vector<pollfd> living;
  for (auto entry = held_.lower_bound(kSession);
       entry != held_.end() && entry->first.rfind(kSession, 0) == 0; ++entry) {
    pollfd session{entry->second.get(), POLLIN, 0};
    if (::poll(&session, 1, 0) == 0) living.push_back(session);
  }
  return living;
}

std::chrono::milliseconds Keeper::linger() const {
  uint64_t ms = 0;
  if (::pread(told_linger_.get(), &ms, sizeof ms, 0) != sizeof ms) return linger_;
  return std::chrono::milliseconds(std::min<uint64_t>(ms, kMostLinger.count()));
}

void Keeper::accept_daemon() {
  UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection) {
    // It stays readable while the whole system is out of descriptors: do not spin meanwhile.
    if (errno == ENFILE || errno == EMFILE) ::poll(nullptr, 0, kPauseMs);
    return;
  }
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof kSendTimeout);
  pid_t pid = 0;
  const absl::Status status = admit(connection, &pid);
  const std::string payload =
      status.ok() ? std::string(reinterpret_cast<const char*>(&limit_), sizeof limit_)
                  : std::string(status.message());
  const absl::Status sent = send_frame(connection, FdFrameType::kReady, status.code(), payload);
  if (!status.ok() || !sent.ok()) return;
  daemon_ = std::move(connection);
  daemon_pid_ = pid;
}

absl::Status Keeper::admit(const UniqueFd& connection, pid_t* pid) const {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::UnavailableError(absl::StrCat("SO_PEERCRED: ", std::strerror(errno)));
  }
  if (peer.uid != ::geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("it serves uid ", ::geteuid(), " only, and this is uid ", peer.uid));
  }
  if (daemon_) {
    return absl::UnavailableError(absl::StrCat("it serves another process, pid ", daemon_pid_,
                                               ". Stop that, or choose another state_dir"));
  }
  *pid = peer.pid;
  return absl::OkStatus();
}

void Keeper::serve_daemon() {
  absl::StatusOr<FdFrame> frame = receive_frame(daemon_);
  const absl::Status status = frame.ok() ? serve(*std::move(frame)) : frame.status();
  if (status.ok()) return;
  // Also when a descriptor got lost on its way: from the end of the connection the daemon learns
  // that it has to put everything again.
  (void)send_frame(daemon_, FdFrameType::kReady, status.code(), std::string(status.message()));
  daemon_.reset();
}

absl::Status Keeper::serve(FdFrame frame) {
  switch (frame.type) {
    case FdFrameType::kKeep:
      if (frame.payload.empty() || !frame.fd) break;
      if (frame.payload == kLingerName) {
        told_linger_ = std::move(frame.fd);
        return absl::OkStatus();
      }
      if (held_.size() >= limit_ && held_.count(frame.payload) == 0) {
        return absl::ResourceExhaustedError(absl::StrCat("it holds ", limit_, " descriptors"));
      }
      held_[frame.payload] = std::move(frame.fd);
      return absl::OkStatus();
    case FdFrameType::kDrop:
      held_.erase(frame.payload);
      return absl::OkStatus();
    case FdFrameType::kList:
      return list();
    default:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("it does not know a frame of type ", static_cast<int>(frame.type), " with ",
                   frame.payload.size(), " bytes and ", frame.fd ? "a" : "no", " descriptor"));
}

absl::Status Keeper::list() const {
  if (told_linger_) {
    CCO_RETURN_IF_ERROR(send_frame(daemon_, FdFrameType::kKept, kLingerName, told_linger_));
  }
  for (const auto& [name, fd] : held_) {
    CCO_RETURN_IF_ERROR(send_frame(daemon_, FdFrameType::kKept, name, fd));
  }
  return send_frame(daemon_, FdFrameType::kListEnd, absl::StatusCode::kOk, "");
}

}  // namespace cco::memd
