#include "client/ctl/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"
#include "client/ctl/child.h"
#include "client/ctl/output_line.h"

namespace cco::ctl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kMaxRanks = 1024;

absl::Status system_error(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

void write_all(BorrowedFd fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // The reader has gone: ranks still run to their end.
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

struct Stream {
  UniqueFd pipe;
  BorrowedFd destination;
  LinePrefixer lines;
  bool prefix = true;

  // Returns false at the end of the stream.
  bool forward() {
    char buffer[16384];
    const ssize_t size = ::read(pipe.get(), buffer, sizeof(buffer));
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (size <= 0) {
      write_all(destination, lines.finish());
      return false;
    }
    const std::string_view bytes(buffer, static_cast<size_t>(size));
    write_all(destination, prefix ? lines.feed(bytes) : bytes);
    return true;
  }
};

struct Rank {
  Child child;
  std::vector<Stream> streams;
  bool ended = false;
};

// While it lives, the three signals that end a launcher arrive as data.
class SignalSource {
 public:
  static absl::StatusOr<SignalSource> create() {
    SignalSource source;
    sigset_t taken;
    ::sigemptyset(&taken);
    for (int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&taken, number);
    source.fd_ = UniqueFd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!source.fd_) return system_error("signalfd");
    ::pthread_sigmask(SIG_BLOCK, &taken, &source.previous_);
    return source;
  }
  SignalSource(SignalSource&&) = default;
  ~SignalSource() {
    if (fd_) ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }

  BorrowedFd fd() const { return fd_; }
  const sigset_t& previous() const { return previous_; }
  std::optional<int> take() const {
    signalfd_siginfo info;
    if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  SignalSource() = default;
  UniqueFd fd_;
  sigset_t previous_{};
};

class Launcher {
 public:
  Launcher(const LaunchOptions& options, BorrowedFd out, BorrowedFd err, SignalSource signals)
      : options_(options), out_(out), err_(err), signals_(std::move(signals)) {}
  absl::Status start();
  int supervise();

 private:
  absl::Status start_rank(uint32_t rank, const std::string& job);
  bool finished() const;
  int poll_timeout_ms() const;
  void on_signal(int number);
  void on_exit(uint32_t index);
  void on_deadline();
  void stop(int number);
  void say(const std::string& text) { write_all(err_, "ccoctl run: " + text + "\n"); }

  const LaunchOptions& options_;
  BorrowedFd out_;
  BorrowedFd err_;
  SignalSource signals_;
  UniqueFd null_;
  std::vector<Rank> ranks_;
  int exit_code_ = 0;
  bool stopping_ = false;
  bool killed_ = false;
  std::optional<Clock::time_point> deadline_;  // Of the run, then of the grace, then of the end.
};

absl::Status Launcher::start() {
  null_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_) return system_error("open /dev/null");
  const std::string job =
      absl::StrCat("run-", ::getpid(), "-", absl::BytesToHexString(random_bytes(4)));
  for (uint32_t rank = 0; rank < options_.size; ++rank) {
    CCO_RETURN_IF_ERROR(start_rank(rank, job));
  }
  if (options_.timeout.count() > 0) deadline_ = Clock::now() + options_.timeout;
  return absl::OkStatus();
}

absl::Status Launcher::start_rank(uint32_t rank, const std::string& job) {
  const std::string what = absl::StrCat("starting rank ", rank, " of ", options_.size);
  int out[2];
  int err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return system_error(what + ": pipe");
  UniqueFd out_read(out[0]);
  const UniqueFd out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return system_error(what + ": pipe");
  UniqueFd err_read(err[0]);
  const UniqueFd err_write(err[1]);

  ChildOptions options;
  options.command = options_.command;
  options.environment = options_.environment;
  options.environment.insert(options.environment.end(),
                             {{"CCO_RANK", absl::StrCat(rank)},
                              {"CCO_SIZE", absl::StrCat(options_.size)},
                              {"CCO_LOCAL_RANK", absl::StrCat(rank)},
                              {"CCO_LOCAL_SIZE", absl::StrCat(options_.size)},
                              {"CCO_JOB", job}});
  options.in = null_;
  options.out = out_write;
  options.err = err_write;
  options.signal_mask = &signals_.previous();
  absl::StatusOr<Child> child = Child::start(options);
  if (!child.ok()) {
    return absl::Status(child.status().code(), absl::StrCat(what, ": ", child.status().message()));
  }
  const std::string prefix = absl::StrCat("[", rank, "] ");
  std::vector<Stream> streams;
  streams.push_back(Stream{std::move(out_read), out_, LinePrefixer(prefix), options_.prefix});
  streams.push_back(Stream{std::move(err_read), err_, LinePrefixer(prefix), options_.prefix});
  ranks_.push_back(Rank{*std::move(child), std::move(streams)});
  return absl::OkStatus();
}

bool Launcher::finished() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.ended && rank.streams.empty(); });
}

