// Port: file descriptors that outlive the daemon, by name. Another process holds duplicates of
// them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco::memd {

class FdVault {
 public:
  virtual ~FdVault() = default;

  /// What an earlier daemon left, by name. Once, before anything else is put.
  virtual absl::StatusOr<std::map<std::string, UniqueFd>> take_over() = 0;

  /// Holds a duplicate of `fd` under `name` (1 to 64 characters of [a-z0-9-], in use by no other).
  /// Once it returns, the fd outlives this process, however it ends. RESOURCE_EXHAUSTED: it is
  /// full; UNAVAILABLE: it does not answer.
  virtual absl::Status put(const std::string& name, BorrowedFd fd) = 0;

  /// Closes what is held under `name`. Harmless if nothing is.
  virtual absl::Status remove(const std::string& name) = 0;

  /// What it holds may be asked for up to `keep` after the last process that uses it has exited,
  /// also if no daemon runs until then. In force at once. Until it is first called, what an earlier
  /// daemon said stays so.
  virtual absl::Status hold_for(std::chrono::milliseconds keep) {
    (void)keep;
    return absl::OkStatus();
  }

  /// How many it can hold; 0: any number. Known from the beginning.
  virtual uint64_t limit() const { return 0; }

  /// Readable when recover() is needed: what was put may be lost. The same descriptor for life; -1:
  /// that cannot happen.
  virtual BorrowedFd broken() const { return BorrowedFd(-1); }

  /// Makes it hold exactly `all` again. After an error broken() stays silent: call it again after a
  /// while.
  virtual absl::Status recover(const std::map<std::string, BorrowedFd>& all) {
    (void)all;
    return absl::OkStatus();
  }
};

}  // namespace cco::memd
