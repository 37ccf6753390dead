// Port: GPUs that answer when they are told to, and an account of what they have given out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/ports/gpu_pool.h"

namespace cco::memd {

/// A slab is a unit, and so is a control region.
inline constexpr uint64_t kUnitBytes = 64 * 1024;

/// What is wrong, in words.
using Problems = std::vector<std::string>;

/// GPUs that keep every call until answer(), and an account of what they have given out.
class ToldPool final : public GpuPool {
 public:
  ToldPool(int gpu_count, int units_per_gpu, Problems& problems);

  const std::vector<GpuDevice>& gpus() const override { return gpus_; }
  void allocate(int gpu, uint64_t size_bytes, MemoryKind kind, Done done) override;
  void adopt(int gpu, UniqueFd fd, uint64_t size_bytes, Done done) override;
  void release(int gpu, SlabMemory memory) override;
  void when_idle(int, absl::AnyInvocable<void()> done) override { done(); }
  bool is_open(int) const override { return true; }
  bool enforces_read_only() const override { return enforces; }
  absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd fd) override;
  std::chrono::milliseconds busy(int gpu) const override {
    return std::chrono::milliseconds(has_call(gpu) ? 1 : 0);
  }

  bool has_call(int gpu) const { return !calls_[static_cast<size_t>(gpu)].empty(); }
  /// Ends the oldest call on that GPU.
  void answer(int gpu, bool ok);
  /// Calls from now on belong together, and are named so.
  void begin_batch(const std::string& name);
  /// What is allocated, or being allocated, for nobody yet, by GPU.
  std::vector<uint64_t> unsettled_bytes() const;
  std::string text() const;
  /// A daemon that dies gives nothing back.
  void die() { dying_ = true; }

  struct Memory {
    int gpu = 0;
    uint64_t size_bytes = 0;
    bool is_external = false;
  };
  /// Memory that an earlier daemon left.
  void restore(uint64_t inode, const Memory& memory) { live_[inode] = memory; }
  const std::map<uint64_t, Memory>& live() const { return live_; }  // By inode.
  /// Of what is live: given out for a call that still waits for more.
  std::set<uint64_t> unsettled() const;

  std::function<bool(uint64_t inode)> is_mapped;
  bool enforces = false;
  std::function<UniqueFd()> make_file;  // Never the same file twice.

 private:
  struct Batch {
    std::string name;
    std::vector<uint64_t> charged;  // By GPU; external memory is not.
    std::set<uint64_t> made;
    size_t outstanding = 0;
    bool failed = false;
  };
  struct Call {
    std::shared_ptr<Batch> batch;
    uint64_t size_bytes;
    UniqueFd external;  // None: an allocation.
    Done done;
  };
  std::vector<std::shared_ptr<Batch>> batches() const;

  Problems& problems_;
  std::vector<GpuDevice> gpus_;
  std::vector<std::deque<Call>> calls_;  // By GPU.
  std::shared_ptr<Batch> batch_;
  std::map<uint64_t, Memory> live_;
  bool dying_ = false;
};

}  // namespace cco::memd
