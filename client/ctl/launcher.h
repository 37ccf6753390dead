// Starts N ranks of a command on this node, passes their output on, and ends with the first
// failure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco::ctl {

/// Exit code when the time given by `timeout` is over, as timeout(1) has it.
inline constexpr int kExitTimedOut = 124;
/// How long ranks have between SIGTERM and SIGKILL.
inline constexpr std::chrono::seconds kStopGrace{5};

struct LaunchOptions {
  std::vector<std::string> command;
  uint32_t size = 1;  ///< Ranks, 1..1024.
  /// For every rank, beside CCO_RANK, CCO_SIZE, CCO_LOCAL_RANK, CCO_LOCAL_SIZE and CCO_JOB.
  std::vector<std::pair<std::string, std::string>> environment;
  bool prefix = true;                    ///< Each line of output begins with "[rank] ".
  std::chrono::milliseconds timeout{0};  ///< 0: none.
  std::chrono::milliseconds stop_grace = kStopGrace;
};

/// Runs all ranks and waits for them. Returns 0, or the exit code of the first that failed
/// (128 + signal if a signal ended it), or 128 + the signal that this process was sent, or
/// kExitTimedOut. No rank outlives the call, nor this process if that is killed.
///
/// Ranks' output goes to `out` and `err`, and a line about each failure to `err`.
/// Takes over SIGINT, SIGTERM and SIGHUP of the calling thread meanwhile: they are passed on, and a
/// second one kills. Call it from the main thread (ranks die with the thread that started them).
///
/// INVALID_ARGUMENT    empty command, size out of range
/// RESOURCE_EXHAUSTED  no more processes or descriptors; ranks already started have been stopped
absl::StatusOr<int> launch(const LaunchOptions& options, BorrowedFd out, BorrowedFd err);

/// The variables that make ranks see `gpus` (ordinals or UUIDs), in this order, under each driver.
std::vector<std::pair<std::string, std::string>> visible_gpus(const std::vector<std::string>& gpus);

}  // namespace cco::ctl
