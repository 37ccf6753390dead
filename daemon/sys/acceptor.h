// Takes connections from a listening socket, also when no descriptor is left.
#pragma once

#include "absl/functional/function_ref.h"
#include "client/base/unique.h"

namespace cco::memd {

class Acceptor {
 public:
  Acceptor();

  /// The connection that is ready, close-on-exec and non-blocking; none: it has gone again, or no
  /// descriptor is left. Then it is taken with the spare one and given to `refuse` (none if it has
  /// gone meanwhile), which may say a last word: otherwise it would wait in the backlog, and the
  /// event loop would spin.
  UniqueFd accept(BorrowedFd listener, absl::FunctionRef<void(const UniqueFd& socket)> refuse);

 private:
  UniqueFd spare_;
};

}  // namespace cco::memd
