#include "device/runtime/host_devices.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/base/status_macros.h"
#include "device/runtime/address_table.h"

namespace cco {
namespace {

/// The least limit in `file` of `group` and its parents beneath `mount`. A container may see its
/// own cgroup mounted as the root while /proc still shows the path outside: the walk to the root
/// covers that.
uint64_t least_limit(const std::string& mount, std::string group, const char* file) {
  uint64_t least = UINT64_MAX;
  while (true) {
    std::ifstream stream(absl::StrCat(mount, group, "/", file));
    uint64_t limit = 0;
    if (stream >> limit) least = std::min(least, limit);  // "max" is no number: no limit.
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

uint64_t cgroup_limit_bytes() {
  uint64_t least = UINT64_MAX;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string group = fields[2] == "/" ? "" : fields[2];
    if (fields[1].empty()) {
      least = std::min(least, least_limit("/sys/fs/cgroup", group, "memory.max"));
    } else if (fields[1] == "memory") {
      least = std::min(least, least_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

absl::StatusOr<size_t> find_device(const std::vector<GpuDevice>& all, const std::string& entry) {
  uint32_t ordinal = 0;
  if (absl::SimpleAtoi(entry, &ordinal) && ordinal < all.size()) return ordinal;
  for (size_t index = 0; index < all.size(); ++index) {
    if (all[index].uuid == entry) return index;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "CCO_HOST_VISIBLE_DEVICES: no device \"%s\"; there are %d, 0 to %d or %s to %s", entry,
      all.size(), all.size() - 1, all.front().uuid, all.back().uuid));
}

}  // namespace

uint64_t available_memory_bytes() {
  const uint64_t physical = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                            static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(physical, cgroup_limit_bytes());
}

absl::StatusOr<std::vector<GpuDevice>> make_host_devices(uint32_t count,
                                                         uint64_t bytes_per_device) {
  if (count == 0 || count > kMaxHostDevices) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d host devices: must be 1 to %d", count, kMaxHostDevices));
  }
  if (bytes_per_device == 0) {
    bytes_per_device =
        available_memory_bytes() / 2 / count / kHostGranularityBytes * kHostGranularityBytes;
  }
  CCO_RETURN_IF_ERROR(check_granularity(bytes_per_device, kHostGranularityBytes));
  std::vector<GpuDevice> devices(count);
  for (uint32_t index = 0; index < count; ++index) {
    devices[index] = {.uuid = absl::StrCat("HOST-", index),
                      .pci_bus_id = "",
                      .name = "host memory",
                      .arch = "host",
                      .total_bytes = bytes_per_device,
                      .granularity_bytes = kHostGranularityBytes,
                      .preferred_slab_bytes = 4u << 20};
  }
  return devices;
}

absl::StatusOr<std::vector<GpuDevice>> select_devices(const std::vector<GpuDevice>& all,
                                                      const std::string& list) {
  std::vector<GpuDevice> selected;
  const std::vector<std::string> entries = absl::StrSplit(list, ',');
  for (const std::string& entry : entries) {
    CCO_ASSIGN_OR_RETURN(const size_t index, find_device(all, entry));
    for (const GpuDevice& earlier : selected) {
      if (earlier.uuid == all[index].uuid) {
        return absl::InvalidArgumentError(
            absl::StrFormat("CCO_HOST_VISIBLE_DEVICES: \"%s\" names %s twice", list, earlier.uuid));
      }
    }
    selected.push_back(all[index]);
  }
  return selected;
}

}  // namespace cco
