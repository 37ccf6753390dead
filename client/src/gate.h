// A mutex with an end: lets one thread in at a time and bounds how long the others wait.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "client/src/deadline.h"

namespace cco {

class Gate {
 public:
  /// Proof of being inside; leaves when it goes. Empty if the deadline passed first.
  class Pass {
   public:
    explicit Pass(Gate* gate) : gate_(gate) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->leave();
    }
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    Gate* gate_;
  };

  [[nodiscard]] Pass enter(const Deadline& deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!free_.wait_for(lock, deadline.left(), [this] { return !taken_; })) return Pass(nullptr);
    taken_ = true;
    return Pass(this);
  }

  /// Without waiting.
  [[nodiscard]] Pass try_enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (taken_) return Pass(nullptr);
    taken_ = true;
    return Pass(this);
  }

 private:
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_ = false;
    free_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

}  // namespace cco
