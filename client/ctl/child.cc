#include "client/ctl/child.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cco::ctl {
namespace {

constexpr int kExitCannotRun = 127;

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool replaced = std::any_of(changes.begin(), changes.end(), [&](const auto& change) {
      return text.starts_with(change.first + "=");
    });
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [name, value] : changes) merged.push_back(absl::StrCat(name, "=", value));
  return merged;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The child's half of fork(): only async-signal-safe calls.
[[noreturn]] void become(const ChildOptions& options, char* const* argv, char* const* envp,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitCannotRun);  // It died before the line above.
  const std::pair<int, int> streams[] = {{options.in.get(), STDIN_FILENO},
                                         {options.out.get(), STDOUT_FILENO},
                                         {options.err.get(), STDERR_FILENO}};
  for (const auto& [from, to] : streams) {
    if (from >= 0) ::dup2(from, to);
  }
  ::signal(SIGPIPE, SIG_DFL);
  if (options.signal_mask != nullptr) ::sigprocmask(SIG_SETMASK, options.signal_mask, nullptr);
  ::execvpe(argv[0], argv, envp);
  const char* reason = ::strerrordesc_np(errno);
  for (const char* part : {"cannot start ", const_cast<const char*>(argv[0]), ": ", reason, "\n"}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(kExitCannotRun);
}

}  // namespace

absl::StatusOr<Child> Child::start(const ChildOptions& options) {
  std::vector<std::string> words = options.command;
  std::vector<std::string> environment = merged_environment(options.environment);
  const std::vector<char*> argv = pointers_to(words);
  const std::vector<char*> envp = pointers_to(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, absl::StrCat("fork for ", words[0]));
  if (pid == 0) become(options, argv.data(), envp.data(), parent);
  ::setpgid(pid, pid);  // Here too, so that the group exists before anything is sent to it.
  Child child(pid);
  child.pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!child.pidfd_) return absl::ErrnoToStatus(errno, absl::StrCat("pidfd_open of ", words[0]));
  return child;
}

Child::~Child() {
  if (pid_ < 0) return;
  signal_group(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<Child::Exit> Child::exit() const {
  siginfo_t info{};
  const int failed = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (failed != 0 || info.si_pid == 0) return std::nullopt;
  return Exit{info.si_code != CLD_EXITED, info.si_status};
}

std::optional<Child::Exit> Child::wait(std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd end{pidfd_.get(), POLLIN, 0};
    const int ready = ::poll(&end, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    return exit();
  }
}

}  // namespace cco::ctl
