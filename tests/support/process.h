// Processes that tests start, and what the kernel says of them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/base/unique.h"

namespace cco::test {

/// One started process. It dies with its owner, and with this process.
class Process {
 public:
  struct Options {
    std::vector<std::string> arguments;              ///< The program first, looked up in PATH.
    std::map<std::string, std::string> environment;  ///< On top of this process's.
    std::vector<std::pair<int, int>> fds;            ///< Ours, and the number it gets there.
  };
  explicit Process(const Options& options);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  const UniqueFd& pidfd() const { return pidfd_; }
  void signal(int number) const;
  /// Its wait status, or none if it still runs after `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout);

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::optional<int> status_;
};

/// "exit code 3", "signal 9".
std::string describe_status(int wait_status);

size_t count_open_fds(pid_t pid);
uint64_t resident_bytes(pid_t pid);

/// A folder that is removed with everything in it.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace cco::test
