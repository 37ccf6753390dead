// Warps of the host: barriers between threads, and which of a warp's threads make a call together.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cco::device::host {

/// A barrier for a fixed number of threads that also tells each of them whether any brought `true`.
/// Waiters sleep: a launch has many more threads than a laptop has cores.
class Barrier {
 public:
  explicit Barrier(uint32_t size) : size_(size), missing_(size) {}

  /// `before_waiting(round)` is called by all but the last to come.
  template <typename F>
  bool any(bool mine, F before_waiting) {
    std::unique_lock<std::mutex> lock(mutex_);
    pending_ = pending_ || mine;
    if (--missing_ == 0) {
      end_round();
      return result_;
    }
    const uint64_t round = round_.load(std::memory_order_relaxed);
    before_waiting(round);
    all_here_.wait(lock, [&] { return !in_round(round); });
    return result_;  // The next round cannot end before this thread joins it.
  }

  /// A thread that has left its kernel no longer counts, as on GPUs.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --size_;
    if (--missing_ == 0 && size_ != 0) end_round();
  }

  /// Whether threads that wait in `round` wait still.
  bool in_round(uint64_t round) const { return round_.load(std::memory_order_relaxed) == round; }

 private:
  void end_round() {
    result_ = pending_;
    pending_ = false;
    missing_ = size_;
    round_.fetch_add(1, std::memory_order_relaxed);
    all_here_.notify_all();
  }

  std::mutex mutex_;
  uint32_t size_;
  std::condition_variable all_here_;
  uint32_t missing_;
  std::atomic<uint64_t> round_{0};
  bool pending_ = false;
  bool result_ = false;
};

/// Threads of one warp that make a call together, and what they tell each other.
struct LaneGroup {
  explicit LaneGroup(uint32_t count) : barrier(count), members(count) {}

  struct Member {
    uint64_t told[2] = {0, 0};  ///< In even and odd exchanges: the last one may still be read.
    uint32_t exchanges = 0;
  };
  Barrier barrier;
  std::vector<Member> members;
};

/// Where in the program the caller is. Bodies of device functions are inlined, so that this tells
/// two calls of one function apart.
__attribute__((noinline)) inline const void* call_site() {
  asm volatile("" ::: "memory");  // Two calls are not one, though they take nothing.
  return __builtin_return_address(0);
}

/// A warp. GPUs run its threads in lockstep, so that those which make a call at the same time know
/// one another. Here that is whoever has come to the same call once no other thread of the warp can
/// come any more without being helped: it waits at a barrier or in another call, polls, or has
/// left.
class Warp {
 public:
  explicit Warp(uint32_t size) : barrier_(size), lanes_(size) {}

  bool any(uint32_t lane, bool mine) { return any_at(barrier_, lane, mine); }

  /// A barrier of this warp, of its block, or of a group of lanes.
  bool any_at(Barrier& barrier, uint32_t lane, bool mine) {
    bool waited = false;
    const bool result = barrier.any(mine, [&](uint64_t round) {
      const std::lock_guard<std::mutex> lock(mutex_);
      lanes_[lane].barrier = &barrier;
      lanes_[lane].round = round;
      waited = true;
      gather_if_quiet();
    });
    if (waited) {
      const std::lock_guard<std::mutex> lock(mutex_);
      lanes_[lane].barrier = nullptr;
    }
    return result;
  }

  /// The threads that make this call together with the caller, and its rank among them.
  std::pair<std::shared_ptr<LaneGroup>, uint32_t> gather(uint32_t lane, const void* site) {
    std::unique_lock<std::mutex> lock(mutex_);
    lanes_[lane].site = site;
    gathering_.fetch_add(1, std::memory_order_relaxed);
    for (Lane& other : lanes_) other.looks = 0;
    gather_if_quiet();
    gathered_.wait(lock, [&] { return lanes_[lane].site == nullptr; });
    return {std::move(lanes_[lane].group), lanes_[lane].rank};
  }

  /// The caller polls for something that another thread does.
  void pause(uint32_t lane) {
    if (gathering_.load(std::memory_order_relaxed) == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++lanes_[lane].looks;
    gather_if_quiet();
  }

  void leave(uint32_t lane) {
    barrier_.leave();
    const std::lock_guard<std::mutex> lock(mutex_);
    lanes_[lane].has_left = true;
    gather_if_quiet();
  }

 private:
  struct Lane {
    const void* site = nullptr;  ///< Of the call it has come to; null: none.
    bool has_left = false;
    uint32_t looks = 0;  ///< In vain, since the last thread came to gather.
    const Barrier* barrier = nullptr;
    uint64_t round = 0;
    std::shared_ptr<LaneGroup> group;
    uint32_t rank = 0;

    /// One look may be from before the last thread came, which may have been released by the same
    /// word that this one polls. After the second it is known to wait for something else.
    bool is_quiet() const {
      return site != nullptr || has_left || looks >= 2 ||
             (barrier != nullptr && barrier->in_round(round));
    }
  };

  void gather_if_quiet() {
    if (gathering_.load(std::memory_order_relaxed) == 0) return;
    for (const Lane& lane : lanes_) {
      if (!lane.is_quiet()) return;
    }
    gathering_.store(0, std::memory_order_relaxed);
    for (size_t first = 0; first < lanes_.size(); ++first) {
      const void* const site = lanes_[first].site;
      if (site != nullptr) form_group(first, site);
    }
    gathered_.notify_all();
  }

  void form_group(size_t first, const void* site) {
    const auto together = [&](const Lane& lane) { return lane.site == site; };
    const auto size = std::count_if(lanes_.begin(), lanes_.end(), together);
    const auto group = std::make_shared<LaneGroup>(static_cast<uint32_t>(size));
    uint32_t rank = 0;
    for (size_t i = first; i < lanes_.size(); ++i) {
      if (!together(lanes_[i])) continue;
      lanes_[i].site = nullptr;
      lanes_[i].group = group;
      lanes_[i].rank = rank++;
    }
  }

  Barrier barrier_;
  std::mutex mutex_;  // Of all below; taken after a barrier's.
  std::condition_variable gathered_;
  std::vector<Lane> lanes_;
  std::atomic<uint32_t> gathering_{0};
};

}  // namespace cco::device::host
