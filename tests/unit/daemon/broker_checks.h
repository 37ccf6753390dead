// What must be true of a broker in every state.
#pragma once

#include <cstdint>
#include <set>

#include "daemon/core/broker.h"
#include "tests/unit/daemon/told_pool.h"

namespace cco::memd {

/// The group that has a slab of this memory; null: none has.
const Group* owner_of(const Broker& broker, uint64_t inode);
/// Whether a rank of the session may still use the group's memory.
bool may_map(const Group& group, SessionId session);
/// Whether the session is attached to a window that has this memory.
bool is_attached(const Broker& broker, uint64_t inode, SessionId session);

/// Adds to `problems` what is wrong: slabs without owner or with two, bytes that do not add up,
/// ranks, attachments and sessions that do not know of each other, members of other tenants, ranges
/// that overlap, calls that nobody will end. `tenants` are all that there may be; to be asked
/// between rounds, when nothing is posted.
void check_broker(const Broker& broker, const ToldPool& pool, const std::set<TenantId>& tenants,
                  Problems* problems);

}  // namespace cco::memd
