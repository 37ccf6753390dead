// Who pays: tenants, found from what the kernel says of a process, and what each may have. Fixed
// while the daemon runs; what a tenant has is counted where it lies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/core/ids.h"
#include "daemon/ports/identity.h"

namespace cco::memd {

/// 0: none of its own, only the node's limits.
struct Quotas {
  uint64_t bytes_per_gpu = 0;  // Of slabs, from the moment their allocation begins.
  uint64_t groups = 0;         // Running and forming.
  uint64_t windows = 0;        // Of all its groups, and kept.
  uint64_t sessions = 0;
};

struct Tenant {
  std::string name;
  // Who belongs to it: whoever has one of these.
  std::vector<uint32_t> uids;
  std::vector<uint32_t> gids;
  std::string cgroup;  // Or one below it; empty: none.
  uint32_t priority = 0;
  bool external_memory = true;  // May register it.
  Quotas quotas;
};

inline constexpr size_t kMaxTenantNameBytes = 63;
/// Whether all of it are letters, digits, '.', '_' and '-', which is what tenants' names are made
/// of.
bool is_plain_name(const std::string& name);

/// Whether `cgroup` is `ancestor` or lies below it.
bool is_below(const std::string& cgroup, const std::string& ancestor);

class Tenants {
 public:
  Tenants() = default;
  /// `others` are the terms of each user whom none of `named` takes.
  Tenants(std::vector<Tenant> named, Tenant others)
      : named_(std::move(named)), others_(std::move(others)) {}

  /// The first of the named that takes the process, else its user's own.
  TenantId find(const Identity& who) const;
  const Tenant& terms(TenantId id) const;
  /// Whether there can be one of that name.
  bool has(const std::string& name) const;
  /// As configured; "uid-1000" for a user's own.
  std::string name(TenantId id) const;

  const std::vector<Tenant>& named() const { return named_; }
  const Tenant& others() const { return others_; }
  /// Of named()[index]. Never 0.
  static TenantId id(size_t index) { return TenantId{index + 1}; }

 private:
  std::vector<Tenant> named_;
  Tenant others_;
};

/// What was tried, and which quota refuses it.
struct Excess {
  std::string what;
  std::string tenant;
  std::string quota;  // As the configuration calls it.
  uint64_t limit = 0;
  uint64_t used = 0;
  std::string of;  // What is counted: "groups", "bytes on GPU-1".
  // Who uses how much; less than `used`: more is on its way. Empty: not told.
  std::map<int64_t, uint64_t> by_pid;
};
/// "pid 102 4096, pid 101 512, on their way 64": those with most first. `rest` names what of `used`
/// is nobody's in `by_pid`.
std::string describe_users(const std::map<int64_t, uint64_t>& by_pid, uint64_t used,
                           const char* rest);
/// RESOURCE_EXHAUSTED.
absl::Status over_quota(const Excess& excess);

}  // namespace cco::memd
