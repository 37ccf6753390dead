// The C interface, memory beside the group's own: this process's, and other tenants'.
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "cco/cco.h"
#include "client/base/status_macros.h"
#include "client/src/c_handles.h"
#include "client/src/c_support.h"
#include "client/src/group_options.h"

namespace cco::client {
namespace {

std::string text_of(const cco_grant_token& token) {
  return {reinterpret_cast<const char*>(token.bytes), sizeof token.bytes};
}

absl::StatusOr<v1::Access> access_of(uint32_t access) {
  if (access == CCO_ACCESS_READ) return v1::ACCESS_READ;
  if (access == CCO_ACCESS_READ_WRITE) return v1::ACCESS_READ_WRITE;
  return absl::InvalidArgumentError(
      absl::StrFormat("access is %d; it takes CCO_ACCESS_READ or CCO_ACCESS_READ_WRITE", access));
}

}  // namespace

#pragma GCC visibility push(default)  // As in c_api.cc.
extern "C" {

cco_status cco_memory_create(cco_client* client, int32_t device, uint64_t size_bytes,
                             cco_memory** memory) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(memory, "memory"));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Client> found, find(client));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Memory> made,
                         Memory::create(std::move(found), device, size_bytes));
    return publish(std::move(made), token_of(client), memory);
  });
}

cco_status cco_memory_import(cco_client* client, int32_t device, const void* address,
                             uint64_t size_bytes, cco_memory** memory) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(address, "address"));
    CCO_RETURN_IF_ERROR(require(memory, "memory"));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Client> found, find(client));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Memory> made,
                         Memory::import(std::move(found), device, address, size_bytes));
    return publish(std::move(made), token_of(client), memory);
  });
}

void cco_memory_destroy(cco_memory* memory) {
  destroy(memory, [](Memory&) {});
}

cco_status cco_memory_get_info(cco_memory* memory, cco_memory_info* info) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Memory> found, find(memory));
    cco_memory_info known{};
    known.device = found->device();
    known.address = found->address();
    known.size_bytes = found->size_bytes();
    known.fd = found->fd().get();
    known.allocation_bytes = found->allocation_bytes();
    known.allocation_offset = found->allocation_offset();
    return write_struct(known, info, "info");
  });
}

cco_status cco_window_grant(cco_window* window, const char* tenant, uint32_t access,
                            cco_grant_token* token) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(tenant, "tenant"));
    CCO_RETURN_IF_ERROR(require(token, "token"));
    CCO_ASSIGN_OR_RETURN(std::string name, checked_name(tenant, "tenant"));
    CCO_ASSIGN_OR_RETURN(const v1::Access known, access_of(access));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Window> found, find(window));
    CCO_ASSIGN_OR_RETURN(const std::string secret, grant(*found, name, known));
    if (secret.size() != sizeof token->bytes) {
      return absl::InternalError(
          absl::StrFormat("cco-memd gives a token of %d bytes", secret.size()));
    }
    std::memcpy(token->bytes, secret.data(), secret.size());
    return absl::OkStatus();
  });
}

cco_status cco_window_revoke(cco_window* window, const cco_grant_token* token) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(token, "token"));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Window> found, find(window));
    return revoke(*found, text_of(*token));
  });
}

cco_status cco_attachment_create(cco_client* client, const cco_grant_token* token, int32_t device,
                                 cco_attachment** attachment) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(token, "token"));
    CCO_RETURN_IF_ERROR(require(attachment, "attachment"));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Client> found, find(client));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Attachment> made,
                         Attachment::create(std::move(found), text_of(*token), device));
    return publish(std::move(made), token_of(client), attachment);
  });
}

void cco_attachment_destroy(cco_attachment* attachment) {
  destroy(attachment, [](Attachment& last) { last.give_up(); });
}

cco_status cco_attachment_get_info(cco_attachment* attachment, cco_attachment_info* info) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Attachment> found, find(attachment));
    cco_attachment_info known{};
    known.access =
        found->facts().access() == v1::ACCESS_READ ? CCO_ACCESS_READ : CCO_ACCESS_READ_WRITE;
    known.size_bytes = found->facts().size_bytes();
    known.rank_count = found->rank_count();
    known.is_enforced = found->facts().is_enforced() ? 1 : 0;
    return write_struct(known, info, "info");
  });
}

cco_status cco_attachment_get_address(cco_attachment* attachment, uint32_t rank, uint64_t offset,
                                      void** address) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(address, "address"));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Attachment> found, find(attachment));
    CCO_ASSIGN_OR_RETURN(const uint64_t value, found->address(rank, offset));
    *address = reinterpret_cast<void*>(value);
    return absl::OkStatus();
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace cco::client
