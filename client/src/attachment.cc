#include "client/src/attachment.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/deadline.h"

namespace cco::client {
namespace {

using Stub = v1::MemdService::Stub;

template <typename Request>
Request request_about(Window& window) {
  Request request;
  request.set_group_id(window.group().topology().group_id);
  request.set_rank(window.group().topology().rank);
  request.set_window_id(window.id());
  request.set_generation(window.device().generation);
  return request;
}

}  // namespace

absl::StatusOr<std::string> grant(Window& window, const std::string& tenant, v1::Access access) {
  auto request = request_about<v1::GrantWindowRequest>(window);
  request.set_tenant(tenant);
  request.set_access(access);
  v1::GrantWindowResponse answer;
  CCO_RETURN_IF_ERROR(
      window.group().client().call(&Stub::GrantWindow, std::move(request), &answer));
  return answer.token();
}

absl::Status revoke(Window& window, const std::string& token) {
  auto request = request_about<v1::RevokeGrantRequest>(window);
  request.set_token(token);
  v1::RevokeGrantResponse answer;
  return window.group().client().call(&Stub::RevokeGrant, std::move(request), &answer);
}

absl::StatusOr<std::shared_ptr<Attachment>> Attachment::create(std::shared_ptr<Client> client,
                                                               const std::string& token,
                                                               int device) {
  const size_t device_count = client->driver().devices().size();
  if (device < 0 || static_cast<size_t>(device) >= device_count) {
    return absl::NotFoundError(absl::StrFormat("no device %d: this process sees %d, counted from 0",
                                               device, device_count));
  }
  std::shared_ptr<Attachment> attachment(new Attachment(std::move(client), device));
  v1::AttachWindowRequest request;
  request.set_token(token);
  CCO_RETURN_IF_ERROR(
      attachment->client_->call(&Stub::AttachWindow, std::move(request), &attachment->facts_));
  Connection& connection = attachment->client_->connection();
  const Deadline deadline(connection.timeout());
  absl::Status mapped =
      connection.repeat_if_resumed(deadline, [&] { return attachment->map_all(); });
  if (mapped.ok()) return attachment;
  attachment->give_up();
  return mapped;
}

absl::Status Attachment::map_all() {
  copies_.clear();
  v1::ExportSlabsRequest request;
  request.set_attachment_id(facts_.attachment_id());
  v1::ExportSlabsResponse answer;
  CCO_RETURN_IF_ERROR(client_->call(&Stub::ExportSlabs, std::move(request), &answer));
  if (answer.exports_size() != facts_.gpu_uuids_size()) {
    return absl::InternalError(
        absl::StrFormat("cco-memd exports the memory of %d ranks; the "
                        "window has %d",
                        answer.exports_size(), facts_.gpu_uuids_size()));
  }
  for (const v1::SlabExport& slab : answer.exports()) {
    absl::StatusOr<Copy> copy = map(slab);
    if (!copy.ok()) {
      return absl::Status(copy.status().code(),
                          absl::StrFormat("mapping rank %d's copy of the window: %s",
                                          copies_.size(), std::string(copy.status().message())));
    }
    copies_.push_back(*std::move(copy));
  }
  return absl::OkStatus();
}

absl::StatusOr<Attachment::Copy> Attachment::map(const v1::SlabExport& slab) {
  if (slab.offset() > slab.size_bytes() ||
      facts_.size_bytes() > slab.size_bytes() - slab.offset()) {
    return absl::InternalError(
        absl::StrFormat("cco-memd places %d bytes at offset %d of a slab of %d bytes",
                        facts_.size_bytes(), slab.offset(), slab.size_bytes()));
  }
  GpuDriver& driver = client_->driver();
  const uint64_t granularity = driver.devices()[static_cast<size_t>(device_)].granularity_bytes;
  Copy copy;
  CCO_ASSIGN_OR_RETURN(const UniqueFd fd, client_->connection().redeem(slab.ticket()));
  CCO_ASSIGN_OR_RETURN(const GpuMemory memory, driver.import_fd(device_, fd, slab.size_bytes()));
  CCO_ASSIGN_OR_RETURN(copy.range, driver.reserve(device_, slab.size_bytes(), granularity));
  CCO_ASSIGN_OR_RETURN(copy.mapping, driver.map(copy.range.address(), memory));
  const Access access =
      facts_.access() == v1::ACCESS_READ_WRITE ? Access::kReadWrite : Access::kReadOnly;
  CCO_RETURN_IF_ERROR(driver.set_access(copy.mapping, device_, access));
  copy.base = copy.range.address() + slab.offset();
  return copy;
}

// Unmapped first: the daemon may free it once it knows.
void Attachment::give_up() {
  copies_.clear();
  v1::DetachWindowRequest request;
  request.set_attachment_id(facts_.attachment_id());
  client_->call_farewell(&Stub::DetachWindow, std::move(request));
}

absl::StatusOr<uint64_t> Attachment::address(uint32_t rank, uint64_t offset) const {
  if (rank < copies_.size() && offset < facts_.size_bytes()) return copies_[rank].base + offset;
  return absl::OutOfRangeError(
      absl::StrFormat("offset %d of rank %d: the window has %d bytes on each of %d ranks", offset,
                      rank, facts_.size_bytes(), copies_.size()));
}

}  // namespace cco::client
