// Broker: windows that a tenant lets processes of others attach to.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"
#include "daemon/core/error.h"
#include "daemon/core/tenants.h"

namespace cco::memd {
namespace {

const char* name_of(Access access) {
  return access == Access::kReadOnly ? "read-only" : "read-write";
}

// Of the form only: whether there is such a tenant is not for everybody to know.
absl::Status check_tenant_name(const std::string& name) {
  const bool is_plain = is_plain_name(name);
  if (!name.empty() && name.size() <= kMaxTenantNameBytes && is_plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tenant has ", name.size(), " bytes",
                   is_plain ? "" : ", with some that are in no tenant's name", "; it takes 1 to ",
                   kMaxTenantNameBytes,
                   " letters, digits, '.', '_' and '-': `ccoctl tenants` shows each its own name"));
}

uint64_t grants_of(const Group& group) {
  uint64_t count = 0;
  for (const auto& [id, window] : group.windows) count += window.grants.size();
  return count;
}

}  // namespace

absl::Status Broker::check_grant(const Group& group, const Window& window,
                                 const GrantRequest& request) const {
  CCO_RETURN_IF_ERROR(check_tenant_name(request.tenant));
  if (!group.slabs.at(window.place.slab_index).is_kept) {
    return absl::FailedPreconditionError(absl::StrCat(
        "window ", number(window.id),
        " has no slabs of its own, and slabs are exported whole: create it from the heap, with ",
        "keep_ms"));
  }
  if (!is_enforced(request.access) && !options_.allow_unenforced_read_only) {
    return absl::FailedPreconditionError(
        "access is read-only, which this node's GPU driver cannot enforce, and "
        "allow_unenforced_read_only is false in cco-memd's configuration. Copy what is to be read, "
        "or grant read-write access to who may have it");
  }
  const uint64_t limit = options_.limits.grants_per_group;
  if (grants_of(group) < limit) return absl::OkStatus();
  return over_limit("grants_per_group", limit,
                    absl::StrCat("windows of group ", number(group.id), " have ", grants_of(group),
                                 " grants (RevokeGrant ends one)"));
}

absl::StatusOr<Broker::NewGrant> Broker::grant_window(Session& session,
                                                      const GrantRequest& request) {
  CCO_ASSIGN_OR_RETURN(const Member member, find_member(session, request.group, request.rank));
  CCO_ASSIGN_OR_RETURN(Window * window,
                       find_window(member, request.rank, request.window, request.generation));
  CCO_RETURN_IF_ERROR(check_grant(*member.group, *window, request));
  window->grants.push_back({make_secret_(), request.tenant, request.access});
  changes_.windows.emplace(request.group, request.window);
  journal_.record(
      Severity::kInfo, "window_granted",
      absl::StrCat("group=", number(request.group), " window=", number(request.window),
                   " tenant=", tenants().name(session.tenant), " to=", request.tenant,
                   " access=", name_of(request.access), " session=", number(session.id)));
  return NewGrant{window->grants.back().token, is_enforced(request.access)};
}

absl::Status Broker::revoke_grant(Session& session, const GrantRequest& request,
                                  const std::string& token) {
  CCO_ASSIGN_OR_RETURN(const Member member, find_member(session, request.group, request.rank));
  CCO_ASSIGN_OR_RETURN(Window * window,
                       find_window(member, request.rank, request.window, request.generation));
  const auto grant = std::find_if(window->grants.begin(), window->grants.end(),
                                  [&](const Grant& one) { return one.token == token; });
  if (grant == window->grants.end()) {
    return absl::NotFoundError(absl::StrCat("window ", number(request.window),
                                            " has no grant of that token: it has been revoked, or ",
                                            "is of another window"));
  }
  journal_.record(Severity::kInfo, "grant_revoked",
                  absl::StrCat("group=", number(request.group), " window=", number(request.window),
                               " tenant=", tenants().name(session.tenant), " to=", grant->tenant,
                               " session=", number(session.id)));
  window->grants.erase(grant);
  changes_.windows.emplace(request.group, request.window);
  return absl::OkStatus();
}

absl::StatusOr<Broker::Granted> Broker::find_granted(const Session& session,
                                                     const std::string& token) const {
  const std::string tenant = tenants().name(session.tenant);
  for (const auto& [group_id, group] : groups_) {
    for (const auto& [window_id, window] : group->windows) {
      for (const Grant& grant : window.grants) {
        if (grant.token != token || grant.tenant != tenant || !window.is_used()) continue;
        return Granted{group.get(), &window, grant.access};
      }
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "no grant of that token for tenant '", tenant,
      "', which this process is of: it is another's, has been revoked, or nobody uses the window ",
      "any more. Ask its owner for a fresh one"));
}

