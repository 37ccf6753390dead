// Windows shared across tenants: grants and attachments.
#include "absl/strings/str_cat.h"
#include "daemon/service/translate.h"

namespace cco::memd {
namespace {

v1::Access render(Access access) {
  return access == Access::kReadOnly ? v1::ACCESS_READ : v1::ACCESS_READ_WRITE;
}

}  // namespace

absl::StatusOr<GrantRequest> parse(const v1::GrantWindowRequest& request) {
  if (request.access() != v1::ACCESS_READ && request.access() != v1::ACCESS_READ_WRITE) {
    return absl::InvalidArgumentError(absl::StrCat("access ", static_cast<int>(request.access()),
                                                   " is not one of READ, READ_WRITE"));
  }
  return GrantRequest{
      .group = GroupId{request.group_id()},
      .rank = request.rank(),
      .window = WindowId{request.window_id()},
      .generation = request.generation(),
      .tenant = request.tenant(),
      .access = request.access() == v1::ACCESS_READ ? Access::kReadOnly : Access::kReadWrite};
}

GrantRequest parse(const v1::RevokeGrantRequest& request) {
  return {.group = GroupId{request.group_id()},
          .rank = request.rank(),
          .window = WindowId{request.window_id()},
          .generation = request.generation(),
          .tenant = {}};
}

v1::ExportSlabsResponse render(const Broker::SlabTickets& tickets, const Broker& broker) {
  v1::ExportSlabsResponse response;
  response.set_expires_in_ms(static_cast<uint32_t>(broker.options().ticket_lifetime.count()));
  for (const Broker::SlabTicket& ticket : tickets.slabs) {
    v1::SlabExport* slab = response.add_exports();
    slab->set_ticket(ticket.ticket);
    slab->set_size_bytes(ticket.size_bytes);
    slab->set_offset(ticket.offset);
  }
  response.set_notice_ticket(tickets.notice);
  return response;
}

v1::AttachWindowResponse render(const Attachment& attachment, const Broker& broker) {
  v1::AttachWindowResponse response;
  response.set_attachment_id(number(attachment.id));
  response.set_size_bytes(attachment.size_bytes);
  response.set_access(render(attachment.access));
  response.set_is_enforced(broker.is_enforced(attachment.access));
  for (const SlabId id : attachment.slabs) {
    response.add_gpu_uuids(broker.slabs().gpus()[broker.slabs().all().at(id).gpu].uuid);
  }
  return response;
}

void render_sharing(const Group& group, const Window& window, const Broker& broker,
                    v1::WindowInfo* info) {
  for (const Grant& grant : window.grants) {
    v1::GrantInfo* to = info->add_grants();
    to->set_grantee(grant.tenant);
    to->set_access(render(grant.access));
    to->set_is_enforced(broker.is_enforced(grant.access));
  }
  info->set_attachment_count(broker.attachment_count(group, window));
}

}  // namespace cco::memd
