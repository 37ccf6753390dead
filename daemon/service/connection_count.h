// How many connections there are on one of the daemon's sockets, and may be: twice the sessions, of
// all together and of each tenant, said hello or not, so that nobody keeps others out. Twice, as a
// client that connects anew may do so before its last connection is known to have gone. And some
// descriptors stay free: for what those who are in ask for, and for operators, who may want to see
// why nobody else gets in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "client/base/unique.h"
#include "daemon/core/broker.h"

namespace cco::memd {

class ConnectionCount {
 public:
  struct Options {
    std::string where;  // What messages call the socket.
    uint64_t reserve;   // Descriptors that have to be left.
  };
  /// The broker outlives this.
  ConnectionCount(const Broker& broker, Options options)
      : broker_(broker), options_(std::move(options)) {}

  /// RESOURCE_EXHAUSTED: `newest`, which `who` of `tenant` has just made, is one too many.
  absl::Status check(BorrowedFd newest, const Identity& who, TenantId tenant) const;
  void add(TenantId tenant);
  void remove(TenantId tenant);

 private:
  absl::Status check_descriptors(BorrowedFd newest, bool is_operator) const;
  absl::Status check_all() const;
  absl::Status check_tenant(TenantId tenant) const;

  const Broker& broker_;
  const Options options_;
  uint64_t total_ = 0;
  std::map<TenantId, uint64_t> by_tenant_;  // Those that have any.
};

}  // namespace cco::memd
