// Port: driver calls, each on its GPU's own thread. No call blocks; answers come on the core's
// thread. A GPU that does not answer delays nobody who does not need it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "device/runtime/gpu_driver.h"

namespace cco::memd {

/// One physical allocation and the fd by which others map it. Give it back by GpuPool::release():
/// destroying the memory calls the driver.
struct SlabMemory {
  GpuMemory memory;
  UniqueFd fd;
};

class GpuPool {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<SlabMemory>)>;

  virtual ~GpuPool() = default;

  virtual const std::vector<GpuDevice>& gpus() const = 0;

  /// Allocates and exports.
  virtual void allocate(int gpu, uint64_t size_bytes, MemoryKind kind, Done done) = 0;
  /// Takes somebody else's export in, after a trial import that shows it is what it claims to be.
  virtual void adopt(int gpu, UniqueFd fd, uint64_t size_bytes, Done done) = 0;
  virtual void release(int gpu, SlabMemory memory) = 0;

  /// Calls `done` once that GPU's thread has done all that it has been given so far.
  virtual void when_idle(int gpu, absl::AnyInvocable<void()> done) = 0;

  /// False: one that is drained, which the driver in this process does not know. It takes no calls.
  virtual bool is_open(int gpu) const = 0;

  // As of GpuDriver. They ask no GPU, and answer at once.
  virtual bool enforces_read_only() const = 0;
  virtual absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd exported) = 0;

  /// How long the call that runs now on that GPU's thread has been running; zero if none does.
  virtual std::chrono::milliseconds busy(int gpu) const = 0;
};

}  // namespace cco::memd
