// The checks of ccoctl doctor.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/report.pb.h"
#include "client/src/connection.h"
#include "device/runtime/gpu_driver.h"

namespace cco::ctl {

namespace report = ::cco::report::v1;

void add_check(report::Doctor* doctor, const std::string& name, report::Verdict verdict,
               const std::string& detail, const std::string& next_step = "");

/// Both sockets: there, and whom they let in.
void check_sockets(const std::string& socket, report::Doctor* doctor);
/// Limits of this process, and options of this machine.
void check_limits(report::Doctor* doctor);
void check_machine(report::Doctor* doctor);

/// Where a machine shows itself: `root` stands before /proc, /sys, /boot, /lib and /run.
struct HostPaths {
  std::string root;
  std::string release;  ///< Of the kernel.
};
HostPaths this_host();
/// What GPUs and RDMA adapters ask of the kernel and its settings, where there are any.
/// `memlock_bytes`: RLIMIT_MEMLOCK of who registers memory.
void check_host(const HostPaths& host, uint64_t memlock_bytes, report::Doctor* doctor);
/// Each GPU's largest PCI region against its memory.
void check_bars(const HostPaths& host, const v1::GetNodeResponse& node, report::Doctor* doctor);

/// The driver as the daemon and as this process sees it; returns this process's, if it opens.
absl::StatusOr<std::unique_ptr<GpuDriver>> check_driver(const v1::GetNodeResponse& node,
                                                        report::Doctor* doctor);
/// The GPUs visible here against the daemon's, by UUID.
void check_gpus(const v1::GetNodeResponse& node, GpuDriver& driver, report::Doctor* doctor);
/// Every pair of visible GPUs: memory of one, mapped for and written through the other.
void check_peer_access(GpuDriver& driver, report::Doctor* doctor);

/// What can be seen from outside when no daemon answers on `socket`: sockets, lock file, unit.
std::string describe_absent_daemon(const std::string& socket);

}  // namespace cco::ctl
