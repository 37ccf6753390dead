// One thread for each GPU, started when first needed: all driver calls of that GPU, in order.
#pragma once

#include <memory>
#include <vector>

#include "daemon/ports/executor.h"
#include "daemon/ports/gpu_pool.h"

namespace cco::memd {

class GpuWorkers final : public GpuPool {
 public:
  /// Both outlive this. `closed`: GPUs of the node that the driver in this process does not know.
  GpuWorkers(GpuDriver& driver, const std::vector<GpuDevice>& closed, Executor& executor);
  /// Waits for what every thread has been given; call drain() first to know that this ends.
  ~GpuWorkers() override;

  const std::vector<GpuDevice>& gpus() const override { return gpus_; }
  void allocate(int gpu, uint64_t size_bytes, MemoryKind kind, Done done) override;
  void adopt(int gpu, UniqueFd fd, uint64_t size_bytes, Done done) override;
  void release(int gpu, SlabMemory memory) override;
  void when_idle(int gpu, Executor::Task done) override;
  bool is_open(int gpu) const override {
    return static_cast<size_t>(gpu) < driver_.devices().size();
  }
  bool enforces_read_only() const override { return driver_.enforces_read_only(); }
  absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd exported) override {
    return driver_.read_only_fd(exported);
  }
  Milliseconds busy(int gpu) const override;

  /// Waits for all work to end. False: a GPU did not answer within `timeout`; the process must
  /// leave by _exit(), since a thread is inside the driver.
  bool drain(Milliseconds timeout);

 private:
  class Worker;
  void run(int gpu, Executor::Task task);

  GpuDriver& driver_;
  Executor& executor_;
  std::vector<GpuDevice> gpus_;  // The driver's come first, so that their indices are its own.
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace cco::memd
