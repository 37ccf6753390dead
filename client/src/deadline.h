// The end of one operation that takes several steps.
#pragma once

#include <algorithm>
#include <chrono>

namespace cco {

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout)
      : end_(std::chrono::steady_clock::now() + timeout) {}

  /// What the next step may take: at least a millisecond, so that a late step fails by itself and
  /// says what it was.
  std::chrono::milliseconds left() const {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }

  bool has_passed() const { return std::chrono::steady_clock::now() >= end_; }

 private:
  std::chrono::steady_clock::time_point end_;
};

}  // namespace cco
