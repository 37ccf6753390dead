// What the entry points of the device bitcode do: one template for each row of the table
// (client/python/cco/device), named as the row without `cco_`, its arguments those of the axes.
// Handles are device addresses: of a cco_device_comm, of a cco_window_device.
#pragma once

#include "cco/device.hpp"

namespace cco::device::entry {

enum class Team : uint32_t { kWorld, kLsa, kCrossNode, kRail };
/// signal_op.
constexpr int32_t NONE = 0;
constexpr int32_t INC = 1;
constexpr int32_t ADD = 2;

constexpr uint64_t kNever = ~uint64_t{0};

CCO_DEVICE const DeviceComm& comm_at(uint64_t handle) {
  return *global_pointer<const DeviceComm>(handle);
}
CCO_DEVICE const Window& window_at(uint64_t handle) {
  return *global_pointer<const Window>(handle);
}
CCO_DEVICE Place place_at(uint64_t window, uint64_t offset) {
  return Place{window_at(window), offset};
}
CCO_DEVICE uint64_t refused(uint32_t world_rank = kNoRank) {
  return WaitResult{WaitStatus::kRefused, world_rank}.encode();
}
CCO_DEVICE uint64_t arrived() { return 0; }

}  // namespace cco::device::entry

#include "device/bitcode/entry_gda.h"
#include "device/bitcode/entry_lsa.h"
#include "device/bitcode/entry_sdma.h"
