#include "client/src/handle_table.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace cco::client {
namespace {

constexpr int kKindBits = 3;
constexpr int kCountBits = 36;
constexpr uint64_t kKindMask = (uint64_t{1} << kKindBits) - 1;
constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;
constexpr int kPatternShift = kKindBits + kCountBits;
// 0xCC0 on top is no canonical address on any supported machine.
constexpr uint64_t kTop = uint64_t{0xCC0} << 52;

const char* name_of(uint64_t kind) {
  switch (static_cast<HandleKind>(kind)) {
    case HandleKind::kClient:
      return "client";
    case HandleKind::kGroup:
      return "group";
    case HandleKind::kWindow:
      return "window";
    case HandleKind::kComm:
      return "communicator";
    case HandleKind::kAttachment:
      return "attachment";
    case HandleKind::kMemory:
      return "memory";
  }
  return "nothing";
}

}  // namespace

HandleTable::HandleTable(uint64_t pattern)
    : pattern_(kTop | ((pattern << kPatternShift) & ~(uint64_t{0xfff} << 52))) {}

absl::StatusOr<uint64_t> HandleTable::add(HandleKind kind, std::shared_ptr<void> object,
                                          uint64_t parent) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(parent);
  if (parent != 0 && (found == entries_.end() || !found->second.void_because.empty())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the %s was destroyed by another thread during this call", name_of(parent & kKindMask)));
  }
  return insert(kind, std::move(object), parent);
}

uint64_t HandleTable::insert(HandleKind kind, std::shared_ptr<void> object, uint64_t parent) {
  const uint64_t token =
      pattern_ | (++last_count_ & kCountMask) << kKindBits | static_cast<uint64_t>(kind);
  entries_.emplace(token, Entry{std::move(object), parent, ""});
  return token;
}

absl::StatusOr<HandleTable::Replaced> HandleTable::replace(HandleKind kind, uint64_t token,
                                                           std::shared_ptr<void> object,
                                                           const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(token);
  if (found == entries_.end() || (token & kKindMask) != static_cast<uint64_t>(kind)) {
    return refuse(kind, token);
  }
  if (!found->second.void_because.empty()) {
    return absl::FailedPreconditionError(found->second.void_because);
  }
  const uint64_t parent = found->second.parent;
  Replaced replaced;
  take(token, &replaced.objects);
  entries_.emplace(token, Entry{nullptr, parent, why});
  replaced.token = insert(kind, std::move(object), parent);
  return replaced;
}

absl::StatusOr<std::shared_ptr<void>> HandleTable::find(HandleKind kind, uint64_t token) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(token);
  if (found == entries_.end() || (token & kKindMask) != static_cast<uint64_t>(kind)) {
    return refuse(kind, token);
  }
  if (!found->second.void_because.empty()) {
    return absl::FailedPreconditionError(found->second.void_because);
  }
  return found->second.object;
}

absl::Status HandleTable::refuse(HandleKind kind, uint64_t token) const {
  const std::string wanted =
      absl::StrFormat("the handle should be a %s but ", name_of(static_cast<uint64_t>(kind)));
  if (token == 0) return absl::InvalidArgumentError(wanted + "is null");
  const uint64_t count = token >> kKindBits & kCountMask;
  const bool ours = (token & ~(kCountMask << kKindBits | kKindMask)) == pattern_ && count >= 1 &&
                    count <= last_count_;
  if (!ours) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%swas not made by this library in this process (%#x)", wanted, token));
  }
  if (entries_.count(token) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%sis a %s", wanted, name_of(token & kKindMask)));
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%shas been destroyed: itself, or the group or client that it belonged to", wanted));
}

std::vector<std::shared_ptr<void>> HandleTable::remove(HandleKind kind, uint64_t token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<void>> objects;
  if ((token & kKindMask) == static_cast<uint64_t>(kind)) take(token, &objects);
  return objects;
}

void HandleTable::take(uint64_t token, std::vector<std::shared_ptr<void>>* objects) {
  const auto found = entries_.find(token);
  if (found == entries_.end()) return;
  std::shared_ptr<void> object = std::move(found->second.object);
  entries_.erase(found);
  std::vector<uint64_t> children;
  for (const auto& [child, entry] : entries_) {
    if (entry.parent == token) children.push_back(child);
  }
  for (const uint64_t child : children) take(child, objects);
  if (object != nullptr) objects->push_back(std::move(object));
}

}  // namespace cco::client
