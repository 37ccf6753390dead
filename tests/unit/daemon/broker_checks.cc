#include "tests/unit/daemon/broker_checks.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/inode.h"

namespace cco::memd {
namespace {

using Range = std::pair<uint64_t, uint64_t>;  // Begin and end.

bool overlap(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) return true;
  }
  return false;
}

bool waits_for(const Group& group) {
  const auto waits = [](const auto& entry) { return !entry.second->empty(); };
  return std::any_of(group.window_calls.begin(), group.window_calls.end(), waits) ||
         std::any_of(group.barrier_calls.begin(), group.barrier_calls.end(), waits);
}

class Checker {
 public:
  Checker(const Broker& broker, const ToldPool& pool, const std::set<TenantId>& tenants,
          Problems& problems)
      : broker_(broker), pool_(pool), tenants_(tenants), problems_(problems) {}
  void run();

 private:
  void check_slabs();
  void check_bytes();
  uint64_t revoked_of_groups(int gpu) const;
  void check_attachments();
  void check_sessions();
  void check_members(const Group& group);
  void check_heap(const Group& group);
  void check_waits(const Group& group);
  template <typename... Parts>
  void expect(bool good, const Parts&... what) {
    if (!good) problems_.push_back(absl::StrCat(what...));
  }

  const Broker& broker_;
  const ToldPool& pool_;
  const std::set<TenantId>& tenants_;
  Problems& problems_;
};

void Checker::run() {
  check_slabs();
  check_bytes();
  check_attachments();
  check_sessions();
  for (const auto& [id, group] : broker_.groups()) {
    check_members(*group);
    check_heap(*group);
    check_waits(*group);
  }
}

void Checker::check_attachments() {
  for (const auto& [id, attachment] : broker_.attachments().all()) {
    const auto session = broker_.sessions().all().find(attachment.session);
    expect(session != broker_.sessions().all().end() && session->second.attachments.count(id) == 1,
           "an attachment's session does not know of it");
    for (const SlabId slab : attachment.slabs) {
      expect(slab == SlabId{} || broker_.slabs().fd(slab) != nullptr,
             "memory that somebody is attached to has been freed");
    }
  }
}

void Checker::check_sessions() {
  for (const auto& [id, session] : broker_.sessions().all()) {
    for (const auto& [group, rank] : session.ranks) {
      const auto found = broker_.groups().find(group);
      expect(found != broker_.groups().end() && rank < found->second->size() &&
                 found->second->ranks[rank].session == id && found->second->ranks[rank].may_map,
             "a session has a rank that is not its own");
    }
  }
}

// Each slab has one owner, and all memory is a slab or on its way to be one.
void Checker::check_slabs() {
  std::map<SlabId, int> owners;
  for (const auto& [id, group] : broker_.groups()) {
    for (const auto& [index, set] : group->slabs) {
      for (uint32_t rank = 0; rank < group->size(); ++rank) {
        if (set.ids[rank] == SlabId{}) continue;
        ++owners[set.ids[rank]];
        const auto slab = broker_.slabs().all().find(set.ids[rank]);
        if (slab == broker_.slabs().all().end()) {
          problems_.push_back("a group has a slab that is not there");
          continue;
        }
        expect(slab->second.gpu == group->ranks[rank].gpu, "a slab is on another rank's GPU");
        expect(slab->second.size_bytes == set.sizes[rank], "a slab is of another size");
        expect(slab->second.is_external || slab->second.payer.tenant == group->tenant,
               "a slab is paid for by another tenant");
      }
    }
  }
  for (const auto& [id, kept] : broker_.kept_windows().all()) {
    for (const SlabId slab : kept.slabs) {
      ++owners[slab];
      const auto found = broker_.slabs().all().find(slab);
      expect(found != broker_.slabs().all().end() && found->second.state == SlabState::kKept &&
                 found->second.payer.tenant == kept.tenant,
             "a kept window's slab is not kept, or another tenant's");
    }
  }
  for (const SlabId slab : broker_.attachments().inherited()) {
    ++owners[slab];
    const auto found = broker_.slabs().all().find(slab);
    expect(found != broker_.slabs().all().end() && found->second.state == SlabState::kHeld &&
               broker_.attachments().count(slab) != 0,
           "a slab is held for an attachment that is not there");
  }
  std::set<uint64_t> inodes = pool_.unsettled();
  for (const auto& [id, slab] : broker_.slabs().all()) {
    expect(owners[id] == 1, "a slab has ", owners[id], " owners");
    const uint64_t inode = inode_of(slab.memory.fd.get());
    expect(inodes.insert(inode).second, "two slabs are the same memory");
    expect(pool_.live().count(inode) == 1, "a slab's memory has been freed");
  }
  expect(inodes.size() == pool_.live().size(), "there is memory that is no slab");
}

uint64_t Checker::revoked_of_groups(int gpu) const {
  uint64_t bytes = 0;
  for (const auto& [id, group] : broker_.groups()) {
    for (const auto& [index, set] : group->slabs) {
      for (uint32_t rank = 0; rank < group->size() && !set.is_external; ++rank) {
        const bool is_gone = set.ids[rank] == SlabId{} && group->ranks[rank].gpu == gpu;
        bytes += is_gone ? set.sizes[rank] : 0;
      }
    }
  }
  return bytes;
}

