// A GpuDriver that passes every call on to a real one, except that one of them fails.
#pragma once

#include <cstdint>

#include "tests/support/forwarding_gpu_driver.h"

namespace cco {

class FaultyGpuDriver final : public ForwardingGpuDriver {
 public:
  /// Call number `fail_call`, from 0, fails with UNAVAILABLE "injected".
  FaultyGpuDriver(GpuDriver& real, uint32_t fail_call)
      : ForwardingGpuDriver(real), fail_call_(fail_call) {}

 private:
  absl::Status before_call() override {
    return calls_++ == fail_call_ ? absl::UnavailableError("injected") : absl::OkStatus();
  }

  const uint32_t fail_call_;
  uint32_t calls_ = 0;
};

}  // namespace cco
