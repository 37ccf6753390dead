// One rank's use of a device communicator: words in the control region, and what a kernel needs.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "cco/device/abi.h"
#include "client/src/window.h"

namespace cco::client {

inline constexpr uint32_t kMaxSignals = 65536;
inline constexpr uint32_t kMaxBarriers = 4096;

/// Thread safe: constant once made.
class Comm {
 public:
  struct Options {
    uint32_t signal_count = 0;
    uint32_t barrier_count = 0;
    std::chrono::milliseconds timeout{};
  };

  /// Collective, matched by order. INVALID_ARGUMENT: a count over its limit, or ranks disagree.
  static absl::StatusOr<std::shared_ptr<Comm>> create(std::shared_ptr<Group> group,
                                                      const Options& options);

  void give_up() { words_->give_up(); }

  const cco_device_comm& device() const { return device_; }

 private:
  explicit Comm(std::shared_ptr<Window> words) : words_(std::move(words)) {}
  absl::Status fill(const Options& options, uint64_t barrier_offset);

  std::shared_ptr<Window> words_;
  cco_device_comm device_{};
};

}  // namespace cco::client
