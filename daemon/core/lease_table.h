// Leases: memory that is kept for a job before its processes exist. Whom each serves, and until
// when; its bytes are in the MemoryLedger.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/ids.h"
#include "daemon/ports/executor.h"

namespace cco::memd {

struct Lease {
  LeaseId id{};
  std::string token;      // Secret.
  std::vector<int> gpus;  // Ascending.
  uint64_t bytes_per_gpu = 0;
  std::string tenant;  // By name, as the next configuration may have others; empty: it serves any.
  std::string cgroup;  // Whose processes need no token; empty: nobody's.
  TimePoint expires;
  TimerId timer{};
};

class LeaseTable {
 public:
  LeaseId next_id() { return LeaseId{++last_id_}; }
  void add(Lease lease) { leases_.insert_or_assign(lease.id, std::move(lease)); }
  void erase(LeaseId id) { leases_.erase(id); }

  // Null: there is none, or not any more.
  const Lease* find(LeaseId id) const;
  /// That serves `tenant`.
  const Lease* find_by_token(const std::string& token, const std::string& tenant) const;
  /// That serves `tenant`, and takes the cgroup: of several the innermost, then the oldest.
  const Lease* find_by_cgroup(const std::string& cgroup, const std::string& tenant) const;

  const std::map<LeaseId, Lease>& all() const { return leases_; }
  uint64_t last_id() const { return last_id_; }
  void set_last_id(uint64_t id) { last_id_ = id; }

 private:
  std::map<LeaseId, Lease> leases_;
  uint64_t last_id_ = 0;
};

}  // namespace cco::memd
