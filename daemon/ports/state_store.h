// Port: what the daemon remembers over its own end: small records by kind and key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cco::memd {

/// Values are stored: never reuse one for something else.
enum class RecordKind {
  kDaemon = 1,
  kSession = 2,
  kGroup = 3,
  kRank = 4,
  kWindow = 5,
  kSlab = 6,
  kAnswer = 7,
  kLease = 10,
  kKeptWindow = 8,
  kGpu = 9,
  kAttachment = 11,
};

struct Record {
  RecordKind kind{};
  std::string key;
  std::string body;
};

struct RecordChange {
  RecordKind kind{};
  std::string key;
  std::optional<std::string> body;  ///< None: the record goes.
};

class StateStore {
 public:
  virtual ~StateStore() = default;

  /// All records, in no particular order.
  virtual absl::StatusOr<std::vector<Record>> load() = 0;

  /// All changes or none. Once it returns they outlive this process, however it ends. An error
  /// (RESOURCE_EXHAUSTED: no room; UNAVAILABLE: anything else) leaves the store as it was, and the
  /// same commit may be tried again.
  virtual absl::Status commit(const std::vector<RecordChange>& changes) = 0;
};

}  // namespace cco::memd
