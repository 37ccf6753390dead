// One rank's use of a device communicator: words in the control region, transports, and what a
// kernel needs of both.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cco/device/abi.h"
#include "client/src/comm_layout.h"
#include "client/src/transports.h"
#include "client/src/window.h"

namespace cco::client {

/// Thread safe: constant once made.
class Comm {
 public:
  /// Collective, matched by order. INVALID_ARGUMENT: ranks disagree. FAILED_PRECONDITION: a
  /// transport that was asked for is not to be had.
  static absl::StatusOr<std::shared_ptr<Comm>> create(std::shared_ptr<Group> group,
                                                      CommOptions options);

  void give_up();

  const cco_device_comm& device() const { return device_; }
  uint64_t device_pointer() const { return device_pointer_; }
  /// INTERNAL: a transport has reported an error.
  absl::Status check() const;

 private:
  explicit Comm(std::shared_ptr<Window> words) : words_(std::move(words)) {}
  absl::Status fill(const CommOptions& options, const CommLayout& layout);
  /// Opens and proves the transports that were asked for, with the other ranks.
  absl::Status arm(const CommOptions& options, const CommLayout& layout, const Gate::Pass& turn,
                   const Deadline& deadline);

  /// Puts the struct itself where kernels that take a pointer find it.
  absl::Status write_descriptor(const CommLayout& layout);

  std::shared_ptr<Window> words_;
  std::unique_ptr<Transports> transports_;  // Gone before the words; null: LSA and TDM alone.
  cco_device_comm device_{};
  uint64_t device_pointer_ = 0;
};

}  // namespace cco::client
