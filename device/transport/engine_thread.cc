#include "device/transport/engine_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace cco {
namespace {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

constexpr microseconds kFirstNap{20};
constexpr microseconds kLongestNap{1000};  // What the first item after a pause may wait.

}  // namespace

EngineThread::EngineThread(std::function<bool()> step, const EnginePace& pace)
    : step_(std::move(step)), pace_(pace), thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
  }
  stopping_.notify_one();
  thread_.join();
}

void EngineThread::run() {
  ::pthread_setname_np(::pthread_self(), "cco-engine");  // For people with many threads.
  Clock::time_point last_work = Clock::now();
  microseconds nap = kFirstNap;
  uint32_t looks = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (step_()) {
      last_work = Clock::now();
      nap = kFirstNap;
    } else if (Clock::now() - last_work < pace_.eager) {
      if (++looks % pace_.looks_per_yield == 0) std::this_thread::yield();
    } else {
      std::unique_lock<std::mutex> lock(mutex_);
      stopping_.wait_for(lock, nap, [this] { return stop_.load(std::memory_order_relaxed); });
      nap = std::min(nap * 2, kLongestNap);
    }
  }
}

}  // namespace cco
