// Who gets at whose memory: by tickets, by grants, and not at all.
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/inode.h"
#include "tests/unit/daemon/broker_checks.h"
#include "tests/unit/daemon/explored_world.h"

namespace cco::memd {
namespace {

bool is_writable(BorrowedFd fd) { return (::fcntl(fd.get(), F_GETFL) & O_ACCMODE) == O_RDWR; }

}  // namespace

bool World::ask_tickets(size_t program, const Membership& as) {
  Process& process = processes_[program];
  const Seat seat = seat_of(program, as);
  if (session(program) == nullptr || !seat || !process.tickets.empty()) return false;
  for (const auto& [index, set] : seat.group->slabs) {
    auto tickets = daemon_->broker.export_slab(*session(program), seat.group->id, seat.rank, index);
    if (!tickets.ok()) continue;  // Freed, or not a member any more.
    for (const auto& slab : tickets->slabs) process.tickets.push_back(slab.ticket);
  }
  return true;
}

bool World::use_tickets(size_t program) {
  if (session(program) == nullptr || processes_[program].tickets.empty()) return false;
  for (const std::string& ticket : std::exchange(processes_[program].tickets, {})) {
    for (size_t thief = 0; thief < processes_.size(); ++thief) {
      if (thief == program || session(thief) == nullptr) continue;
      expect(!daemon_->broker.desk().redeem(session(thief)->id, ticket).ok(), "a stolen ticket");
    }
    redeem(program, ticket);
  }
  return true;
}

void World::redeem(size_t program, const std::string& ticket) {
  Process& process = processes_[program];
  auto fd = daemon_->broker.desk().redeem(session(program)->id, ticket);
  if (!fd.ok()) return;
  const uint64_t inode = inode_of((*fd)->get());
  const bool writable = is_writable(**fd);
  expect(!daemon_->broker.desk().redeem(session(program)->id, ticket).ok(), "a used ticket");
  const Group* owner = owner_of(daemon_->broker, inode);
  if (owner != nullptr && may_map(*owner, process.session)) {
    process.mapped[inode] = owner->id;
    return;
  }
  bool may_read = false, may_write = false;
  for (const auto& [spec, attachment] : process.attachments) {
    for (const SlabId slab : daemon_->broker.attachments().find(attachment)->slabs) {
      const UniqueFd* memory = daemon_->broker.slabs().fd(slab);
      if (memory == nullptr || inode_of(memory->get()) != inode) continue;
      may_read = true;
      may_write |= options_.grants[spec].access == Access::kReadWrite;
    }
  }
  expect(may_read, "a ticket gives memory to a process that is no member and has no grant");
  expect(writable == may_write, "a ticket allows more or less than the grant");
  if (may_read) process.mapped[inode] = GroupId{};
}

bool World::trespass(size_t program) {
  if (session(program) == nullptr) return false;
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (uint32_t rank = 0; rank < group->size(); ++rank) {
      const Rank& member = group->ranks[rank];
      const bool is_own = member.session == session(program)->id;
      if (!is_own || member.state != MemberState::kLive) {
        trespass_on(*session(program), *group, rank);
      }
    }
  }
  steal_from_others(program);
  return true;
}

void World::trespass_on(Session& session, const Group& group, uint32_t rank) {
  Broker& broker = daemon_->broker;
  const auto refused = [this](const absl::Status& status) {
    expect(!status.ok(), "a call for another process's rank succeeds");
  };
  refused(broker.leave(session, group.id, rank));
  refused(broker.export_slab(session, group.id, rank, 0).status());
  refused(broker.report_peers(session, group.id, rank, {{0, true, ""}}));
  for (const auto& [id, window] : group.windows) {
    refused(broker.destroy_window(session, group.id, rank, id, window.generation));
    const GrantRequest request{group.id, rank, id, window.generation, "uid-666", {}};
    refused(broker.grant_window(session, request).status());
    for (const MadeGrant& grant : grants_) {
      refused(broker.revoke_grant(session, request, grant.token));
    }
  }
  broker.barrier(session, {group.id, rank, 0, Milliseconds(0), ""},
                 [&](absl::StatusOr<BarrierResult> result) { refused(result.status()); });
  broker.shrink(session, {group.id, rank, Milliseconds(0)},
                [&](absl::StatusOr<ShrinkResult> result) { refused(result.status()); });
  if (group.ranks[rank].session != session.id) refused(broker.abort(session, group.id, rank));
}

