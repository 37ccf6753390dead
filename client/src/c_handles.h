// The C interface's handles: from a token to its object, and back.
#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cco/cco.h"
#include "client/base/status_macros.h"
#include "client/src/attachment.h"
#include "client/src/client.h"
#include "client/src/comm.h"
#include "client/src/fork_guard.h"
#include "client/src/group.h"
#include "client/src/handle_table.h"
#include "client/src/memory.h"
#include "client/src/window.h"

namespace cco::client {

/// All handles of this process.
HandleTable& table();

/// What a handle of the interface stands for.
template <typename T>
struct Handle;
template <>
struct Handle<cco_client> {
  using Object = Client;
  static constexpr HandleKind kKind = HandleKind::kClient;
};
template <>
struct Handle<cco_group> {
  using Object = Group;
  static constexpr HandleKind kKind = HandleKind::kGroup;
};
template <>
struct Handle<cco_window> {
  using Object = Window;
  static constexpr HandleKind kKind = HandleKind::kWindow;
};
template <>
struct Handle<cco_attachment> {
  using Object = Attachment;
  static constexpr HandleKind kKind = HandleKind::kAttachment;
};
template <>
struct Handle<cco_memory> {
  using Object = Memory;
  static constexpr HandleKind kKind = HandleKind::kMemory;
};
template <>
struct Handle<cco_comm> {
  using Object = Comm;
  static constexpr HandleKind kKind = HandleKind::kComm;
};

template <typename T>
uint64_t token_of(const T* handle) {
  return reinterpret_cast<uint64_t>(handle);
}

/// INVALID_ARGUMENT: no live handle of that kind.
template <typename T>
absl::StatusOr<std::shared_ptr<typename Handle<T>::Object>> find(const T* handle) {
  CCO_ASSIGN_OR_RETURN(std::shared_ptr<void> object,
                       table().find(Handle<T>::kKind, token_of(handle)));
  return std::static_pointer_cast<typename Handle<T>::Object>(std::move(object));
}

/// Makes a handle, which ends with `parent`'s.
template <typename T>
absl::Status publish(std::shared_ptr<typename Handle<T>::Object> object, uint64_t parent,
                     T** handle) {
  CCO_ASSIGN_OR_RETURN(const uint64_t token,
                       table().add(Handle<T>::kKind, std::move(object), parent));
  *handle = reinterpret_cast<T*>(token);
  return absl::OkStatus();
}

/// Nothing can be reported from a destroy function, and a forked child only forgets.
template <typename T, typename Farewell>
void destroy(T* handle, Farewell farewell) noexcept {
  if (!check_not_forked().ok()) return;
  try {
    const std::vector<std::shared_ptr<void>> objects =
        table().remove(Handle<T>::kKind, token_of(handle));
    if (!objects.empty()) {
      farewell(*static_cast<typename Handle<T>::Object*>(objects.back().get()));
    }
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace cco::client
