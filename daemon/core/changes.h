// What of the broker's state has changed: for whoever keeps records of it. Marked when something is
// made, altered or gone; its present state tells which.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "daemon/core/ids.h"

namespace cco::memd {

struct Changes {
  std::set<SessionId> sessions;
  std::set<GroupId> groups;
  std::set<std::pair<GroupId, uint32_t>> ranks;
  std::set<std::pair<GroupId, WindowId>> windows;
  std::set<SlabId> slabs;
  std::set<LeaseId> leases;
  std::set<WindowId> kept_windows;
  std::set<AttachmentId> attachments;
  std::set<std::pair<SessionId, std::string>> answers;  // By request id.
  bool drains = false;                                  // What any GPU is at.

  bool empty() const {
    return sessions.empty() && groups.empty() && ranks.empty() && windows.empty() &&
           slabs.empty() && leases.empty() && kept_windows.empty() && attachments.empty() &&
           answers.empty() && !drains;
  }
  void add(Changes more) {
    sessions.merge(more.sessions);
    groups.merge(more.groups);
    ranks.merge(more.ranks);
    windows.merge(more.windows);
    slabs.merge(more.slabs);
    leases.merge(more.leases);
    kept_windows.merge(more.kept_windows);
    attachments.merge(more.attachments);
    answers.merge(more.answers);
    drains |= more.drains;
  }
};

}  // namespace cco::memd
