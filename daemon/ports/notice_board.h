// Port: pages through which members of a group, and their kernels, learn that a rank is out
// (cco_notice_page in abi.h).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco::memd {

/// One member's page. The daemon writes it and never reads it back.
class NoticePage {
 public:
  virtual ~NoticePage() = default;
  /// To be mapped by the member; sealed against a change of size.
  virtual const UniqueFd& fd() const = 0;
  virtual void set_rank_out(uint32_t rank, uint64_t epoch) = 0;
  /// The abort word is final: at most one, however often.
  virtual void set_abort(uint64_t abort_word) = 0;
  /// CCO_CONDITION_*, of which one or more hold from now on, or no longer do.
  virtual void set_condition(uint32_t bits, bool holds) = 0;
};

class NoticeBoard {
 public:
  virtual ~NoticeBoard() = default;
  virtual absl::StatusOr<std::unique_ptr<NoticePage>> create_page(uint32_t world_size) = 0;
  /// One that an earlier daemon made, by its fd, as that left it.
  virtual absl::StatusOr<std::unique_ptr<NoticePage>> adopt_page(UniqueFd fd) = 0;
};

}  // namespace cco::memd
