// What a vault holds, by name alone: the rules of FdVault::put() that its providers share.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"

namespace cco::memd {

class VaultNames {
 public:
  explicit VaultNames(uint64_t limit = 0) : limit_(limit) {}

  /// INVALID_ARGUMENT: no name; ALREADY_EXISTS: in use; RESOURCE_EXHAUSTED: `limit` are in use.
  absl::Status add(const std::string& name);
  /// For what an earlier daemon put, whatever the rules say of it.
  void adopt(const std::string& name) { names_.insert(name); }
  void remove(const std::string& name) { names_.erase(name); }
  uint64_t limit() const { return limit_; }
  bool has(const std::string& name) const { return names_.count(name) != 0; }

 private:
  uint64_t limit_;
  std::set<std::string> names_;
};

}  // namespace cco::memd
