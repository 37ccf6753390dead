// The daemon's word on the group, in shared memory: readable without asking it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cco/device/abi.h"
#include "client/base/unique.h"

namespace cco::client {

class NoticePage {
 public:
  static constexpr uint64_t kBytes = 4096;

  /// INTERNAL unless `fd` is a memfd of one page that nobody can shrink: reading it could otherwise
  /// end this process with SIGBUS.
  static absl::StatusOr<NoticePage> map(UniqueFd fd);

  /// See CCO_ABORT_REASON and CCO_ABORT_RANK.
  uint64_t abort_word() const;
  /// CCO_CONDITION_*.
  uint32_t conditions() const;

  void* address() const { return mapping_.get().address; }

 private:
  explicit NoticePage(UniqueMapping mapping) : mapping_(std::move(mapping)) {}
  UniqueMapping mapping_;
};

}  // namespace cco::client
