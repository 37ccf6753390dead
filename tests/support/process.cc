#include "tests/support/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "tests/support/patience.h"

extern char** environ;

namespace cco::test {
namespace {

double time_factor() {
#if defined(__SANITIZE_THREAD__)
  double factor = 10;
#elif defined(__SANITIZE_ADDRESS__)
  double factor = 4;
#else
  double factor = 1;
#endif
  if (const char* text = std::getenv("CCO_TEST_TIME_FACTOR"); text != nullptr) {
    factor *= std::atof(text);
  }
  return factor;
}

// Copies of the descriptors, far above every number that they are to get.
constexpr int kFirstCopy = 100;

std::vector<std::string> merge_environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (more.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : more) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::chrono::milliseconds patient(std::chrono::milliseconds wait) {
  return std::chrono::milliseconds(static_cast<int64_t>(wait.count() * time_factor()));
}

Process::Process(const Options& options) {
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = merge_environment(options.environment);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  std::vector<UniqueFd> copies;
  for (const auto& [ours, theirs] : options.fds) {
    copies.emplace_back(::fcntl(ours, F_DUPFD_CLOEXEC, kFirstCopy));
    CCO_ASSERT(copies.back());
    ::posix_spawn_file_actions_adddup2(&actions, copies.back().get(), theirs);
  }
  const int error = ::posix_spawnp(&pid_, arguments[0].c_str(), &actions, nullptr,
                                   pointers(arguments).data(), pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  CCO_ASSERT(error == 0);
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  CCO_ASSERT(pidfd_);
}

Process::~Process() {
  if (status_.has_value()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const {
  if (!status_.has_value()) ::kill(pid_, number);
}

std::optional<int> Process::wait(std::chrono::milliseconds timeout) {
  if (status_.has_value()) return status_;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(timeout.count())) <= 0) return std::nullopt;
  int status = 0;
  CCO_ASSERT(::waitpid(pid_, &status, 0) == pid_);
  status_ = status;
  return status_;
}

std::string describe_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? absl::StrCat("signal ", WTERMSIG(wait_status))
                                  : absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

size_t count_open_fds(pid_t pid) {
  size_t count = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

uint64_t resident_bytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

TempDir::TempDir() : path_("/tmp/cco-test-XXXXXX") {
  CCO_ASSERT(::mkdtemp(path_.data()) != nullptr);
}

TempDir::~TempDir() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace cco::test