void Checker::check_bytes() {
  std::vector<uint64_t> charged = pool_.unsettled_bytes();
  std::vector<uint64_t> live(charged.size(), 0);
  for (const auto& [id, slab] : broker_.slabs().all()) {
    if (!slab.is_external) charged[static_cast<size_t>(slab.gpu)] += slab.size_bytes;
  }
  for (const auto& [inode, memory] : pool_.live()) {
    if (!memory.is_external) live[static_cast<size_t>(memory.gpu)] += memory.size_bytes;
  }
  for (size_t gpu = 0; gpu < charged.size(); ++gpu) {
    const int index = static_cast<int>(gpu);
    expect(broker_.slabs().usage(index).bytes == charged[gpu], "GPU ", gpu, " has ", charged[gpu],
           " bytes of slabs, and counts ", broker_.slabs().usage(index).bytes);
    expect(live[gpu] <= pool_.gpus()[gpu].total_bytes, "a GPU gives more than it has");
    uint64_t paid = 0;
    for (const TenantId tenant : tenants_) paid += broker_.slabs().bytes(tenant, index);
    expect(paid == charged[gpu] + broker_.slabs().usage(index).revoked_bytes,
           "tenants pay for more or less than there is and was revoked");
    expect(broker_.slabs().usage(index).revoked_bytes >= revoked_of_groups(index),
           "what was revoked is free, and a group may map it");
  }
}

void Checker::check_members(const Group& group) {
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const Rank& member = group.ranks[rank];
    if (!member.may_map) {
      expect(member.state != MemberState::kLive, "a live rank may not map");
      continue;
    }
    const auto found = broker_.sessions().all().find(member.session);
    const Session* session = found == broker_.sessions().all().end() ? nullptr : &found->second;
    expect(session != nullptr && session->ranks.count({group.id, rank}) == 1,
           "a rank's session does not know of it");
    if (session == nullptr) continue;
    expect(session->tenant == group.tenant, "a group has a member of another tenant");
    expect((session->state == SessionState::kLost) == (member.state == MemberState::kLost),
           "a rank is lost and its session is not, or the other way round");
  }
}

void Checker::check_heap(const Group& group) {
  std::map<uint32_t, std::vector<Range>> ranges;  // By slab.
  for (const auto& [id, window] : group.windows) {
    const auto set = group.slabs.find(window.place.slab_index);
    if (set == group.slabs.end()) {
      problems_.push_back("a window is in no slab");
      continue;
    }
    const uint64_t begin = window.place.offset, end = begin + window.size_bytes;
    if (window.placement != Placement::kExternal) {
      ranges[window.place.slab_index].emplace_back(begin, end);
      expect(
          begin >= set->second.offsets[0] && end <= set->second.offsets[0] + set->second.sizes[0],
          "a window leaves its slab");
    }
    ranges[0].emplace_back(window.descriptor_offset,
                           window.descriptor_offset + group.descriptor_bytes());
    expect(window.is_used() || (window.keep.count() != 0 && group.is_touched_by_lost()),
           "a window that nobody uses is there");
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
      expect(!window.users[rank] || group.ranks[rank].state == MemberState::kLive,
             "a rank that is out uses a window");
    }
  }
  ranges[0].emplace_back(0, kSelfTestBytes);
  for (const auto& [slab, used] : ranges) expect(!overlap(used), "windows overlap");
  std::vector<Range> sets;
  for (const auto& [index, set] : group.slabs) {
    const uint64_t begin = index == 0 ? 0 : set.reserved_offset;
    sets.emplace_back(begin,
                      begin + (index == 0 ? group.heap.control_bytes() : set.reserved_bytes));
  }
  expect(!overlap(sets), "slabs overlap in the slot");
}

void Checker::check_waits(const Group& group) {
  expect(group.abort_reason.empty() || !waits_for(group), "a call waits in a group that has ended");
  for (const auto& [key, call] : group.window_calls) {
    expect(!call->is_idle(), "a call that nobody waits in is kept");
    expect(call->is_doing() || !call->complete(), "a window that all ask for is not made");
  }
  for (const auto& [sequence, call] : group.barrier_calls) {
    expect(!call->is_idle() && !call->complete(), "a barrier that is over is kept");
  }
  const ShrinkCall* shrink = group.shrink_call.get();
  expect(shrink == nullptr || shrink->empty() || shrink->is_doing() || !shrink->complete(),
         "a group that all would shrink is not shrunk");
}

}  // namespace

const Group* owner_of(const Broker& broker, uint64_t inode) {
  for (const auto& [id, group] : broker.groups()) {
    for (const auto& [index, set] : group->slabs) {
      for (const SlabId slab : set.ids) {
        const UniqueFd* fd = broker.slabs().fd(slab);
        if (fd != nullptr && inode_of(fd->get()) == inode) return group.get();
      }
    }
  }
  return nullptr;
}

bool is_attached(const Broker& broker, uint64_t inode, SessionId session) {
  for (const auto& [id, attachment] : broker.attachments().all()) {
    for (const SlabId slab : attachment.slabs) {
      const UniqueFd* fd = broker.slabs().fd(slab);
      if (attachment.session == session && fd != nullptr && inode_of(fd->get()) == inode) {
        return true;
      }
    }
  }
  return false;
}

bool may_map(const Group& group, SessionId session) {
  return std::any_of(group.ranks.begin(), group.ranks.end(), [session](const Rank& rank) {
    return rank.session == session && rank.may_map;
  });
}

void check_broker(const Broker& broker, const ToldPool& pool, const std::set<TenantId>& tenants,
                  Problems* problems) {
  Checker(broker, pool, tenants, *problems).run();
}

}  // namespace cco::memd
