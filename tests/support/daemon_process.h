// A cco-memd of a test's own: another process, a private folder, a private socket.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/process.h"

namespace cco::test {

class DaemonProcess {
 public:
  struct Options {
    std::string driver = "host";
    /// Text of the configuration, after the socket's path and the driver.
    std::string config = "host { device_count: 4 bytes_per_device: 268435456 }";
    std::vector<std::string> wrapper;  ///< Programs that exec what follows them: "setpriv", ….
    std::map<std::string, std::string> environment;
    std::vector<std::pair<int, int>> fds;  ///< Ours, and the number it gets there.
    std::string socket_path;               ///< Empty: in a fresh folder.
  };

  /// Returns when the daemon has said that it is ready. FAILED_PRECONDITION: it ended before; the
  /// message is its log and its exit code.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> start(const Options& options);
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> start() { return start(Options()); }
  ~DaemonProcess();

  const std::string& socket_path() const { return socket_path_; }
  pid_t pid() const { return process_->pid(); }
  void signal(int number) { process_->signal(number); }
  /// SIGTERM, and its wait status; none if it did not end.
  std::optional<int> stop();
  void kill();
  /// Its wait status, if it ends by itself within `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout) { return process_->wait(timeout); }

  std::string log() const;
  /// Whether the log holds `text`, now or soon.
  bool logs(const std::string& text) const;

 private:
  DaemonProcess() = default;
  void read_log(UniqueFd pipe);

  std::unique_ptr<TempDir> folder_;
  std::string socket_path_;
  std::unique_ptr<Process> process_;
  mutable std::mutex mutex_;
  mutable std::condition_variable grown_;
  std::string log_;
  bool log_ended_ = false;
  std::thread reader_;
};

/// Runs cco-memd to its end: for what only prints, and for starts that are refused.
struct Ended {
  int exit_code;
  std::string output;  ///< Both streams.
};
Ended run_memd(const std::vector<std::string>& arguments,
               const std::vector<std::string>& wrapper = {});

}  // namespace cco::test
