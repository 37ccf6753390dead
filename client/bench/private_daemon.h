// A cco-memd of this program's own, for measurements and trials where none runs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/child.h"

namespace cco::bench {

class PrivateDaemon {
 public:
  struct Options {
    std::string program;  ///< Empty: the cco-memd beside this program, or in $PATH.
    std::string driver;
    std::string config;  ///< Text of the configuration beside driver and folders.
    bool keeps_state = false;
  };
  /// Starts it in a temporary folder and waits until it says that it is ready. Call it from the
  /// main thread: it dies with that. UNAVAILABLE: it ended, or was not ready in time; the message
  /// holds the end of its log.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> start(const Options& options);
  /// Stops it and removes the folder.
  ~PrivateDaemon();

  /// As after a crash; returns once it has ended.
  void kill();
  /// After kill(): the next one, on the same socket and state. As start().
  absl::Status start_next();

  const std::string& socket() const { return socket_; }
  const std::string& program() const { return options_.program; }

 private:
  explicit PrivateDaemon(const Options& options) : options_(options) {}
  absl::Status prepare();
  absl::Status wait_until_ready(const UniqueFd& notices);
  std::string log_tail() const;

  Options options_;
  std::string folder_;
  std::string socket_;
  std::unique_ptr<ctl::Child> child_;
};

}  // namespace cco::bench
