// What must be true of the world in every state, and its state as text.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/inode.h"
#include "tests/unit/daemon/broker_checks.h"
#include "tests/unit/daemon/explored_world.h"

namespace cco::memd {
namespace {

template <typename Call>
std::string waiting_ranks(const Call& call) {
  std::string ranks;
  for (uint32_t rank = 0; rank < call.size(); ++rank) {
    if (call.has(rank)) absl::StrAppend(&ranks, " ", rank);
  }
  return absl::StrCat(call.what(), ranks, call.is_doing() ? " doing\n" : "\n");
}

}  // namespace

void World::check() {
  std::set<TenantId> tenants;
  for (size_t i = 0; i < processes_.size(); ++i) {
    tenants.insert(daemon_->broker.tenants().find(identity(i)));
  }
  check_broker(daemon_->broker, daemon_->pool, tenants, &problems_);
  check_vault();
  check_payers();
  check_leases();
  check_quotas();
  check_grants();
  for (const auto& [id, group] : daemon_->broker.groups()) check_pages(*group);
}

void World::check_freed() {
  for (const uint64_t inode : std::exchange(freed_, {})) {
    expect(!is_mapped(inode), "memory is freed while a process that may use it maps it");
  }
}

// One for each slab, each rank's page and each session: no more, no less.
void World::check_vault() {
  size_t due = daemon_->broker.slabs().size() + daemon_->broker.sessions().size();
  for (const auto& [id, group] : daemon_->broker.groups()) due += group->size();
  expect(vault_.fds.size() == due, "the vault has ", vault_.fds.size(), " descriptors, due are ",
         due);
}

void World::check_pages(const Group& group) {
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const KeptPages::Content& page = pages_.content(*group.ranks[rank].notice);
    for (uint32_t other = 0; other < group.size(); ++other) {
      expect((page.out.count(other) != 0) == (group.ranks[other].state != MemberState::kLive),
             "a rank's page is wrong about who is out");
    }
    expect(page.abort_word == group.abort_word, "a rank's page has another abort word");
  }
}

std::string World::name_of(SessionId id) const {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].session == id) return absl::StrCat("process ", i);
    const auto& lost = processes_[i].lost;
    const auto found = std::find(lost.begin(), lost.end(), id);
    if (found != lost.end()) return absl::StrCat("process ", i, " before ", found - lost.begin());
  }
  return "nobody";
}

// One that has ended is none.
std::string World::lease_name(LeaseId id) const {
  const MadeLease* lease = find_lease(id);
  if (lease == nullptr || !holds(*lease)) return "none";
  return absl::StrCat("lease ", lease->spec);
}

std::string World::text_of(const Group& group) const {
  std::string text =
      absl::StrCat("group ", group.name, " of ", number(group.tenant), " epoch ", group.epoch,
                   " abort ", group.abort_word, " ", group.abort_reason, " next ",
                   group.next_slab_index, " under ", lease_name(group.lease), "\n");
  for (const Rank& rank : group.ranks) {
    absl::StrAppend(&text, "  rank of ", rank.may_map ? name_of(rank.session) : "nobody", " gpu ",
                    rank.gpu, " state ", static_cast<int>(rank.state), "\n");
  }
  for (const auto& [index, set] : group.slabs) {
    absl::StrAppend(&text, "  slab ", index, " at ", absl::StrJoin(set.offsets, ","), " of ",
                    absl::StrJoin(set.sizes, ","), " reserved ", set.reserved_bytes, ":");
    for (const SlabId id : set.ids) {
      const auto slab = daemon_->broker.slabs().all().find(id);
      if (slab == daemon_->broker.slabs().all().end()) {
        absl::StrAppend(&text, " none");
        continue;
      }
      absl::StrAppend(&text, " state ", static_cast<int>(slab->second.state), " under ",
                      lease_name(slab->second.payer.lease));
      const uint64_t inode = inode_of(slab->second.memory.fd.get());
      for (size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i].mapped.count(inode) != 0) absl::StrAppend(&text, " mapped by ", i);
      }
    }
    absl::StrAppend(&text, "\n");
  }
  for (const auto& [id, window] : group.windows) {
    absl::StrAppend(&text, "  window ", window.name, " of ", window.size_bytes, " in ",
                    window.place.slab_index, " at ", window.place.offset, " descriptor ",
                    window.descriptor_offset, " users ", absl::StrJoin(window.users, ""), " peers ",
                    absl::StrJoin(window.peer_offsets, ","), " grants");
    for (const Grant& grant : window.grants) {
      absl::StrAppend(&text, " ", grant.tenant, " ", static_cast<int>(grant.access));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string World::kept_text() const {
  std::string text;
  for (const auto& [id, session] : daemon_->broker.sessions().all()) {
    absl::StrAppend(&text, "session of ", name_of(id), " lost ",
                    session.state == SessionState::kLost, " ranks ", session.ranks.size(), "\n");
  }
  for (const auto& [id, group] : daemon_->broker.groups()) absl::StrAppend(&text, text_of(*group));
  for (const auto& [id, kept] : daemon_->broker.kept_windows().all()) {
    absl::StrAppend(&text, "kept ", kept.name, " of ", kept.group, " of ", number(kept.tenant),
                    " bytes ", kept.size_bytes, " at ", kept.offset, " under");
    for (const SlabId slab : kept.slabs) {
      absl::StrAppend(&text, " ", lease_name(daemon_->broker.slabs().all().at(slab).payer.lease));
    }
    absl::StrAppend(&text, "\n");
  }
  return absl::StrCat(text, leases_text(), attachments_text());
}

std::string World::calls_text() const {
  std::string text;
  for (const auto& [key, forming] : daemon_->broker.forming()) {
    absl::StrAppend(&text, "of ", number(forming.tenant), ": ", waiting_ranks(*forming.call));
    for (const uint32_t rank : forming.call->waiting()) {
      absl::StrAppend(&text, "  ", rank, " under ", lease_name(forming.call->args(rank).lease_id));
    }
  }
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (const auto& [key, call] : group->window_calls) {
      absl::StrAppend(&text, "in ", group->name, ": ", waiting_ranks(*call));
    }
    for (const auto& [sequence, call] : group->barrier_calls) {
      absl::StrAppend(&text, "in ", group->name, ": ", waiting_ranks(*call));
    }
    if (group->shrink_call != nullptr && !group->shrink_call->is_idle()) {
      absl::StrAppend(&text, "shrinking ", group->name, ": ",
                      absl::StrJoin(group->shrink_call->waiting(), ","),
                      group->shrink_call->is_doing() ? " doing\n" : "\n");
    }
  }
  return text;
}

std::string World::text() const {
  std::string text = absl::StrCat(kept_text(), calls_text(), daemon_->pool.text());
  for (const Process& process : processes_) {
    absl::StrAppend(&text, "process ", process.session != SessionId{}, process.is_away, " lost ",
                    process.lost.size(), " tickets ", process.tickets.size(), " mapped ",
                    process.mapped.size(), " attached by ", process.attachments.size(), "\n");
  }
  return text;
}

}  // namespace cco::memd
