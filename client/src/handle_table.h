// What the C interface hands out instead of pointers: numbers that are never reused and never
// dereferenced.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"

namespace cco::client {

enum class HandleKind : uint64_t {
  kClient = 1,
  kGroup = 2,
  kWindow = 3,
  kComm = 4,
  kAttachment = 5,
  kMemory = 6,
};

/// A token has the kind in its lowest 3 bits, above them a 36-bit count from 1, and in the highest
/// 25 a pattern that no address of a process has and that differs between copies of this library.
class HandleTable {
 public:
  /// `pattern`: random; only its lowest 13 bits count.
  explicit HandleTable(uint64_t pattern);

  /// Co-owners: the table, calls in progress, and children (a window keeps its group).
  /// `parent`: 0, or the token whose end is also this one's. INVALID_ARGUMENT: it has ended.
  absl::StatusOr<uint64_t> add(HandleKind kind, std::shared_ptr<void> object, uint64_t parent)
      ABSL_LOCKS_EXCLUDED(mutex_);

  /// INVALID_ARGUMENT, saying what `token` is instead: null, freed, of another kind, foreign.
  absl::StatusOr<std::shared_ptr<void>> find(HandleKind kind, uint64_t token) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  /// Voids `token` and everything below it. Returns their objects, children first; nothing if
  /// `token` is not a live handle of that kind.
  std::vector<std::shared_ptr<void>> remove(HandleKind kind, uint64_t token)
      ABSL_LOCKS_EXCLUDED(mutex_);

  struct Replaced {
    uint64_t token = 0;
    std::vector<std::shared_ptr<void>> objects;
  };
  /// A handle for `object`, with the parent that `token` has. `token` can only be removed from now
  /// on: find() gives FAILED_PRECONDITION and `why`. Returns the objects that it and everything
  /// below it had. INVALID_ARGUMENT as of find().
  absl::StatusOr<Replaced> replace(HandleKind kind, uint64_t token, std::shared_ptr<void> object,
                                   const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::shared_ptr<void> object;
    uint64_t parent = 0;
    std::string void_because;  // Then there is no object.
  };

  uint64_t insert(HandleKind kind, std::shared_ptr<void> object, uint64_t parent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status refuse(HandleKind kind, uint64_t token) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void take(uint64_t token, std::vector<std::shared_ptr<void>>* objects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t pattern_;
  mutable std::mutex mutex_;
  uint64_t last_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cco::client