// By what is secret and has become known.
void World::steal_from_others(size_t program) {
  Broker& broker = daemon_->broker;
  Session& thief = *session(program);
  const Program& one = options_.programs[program];
  for (const MadeGrant& grant : grants_) {
    const bool is_for_it = options_.programs[options_.grants[grant.spec].to].uid == one.uid;
    if (is_for_it && !grant.is_ended) continue;
    expect(!broker.attach_window(thief, grant.token).ok(), "a grant that is void, or another's");
  }
  for (const auto& [id, attachment] : broker.attachments().all()) {
    if (attachment.session == thief.id) continue;
    expect(!broker.export_attachment(thief, id).ok() && !broker.detach_window(thief, id).ok(),
           "another process's attachment is used");
  }
  for (const MadeLease& lease : leases_) {
    expect(!broker.end_lease(thief, lease.id).ok(), "a lease is ended");
    if (holds(lease) && serves(options_.leases[lease.spec], program)) continue;
    for (const Membership& as : one.memberships) {
      broker.join(thief, join_request(as, lease.token), [this](absl::StatusOr<JoinResult> result) {
        expect(absl::IsNotFound(result.status()), "a lease that is void, or another's");
      });
    }
  }
  expect(!broker.create_lease(thief, {{}, kUnitBytes, 1000, "", ""}).ok(), "a lease is made");
}

std::string World::tenant_name(size_t program) const {
  return daemon_->broker.tenants().name(daemon_->broker.tenants().find(identity(program)));
}

World::MadeGrant* World::last_grant(size_t spec) {
  const auto found = std::find_if(grants_.rbegin(), grants_.rend(),
                                  [spec](const MadeGrant& grant) { return grant.spec == spec; });
  return found == grants_.rend() ? nullptr : &*found;
}

const Window* World::window_of(const MadeGrant& grant, const Group** group) const {
  for (const auto& [id, owner] : daemon_->broker.groups()) {
    for (const auto& [window_id, window] : owner->windows) {
      if (!window.is_used()) continue;
      for (const SlabId slab : owner->slabs.at(window.place.slab_index).ids) {
        const UniqueFd* fd = daemon_->broker.slabs().fd(slab);
        if (fd == nullptr || grant.inodes.count(inode_of(fd->get())) == 0) continue;
        if (group != nullptr) *group = owner.get();
        return &window;
      }
    }
  }
  return nullptr;
}

// A grant's memory may come into use again; the grant does not.
void World::end_grants() {
  for (MadeGrant& grant : grants_) grant.is_ended |= window_of(grant) == nullptr;
}

void World::check_grants() {
  std::multiset<std::string> due, there;
  for (const MadeGrant& grant : grants_) {
    if (!grant.is_ended) due.insert(grant.token);
  }
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (const auto& [window_id, window] : group->windows) {
      for (const Grant& grant : window.grants) {
        if (window.is_used()) there.insert(grant.token);
      }
    }
  }
  expect(due == there, "there are ", there.size(), " grants, due are ", due.size());
  for (const Process& process : processes_) {
    for (const auto& [spec, id] : process.attachments) {
      const Attachment* attachment = daemon_->broker.attachments().find(id);
      expect(attachment != nullptr && attachment->session == process.session &&
                 attachment->access == options_.grants[spec].access,
             "an attachment has gone, or is another one");
    }
  }
}

bool World::grant(size_t program, const Membership& as, size_t spec) {
  const Seat seat = seat_of(program, as);
  const MadeGrant* last = last_grant(spec);
  if (session(program) == nullptr || !seat || (last != nullptr && !last->is_ended)) return false;
  const GrantSpec& wanted = options_.grants[spec];
  for (const auto& [id, window] : seat.group->windows) {
    if (window.name != wanted.window) continue;
    const SlabSet& set = seat.group->slabs.at(window.place.slab_index);
    const bool may = set.is_kept && window.users[seat.rank];
    const auto made = daemon_->broker.grant_window(
        *session(program),
        {seat.group->id, seat.rank, id, window.generation, tenant_name(wanted.to), wanted.access});
    expect(made.ok() == may, "a window is granted that may not be, or the other way round");
    if (!made.ok()) return true;
    MadeGrant grant{made->token, spec, {}, false};
    for (const SlabId slab : set.ids) {
      const UniqueFd* fd = daemon_->broker.slabs().fd(slab);
      if (fd != nullptr) grant.inodes.insert(inode_of(fd->get()));
    }
    grants_.push_back(std::move(grant));
    return true;
  }
  return false;
}