absl::StatusOr<const Attachment*> Broker::attach_window(Session& session,
                                                        const std::string& token) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  CCO_ASSIGN_OR_RETURN(const Granted granted, find_granted(session, token));
  const uint64_t limit = options_.limits.attachments_per_session;
  if (session.attachments.size() >= limit) {
    return over_limit("attachments_per_session", limit,
                      absl::StrCat("this process has ", session.attachments.size(),
                                   " attachments (DetachWindow ends one)"));
  }
  Attachment attachment;
  attachment.slabs = granted.group->slabs.at(granted.window->place.slab_index).ids;
  const auto gone = std::find(attachment.slabs.begin(), attachment.slabs.end(), SlabId{});
  if (gone != attachment.slabs.end()) {
    const auto rank = static_cast<uint32_t>(gone - attachment.slabs.begin());
    return about_rank(absl::FailedPreconditionError(
                          absl::StrCat("the window's memory of rank ", rank,
                                       " is gone. Let its owner make another, and grant that")),
                      rank);
  }
  attachment.id = AttachmentId{++last_attachment_id_};
  attachment.session = session.id;
  attachment.owner = granted.group->ranks[0].who;
  attachment.access = granted.access;
  attachment.size_bytes = granted.window->size_bytes;
  journal_.record(
      Severity::kInfo, "window_attached",
      absl::StrCat("attachment=", number(attachment.id), " window=", number(granted.window->id),
                   " owner=", tenants().name(granted.group->tenant),
                   " tenant=", tenants().name(session.tenant), " access=", name_of(granted.access),
                   " session=", number(session.id)));
  const AttachmentId id = attachment.id;
  session.attachments.insert(id);
  changes_.attachments.insert(id);
  attachments_.add(std::move(attachment));
  return attachments_.find(id);
}

absl::StatusOr<const Attachment*> Broker::find_attachment(const Session& session,
                                                          AttachmentId id) const {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  if (session.attachments.count(id) != 0) return attachments_.find(id);
  return absl::NotFoundError(absl::StrCat("this process has no attachment ", number(id),
                                          ": it never had, or has ended it"));
}

absl::StatusOr<Broker::SlabTickets> Broker::export_attachment(Session& session, AttachmentId id) {
  CCO_ASSIGN_OR_RETURN(const Attachment* attachment, find_attachment(session, id));
  SlabTickets tickets;
  for (uint32_t rank = 0; rank < attachment->slabs.size(); ++rank) {
    const auto slab = slabs_.all().find(attachment->slabs[rank]);
    if (slab == slabs_.all().end()) {
      return about_rank(absl::AbortedError(absl::StrCat("the window's memory of rank ", rank,
                                                        " is gone. Detach from it")),
                        rank);
    }
    ExportDesk::Goods goods = slab->first;
    if (attachment->access == Access::kReadOnly && slabs_.enforces_read_only()) {
      goods = ExportDesk::ReadOnlySlab{slab->first};
    }
    CCO_ASSIGN_OR_RETURN(std::string ticket, desk_.issue({session.id, {}, 0, id}, goods));
    tickets.slabs.push_back({std::move(ticket), slab->second.size_bytes, 0});
  }
  return tickets;
}

absl::Status Broker::detach_window(Session& session, AttachmentId id) {
  CCO_RETURN_IF_ERROR(find_attachment(session, id).status());
  session.attachments.erase(id);
  end_attachment(id);
  return absl::OkStatus();
}

void Broker::end_attachment(AttachmentId id) {
  const SessionId session = attachments_.find(id)->session;
  desk_.forget({session, {}, 0, id});
  for (const SlabId slab : attachments_.remove(id)) slabs_.set_state(slab, SlabState::kFreed);
  changes_.attachments.insert(id);
  journal_.record(Severity::kInfo, "window_detached",
                  absl::StrCat("attachment=", number(id), " session=", number(session)));
}

bool Broker::free_slab(SlabId id) {
  const bool is_held = attachments_.inherit(id);
  slabs_.set_state(id, is_held ? SlabState::kHeld : SlabState::kFreed);
  return !is_held;
}

SlabTable::SharedCharge Broker::revoke_slab(SlabId id) {
  SlabTable::SharedCharge charge = slabs_.revoke(id);
  for (const AttachmentId loser : attachments_.lose(id, charge)) {
    changes_.attachments.insert(loser);
  }
  return charge;
}

void Broker::revoke_attached(int gpu) {
  const std::set<SlabId> inherited = attachments_.inherited();
  for (const SlabId id : inherited) {
    if (slabs_.all().at(id).gpu == gpu) revoke_slab(id);
  }
}

void Broker::restore_attachments(BrokerState* state) {
  std::set<SlabId> owned;
  for (const std::unique_ptr<Group>& group : state->groups) {
    for (const auto& [index, set] : group->slabs) owned.insert(set.ids.begin(), set.ids.end());
  }
  for (const KeptWindow& kept : state->kept_windows) {
    owned.insert(kept.slabs.begin(), kept.slabs.end());
  }
  for (Attachment& restored : state->attachments) {
    const std::vector<SlabId> slabs = restored.slabs;
    sessions_.find(restored.session)->attachments.insert(restored.id);
    attachments_.add(std::move(restored));
    for (const SlabId slab : slabs) {
      if (slab != SlabId{} && owned.count(slab) == 0) free_slab(slab);
    }
  }
}

bool Broker::is_enforced(Access access) const {
  return access == Access::kReadWrite || slabs_.enforces_read_only();
}

uint32_t Broker::attachment_count(const Group& group, const Window& window) const {
  uint32_t count = 0;
  const SlabSet& set = group.slabs.at(window.place.slab_index);
  if (!set.is_kept) return 0;
  for (const SlabId slab : set.ids) count = std::max(count, attachments_.count(slab));
  return count;
}

}  // namespace cco::memd
