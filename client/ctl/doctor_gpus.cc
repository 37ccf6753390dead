// Checks of drivers and GPUs.
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "client/ctl/doctor.h"
#include "device/runtime/open_driver.h"

namespace cco::ctl {
namespace {

// Memory of `owner`, mapped for both, written through `peer` and read through `owner`.
absl::Status try_pair(GpuDriver& driver, GpuContext& owner, GpuContext& peer, uint64_t seed) {
  const std::vector<GpuDevice>& devices = driver.devices();
  const GpuDevice& owner_device = devices[static_cast<size_t>(owner.device())];
  const GpuDevice& peer_device = devices[static_cast<size_t>(peer.device())];
  const uint64_t alignment =
      std::max(owner_device.granularity_bytes, peer_device.granularity_bytes);
  CCO_ASSIGN_OR_RETURN(const GpuMemory memory,
                       driver.allocate(owner.device(), alignment, MemoryKind::kData));
  CCO_ASSIGN_OR_RETURN(const VaRange range, driver.reserve(peer.device(), alignment, alignment));
  CCO_ASSIGN_OR_RETURN(const GpuMapping mapping, driver.map(range.address(), memory));
  CCO_RETURN_IF_ERROR(driver.set_access(mapping, owner.device(), Access::kReadWrite));
  CCO_RETURN_IF_ERROR(driver.set_access(mapping, peer.device(), Access::kReadWrite));

  std::vector<uint64_t> written(4096 / sizeof(uint64_t));
  for (size_t i = 0; i < written.size(); ++i) written[i] = (seed + i) * 0x9e3779b97f4a7c15;
  std::vector<uint64_t> read(written.size());
  const uint64_t bytes = written.size() * sizeof(uint64_t);
  CCO_RETURN_IF_ERROR(peer.copy_to_device(range.address(), written.data(), bytes));
  CCO_RETURN_IF_ERROR(owner.copy_to_host(read.data(), range.address(), bytes));
  if (std::memcmp(written.data(), read.data(), bytes) != 0) {
    return absl::DataLossError("the owner reads something else than the peer has written");
  }
  return absl::OkStatus();
}

std::string join(const std::set<std::string>& names) { return absl::StrJoin(names, ", "); }

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDriver>> check_driver(const v1::GetNodeResponse& node,
                                                        report::Doctor* doctor) {
  if (!node.driver_change().empty()) {
    add_check(doctor, "driver's library", report::VERDICT_BAD, node.driver_change());
  }
  const std::string theirs = absl::StrCat(node.driver(), " (", node.driver_version(), ")");
  absl::StatusOr<DriverKind> kind = parse_driver_kind(node.driver());
  if (!kind.ok()) {
    add_check(doctor, "driver", report::VERDICT_BAD,
              absl::StrCat("the daemon uses ", theirs, ", which this ccoctl does not know"),
              "install the ccoctl that belongs to the daemon");
    return kind.status();
  }
  DriverOptions options;
  options.kind = *kind;
  options.host_devices = static_cast<uint32_t>(std::max(1, node.gpus_size()));
  absl::StatusOr<std::unique_ptr<GpuDriver>> driver = open_driver(options);
  if (!driver.ok()) {
    add_check(doctor, "driver", report::VERDICT_BAD,
              absl::StrCat("the daemon uses ", theirs, "; here: ", driver.status().ToString()),
              "make the same library and devices visible here (container? permissions?)");
    return driver.status();
  }
  const std::string ours =
      absl::StrCat(std::string((*driver)->name()), " (", (*driver)->version(), ")");
  const bool same = ours == theirs;
  add_check(doctor, "driver", same ? report::VERDICT_OK : report::VERDICT_BAD,
            same ? theirs : absl::StrCat("the daemon uses ", theirs, ", this process ", ours),
            same ? "" : "run both with one driver version");
  return driver;
}

void check_gpus(const v1::GetNodeResponse& node, GpuDriver& driver, report::Doctor* doctor) {
  std::set<std::string> missing_here;
  std::set<std::string> unknown_there;
  for (const v1::Gpu& gpu : node.gpus()) missing_here.insert(gpu.uuid());
  size_t common = 0;
  for (const GpuDevice& device : driver.devices()) {
    if (missing_here.erase(device.uuid) != 0) {
      ++common;
    } else {
      unknown_there.insert(device.uuid);
    }
  }
  const std::string detail =
      absl::StrCat(common, " of the daemon's ", node.gpus_size(), " GPUs are visible here");
  if (!unknown_there.empty()) {
    add_check(doctor, "gpus", report::VERDICT_BAD,
              absl::StrCat(detail, "; the daemon does not have ", join(unknown_there)),
              "make them visible to cco-memd and restart it");
  } else if (common == 0) {
    add_check(doctor, "gpus", report::VERDICT_BAD, detail,
              "look at CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and the container's devices");
  } else if (!missing_here.empty()) {
    add_check(doctor, "gpus", report::VERDICT_OK,
              absl::StrCat(detail, "; hidden: ", join(missing_here)));
  } else {
    add_check(doctor, "gpus", report::VERDICT_OK, detail);
  }
}

void check_peer_access(GpuDriver& driver, report::Doctor* doctor) {
  std::vector<std::unique_ptr<GpuContext>> contexts;
  for (size_t device = 0; device < driver.devices().size(); ++device) {
    absl::StatusOr<std::unique_ptr<GpuContext>> context = driver.open(static_cast<int>(device));
    if (!context.ok()) {
      add_check(doctor, "gpu " + driver.devices()[device].uuid, report::VERDICT_BAD,
                std::string(context.status().message()), "see the vendor's own tools");
      continue;
    }
    contexts.push_back(*std::move(context));
  }
  size_t tried = 0;
  size_t good = 0;
  for (const auto& owner : contexts) {
    for (const auto& peer : contexts) {
      if (owner == peer && contexts.size() > 1) continue;
      const absl::Status status = try_pair(driver, *owner, *peer, ++tried);
      if (status.ok()) {
        ++good;
        continue;
      }
      // Without memory for a trial nothing is known about the path.
      const bool undecided = status.code() == absl::StatusCode::kResourceExhausted;
      add_check(
          doctor,
          absl::StrCat("peer access ", driver.devices()[static_cast<size_t>(peer->device())].uuid,
                       " to ", driver.devices()[static_cast<size_t>(owner->device())].uuid),
          undecided ? report::VERDICT_UNKNOWN : report::VERDICT_BAD, std::string(status.message()),
          undecided ? "free memory on the GPU and try again"
                    : "groups over this pair will fail; see NVLink/xGMI, IOMMU and ACS");
    }
  }
  const std::string detail =
      absl::StrCat(good, " of ", tried, contexts.size() > 1 ? " pairs" : " GPUs",
                   ": allocated, mapped, written by one and read by the other");
  add_check(doctor, "peer access",
            good == tried && tried > 0 ? report::VERDICT_OK : report::VERDICT_BAD, detail,
            good == tried ? "" : "see the lines above");
}

}  // namespace cco::ctl
