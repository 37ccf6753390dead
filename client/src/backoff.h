// Pauses between tries at something that no event announces.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>

#include "client/base/fd_frame.h"
#include "client/src/deadline.h"

namespace cco {

/// 10 ms, then twice as long each time up to 500 ms; up to half of it less at random, so that the
/// clients of one daemon do not all come at once.
class Backoff {
 public:
  void pause(const Deadline& deadline) {
    const auto chance = static_cast<unsigned char>(random_bytes(1)[0]);
    const std::chrono::milliseconds pause = next_ - next_ * chance / 512;
    next_ = std::min(2 * next_, kLongest);
    ::poll(nullptr, 0, static_cast<int>(std::min(pause, deadline.left()).count()));
  }

 private:
  static constexpr std::chrono::milliseconds kLongest{500};
  std::chrono::milliseconds next_{10};
};

}  // namespace cco
