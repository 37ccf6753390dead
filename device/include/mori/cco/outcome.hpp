// What became of calls that return nothing in MORI.
#pragma once

#include "cco/device/deadline.h"
#include "cco/device/lsa.h"
#include "mori/cco/types.hpp"

namespace mori {
namespace cco {

/// An addition of ours: the first failure of an object's calls, for kernels that want to know.
class ccoOutcome {
 public:
  /// 0: all is well. Else native::WaitStatus, and the rank it is about (WaitResult::encode()).
  CCO_DEVICE uint64_t firstFailure() const { return word_; }

 protected:
  CCO_DEVICE void note(const native::WaitResult& result) const {
    if (word_ == 0) word_ = result.encode();
  }

 private:
  mutable uint64_t word_ = 0;
};

/// Waits end when the group does, never by time.
CCO_DEVICE native::Deadline ccoNever(const ccoDevComm& comm) {
  return native::Deadline::after(comm.native, ~uint64_t{0});
}

CCO_DEVICE native::Place ccoPlace(ccoWindow_t window, size_t offset) {
  return native::Place{*reinterpret_cast<const cco_window_device*>(window), offset};
}

}  // namespace cco
}  // namespace mori
