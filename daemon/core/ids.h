// Ids are types: two that could be swapped do not compile.
#pragma once

#include <cstdint>

namespace cco::memd {

enum class SessionId : uint64_t {};
enum class GroupId : uint64_t {};
enum class WindowId : uint64_t {};
enum class SlabId : uint64_t {};
enum class TenantId : uint64_t {};
enum class LeaseId : uint64_t {};
enum class AttachmentId : uint64_t {};

template <typename Id>
constexpr uint64_t number(Id id) {
  return static_cast<uint64_t>(id);
}

}  // namespace cco::memd