int Launcher::poll_timeout_ms() const {
  if (!deadline_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

int Launcher::supervise() {
  while (!finished()) {
    const bool all_ended =
        std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
    // What ranks left behind in the background may hold their output open.
    if (all_ended && !stopping_) stop(SIGTERM);
    std::vector<pollfd> fds{{signals_.fd().get(), POLLIN, 0}};
    for (const Rank& rank : ranks_) {
      fds.push_back({rank.ended ? -1 : rank.child.pidfd().get(), POLLIN, 0});
      for (const Stream& stream : rank.streams) fds.push_back({stream.pipe.get(), POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), poll_timeout_ms());

    if (fds[0].revents != 0) {
      if (const std::optional<int> number = signals_.take()) on_signal(*number);
    }
    size_t next = 1;
    for (uint32_t index = 0; index < ranks_.size(); ++index) {
      Rank& rank = ranks_[index];
      const bool exited = fds[next++].revents != 0;
      std::erase_if(rank.streams,
                    [&](Stream& stream) { return fds[next++].revents != 0 && !stream.forward(); });
      if (exited) on_exit(index);
    }
    if (deadline_ && Clock::now() >= *deadline_) {
      if (killed_) break;  // Only somebody outside the ranks' process groups holds a pipe now.
      on_deadline();
    }
  }
  return exit_code_;
}

void Launcher::on_signal(int number) {
  if (exit_code_ == 0) exit_code_ = 128 + number;
  say(absl::StrCat("got ", ::strsignal(number), "; passing it on"));
  const bool again = stopping_;
  stop(again ? SIGKILL : number);
}

void Launcher::on_exit(uint32_t index) {
  const std::optional<Child::Exit> exit = ranks_[index].child.exit();
  if (!exit) return;
  ranks_[index].ended = true;
  if (exit->code() == 0 || stopping_) return;
  exit_code_ = exit->code();
  say(absl::StrCat("rank ", index,
                   exit->by_signal ? absl::StrCat(" was ended by signal ", exit->number, " (",
                                                  ::strsignal(exit->number), ")")
                                   : absl::StrCat(" exited with code ", exit->number),
                   ranks_.size() > 1 ? "; stopping the others" : ""));
  stop(SIGTERM);
}

void Launcher::on_deadline() {
  if (stopping_) return stop(SIGKILL);
  exit_code_ = kExitTimedOut;
  std::vector<std::string> running;
  for (uint32_t index = 0; index < ranks_.size(); ++index) {
    if (!ranks_[index].ended) running.push_back(absl::StrCat(index));
  }
  say(absl::StrCat("time is over (", options_.timeout.count() / 1000.0, " s); stopping ranks ",
                   absl::StrJoin(running, ",")));
  stop(SIGTERM);
}

void Launcher::stop(int number) {
  for (const Rank& rank : ranks_) rank.child.signal_group(number);
  stopping_ = true;
  killed_ = killed_ || number == SIGKILL;
  deadline_ = Clock::now() + options_.stop_grace;
}

}  // namespace

absl::StatusOr<int> launch(const LaunchOptions& options, BorrowedFd out, BorrowedFd err) {
  if (options.command.empty()) return absl::InvalidArgumentError("no command to run");
  if (options.size == 0 || options.size > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot run ", options.size, " ranks: 1 to ", kMaxRanks));
  }
  CCO_ASSIGN_OR_RETURN(SignalSource signals, SignalSource::create());
  Launcher launcher(options, out, err, std::move(signals));
  CCO_RETURN_IF_ERROR(launcher.start());
  return launcher.supervise();
}

std::vector<std::pair<std::string, std::string>> visible_gpus(
    const std::vector<std::string>& gpus) {
  if (gpus.empty()) return {};
  const std::string list = absl::StrJoin(gpus, ",");
  uint32_t ordinal = 0;
  // HIP itself knows ordinals only; UUIDs are for the layer below it.
  const bool ordinals = std::all_of(gpus.begin(), gpus.end(), [&](const std::string& gpu) {
    return absl::SimpleAtoi(gpu, &ordinal);
  });
  return {{"CCO_HOST_VISIBLE_DEVICES", list},
          {"CUDA_VISIBLE_DEVICES", list},
          {ordinals ? "HIP_VISIBLE_DEVICES" : "ROCR_VISIBLE_DEVICES", list}};
}

}  // namespace cco::ctl
