// Runs a kernel on the host: one real thread for each GPU thread, so that debuggers and race
// detectors see them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cco/device/impl/host_thread.h"

namespace cco::device {

struct HostLaunch {
  uint32_t blocks = 1;
  uint32_t threads = 1;       ///< Per block, 1..1024.
  uint32_t shared_bytes = 0;  ///< Dynamic shared memory of each block.
};

namespace host {

/// Holds threads back until it is known whether all of them could be started.
class StartGate {
 public:
  bool wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [&] { return state_ != State::kClosed; });
    return state_ == State::kRun;
  }
  void open(bool run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_ = run ? State::kRun : State::kGiveUp;
    opened_.notify_all();
  }

 private:
  enum class State { kClosed, kRun, kGiveUp };
  std::mutex mutex_;
  std::condition_variable opened_;
  State state_ = State::kClosed;
};

inline std::string cannot_start(HostLaunch shape, size_t which, size_t total) {
  return "starting host thread " + std::to_string(which) + " of " + std::to_string(total) + " (" +
         std::to_string(shape.blocks) + " blocks of " + std::to_string(shape.threads) +
         "): launch fewer, or raise the limit on threads (ulimit -u, pids.max)";
}

}  // namespace host

/// Runs `kernel` as `shape.blocks` blocks of `shape.threads` threads, all at once, and returns when
/// the last has ended. `arguments` goes to every thread: one pointer per kernel parameter.
///
/// Callers   any thread; launches may overlap
/// Blocking  until the kernel ends
/// Throws    std::system_error if a thread cannot be started: those already started have ended by
///           then, and none of them has entered the kernel. A kernel itself must not throw.
inline void launch_on_host(HostLaunch shape, void (*kernel)(void**), void** arguments) {
  std::vector<std::unique_ptr<host::Block>> blocks;
  for (uint32_t block = 0; block < shape.blocks; ++block) {
    blocks.push_back(std::make_unique<host::Block>(shape.threads, shape.shared_bytes));
  }
  host::StartGate gate;
  std::vector<std::thread> threads;
  const size_t total = size_t{shape.blocks} * shape.threads;
  threads.reserve(total);
  const auto finish = [&](bool run) {
    gate.open(run);
    for (std::thread& thread : threads) thread.join();
  };
  for (size_t i = 0; i < total; ++i) {
    const auto block = static_cast<uint32_t>(i / shape.threads);
    const host::Thread self{blocks[block].get(), block, shape.blocks,
                            static_cast<uint32_t>(i % shape.threads), shape.threads};
    try {
      threads.emplace_back([self, kernel, arguments, &gate] {
        cco_host_thread = self;
        if (gate.wait()) kernel(arguments);
        self.block->all.leave();
        self.warp().leave(self.lane());
      });
    } catch (const std::system_error& error) {
      finish(false);
      throw std::system_error(error.code(), host::cannot_start(shape, i + 1, total));
    }
  }
  finish(true);
}

}  // namespace cco::device
