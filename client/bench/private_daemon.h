// A cco-memd of this program's own, for measurements and trials where none runs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/child.h"

namespace cco::bench {

class PrivateDaemon {
 public:
  /// Starts `program` (empty: the cco-memd beside this program, or in $PATH) in a temporary folder
  /// and waits until it says that it is ready. Call it from the main thread: it dies with that.
  /// UNAVAILABLE: it ended, or was not ready in time; the message holds the end of its log.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> start(const std::string& program,
                                                              const std::string& driver);
  /// Stops it and removes the folder.
  ~PrivateDaemon();

  const std::string& socket() const { return socket_; }
  const std::string& program() const { return program_; }

 private:
  PrivateDaemon() = default;
  absl::Status wait_until_ready(const UniqueFd& notices);
  std::string log_tail() const;

  std::string folder_;
  std::string socket_;
  std::string program_;
  std::unique_ptr<ctl::Child> child_;
};

}  // namespace cco::bench
