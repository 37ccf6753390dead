// How long tests wait for things that should be quick.
#pragma once

#include <chrono>

namespace cco::test {

/// `wait` times what sanitizers cost, times $CCO_TEST_TIME_FACTOR. For upper bounds only.
std::chrono::milliseconds patient(std::chrono::milliseconds wait);

/// For events that must come: long enough for a busy machine, and yet an end.
inline std::chrono::milliseconds patience() { return patient(std::chrono::seconds(20)); }

class Stopwatch {
 public:
  std::chrono::milliseconds elapsed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 start_);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace cco::test
