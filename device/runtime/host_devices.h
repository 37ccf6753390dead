// The devices that the host driver shows, and the machine memory they share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

inline constexpr uint64_t kHostGranularityBytes = 64u << 10;
inline constexpr uint32_t kMaxHostDevices = 64;

/// HOST-0 to HOST-<count-1>, each with `bytes_per_device`; 0 shares out half of
/// available_memory_bytes().
absl::StatusOr<std::vector<GpuDevice>> make_host_devices(uint32_t count, uint64_t bytes_per_device);

/// `list` as in CUDA_VISIBLE_DEVICES: ordinals or uuids, separated by commas; they are shown in
/// that order. Other than there, a wrong entry is an error and not the end of the list.
absl::StatusOr<std::vector<GpuDevice>> select_devices(const std::vector<GpuDevice>& all,
                                                      const std::string& list);

/// This machine's memory, or the limit of this process's cgroup (v1 or v2) where that is less.
uint64_t available_memory_bytes();

}  // namespace cco