bool World::revoke(size_t program, const Membership& as, size_t spec) {
  const Seat seat = seat_of(program, as);
  MadeGrant* last = last_grant(spec);
  if (session(program) == nullptr || !seat || last == nullptr) return false;
  const Window* window = window_of(*last);
  if (window == nullptr) return false;
  const bool may =
      !last->is_ended && seat.group->windows.count(window->id) != 0 && window->users[seat.rank];
  const absl::Status status = daemon_->broker.revoke_grant(
      *session(program),
      {seat.group->id, seat.rank, window->id, window->generation, "", Access::kReadOnly},
      last->token);
  expect(status.ok() == may, "a grant is revoked that may not be, or the other way round");
  last->is_ended |= status.ok();
  return true;
}

bool World::attach_by(size_t spec) {
  const size_t program = options_.grants[spec].to;
  Process& process = processes_[program];
  const MadeGrant* last = last_grant(spec);
  if (session(program) == nullptr || last == nullptr || process.attachments.count(spec) != 0) {
    return false;
  }
  const Group* owner = nullptr;
  const Window* window = window_of(*last, &owner);
  bool may = !last->is_ended && window != nullptr;
  if (may) {
    const auto& slabs = owner->slabs.at(window->place.slab_index).ids;
    may = std::find(slabs.begin(), slabs.end(), SlabId{}) == slabs.end();
  }
  const auto attached = daemon_->broker.attach_window(*session(program), last->token);
  expect(attached.ok() == may, "somebody is attached without a grant, or is not with one");
  if (attached.ok()) process.attachments[spec] = (*attached)->id;
  return true;
}

bool World::ask_attached(size_t spec) {
  const size_t program = options_.grants[spec].to;
  Process& process = processes_[program];
  const auto attachment = process.attachments.find(spec);
  if (session(program) == nullptr || !process.tickets.empty()) return false;
  if (attachment == process.attachments.end()) return false;
  auto tickets = daemon_->broker.export_attachment(*session(program), attachment->second);
  expect(tickets.ok(), "memory that a process is attached to is gone");
  if (!tickets.ok()) return true;
  for (const auto& slab : tickets->slabs) process.tickets.push_back(slab.ticket);
  return true;
}

bool World::detach(size_t spec) {
  const size_t program = options_.grants[spec].to;
  Process& process = processes_[program];
  const auto attachment = process.attachments.find(spec);
  if (session(program) == nullptr || attachment == process.attachments.end()) return false;
  const AttachmentId id = attachment->second;
  process.attachments.erase(attachment);
  std::set<SlabId> others;
  for (const auto& [other, other_id] : process.attachments) {
    const auto& slabs = daemon_->broker.attachments().find(other_id)->slabs;
    others.insert(slabs.begin(), slabs.end());
  }
  for (const SlabId slab : daemon_->broker.attachments().find(id)->slabs) {
    const UniqueFd* fd = daemon_->broker.slabs().fd(slab);
    if (fd != nullptr && others.count(slab) == 0) process.mapped.erase(inode_of(fd->get()));
  }
  expect(daemon_->broker.detach_window(*session(program), id).ok(), "a process cannot detach");
  return true;
}

// A slab by what it is of, which the next daemon calls the same.
std::string World::place_of(SlabId slab) const {
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (const auto& [index, set] : group->slabs) {
      const auto found = std::find(set.ids.begin(), set.ids.end(), slab);
      if (found == set.ids.end()) continue;
      return absl::StrCat(group->name, " of ", number(group->tenant), " slab ", index, " rank ",
                          found - set.ids.begin());
    }
  }
  for (const auto& [id, kept] : daemon_->broker.kept_windows().all()) {
    const auto found = std::find(kept.slabs.begin(), kept.slabs.end(), slab);
    if (found == kept.slabs.end()) continue;
    return absl::StrCat("kept ", kept.name, " of ", kept.group, " rank ",
                        found - kept.slabs.begin());
  }
  return "none";
}

std::string World::attachments_text() const {
  std::string text;
  std::map<SlabId, size_t> numbers;  // Of those that have no place.
  for (const auto& [id, attachment] : daemon_->broker.attachments().all()) {
    absl::StrAppend(&text, "attachment of ", name_of(attachment.session), " access ",
                    static_cast<int>(attachment.access), " bytes ", attachment.size_bytes, ":");
    for (const SlabId id : attachment.slabs) {
      const auto slab = daemon_->broker.slabs().all().find(id);
      if (slab == daemon_->broker.slabs().all().end()) {
        absl::StrAppend(&text, " gone");
        continue;
      }
      const size_t index = numbers.emplace(id, numbers.size()).first->second;
      absl::StrAppend(&text, " #", index, " ", place_of(id), " gpu ", slab->second.gpu, " payer ",
                      number(slab->second.payer.tenant));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace cco::memd
