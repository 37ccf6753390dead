// The broker's state as records, and back.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/broker.h"
#include "daemon/ports/notice_board.h"
#include "daemon/ports/state_store.h"

namespace cco::memd {

/// What is true of the state as a whole.
struct DaemonFacts {
  std::string driver;
  uint64_t incarnation = 0;
  BrokerState::LastIds last_ids;
  friend bool operator==(const DaemonFacts&, const DaemonFacts&) = default;
};

// Keys, and names in the vault.
std::string record_key(SessionId id);
std::string record_key(SlabId id);
std::string record_key(LeaseId id);
std::string record_key(GroupId id);
std::string record_key(WindowId kept);
std::string record_key(AttachmentId id);
std::string record_key(GroupId group, uint32_t rank);
std::string record_key(GroupId group, WindowId window);
std::string record_key(SessionId session, const std::string& request_id);
inline std::string record_key(const GpuDevice& gpu) { return gpu.uuid; }
std::string vault_name(SessionId id);
std::string vault_name(SlabId id);
std::string vault_name(GroupId group, uint32_t rank);

// Bodies. `gpus` gives GPUs their names.
using Gpus = std::vector<GpuDevice>;
std::string encode(const DaemonFacts& facts);
/// `drain`: null if the GPU is serving.
std::string encode(const GpuDevice& gpu, const GpuDrain* drain);
std::string encode(const Session& session);
std::string encode(SlabId id, const SlabTable::Slab& slab, const Gpus& gpus);
std::string encode(const Lease& lease, const Gpus& gpus);
std::string encode(const Group& group);
std::string encode(const Group& group, uint32_t rank, const Gpus& gpus);
std::string encode(const Group& group, const Window& window);
std::string encode(const KeptWindow& window);
std::string encode(const Attachment& attachment);
std::string encode(SessionId session, const std::string& request_id,
                   const RequestLog::Entry& answer, uint64_t sequence);

/// Of a call, so that its repetition gets it too.
struct LoggedAnswer {
  SessionId session{};
  std::string request_id;
  std::string request;
  Outcome outcome;
};

struct Decoded {
  DaemonFacts facts;  // Incarnation 0: there is no state.
  BrokerState state;
  std::vector<GpuDevice> closed;  // Drained GPUs that `gpus` does not have: they come after those.
  std::vector<LoggedAnswer> answers;  // Oldest first.
  uint64_t last_answer = 0;
  std::set<std::string> vault_names;  // Those in use.
  /// What could not be gone on with, for people: memory whose descriptor is gone, GPUs that are.
  std::vector<std::string> losses;
  Changes changes;  // Records that no longer say what is.
};

/// Which GPUs the next daemon is to open.
struct RecordedGpus {
  std::string driver;  // Of the state; empty: there is none.
  bool any_drained = false;
  std::vector<std::string> visible;  // If any is drained: the UUIDs of the others.
};
/// INTERNAL as of decode().
absl::StatusOr<RecordedGpus> decode_gpus(const std::vector<Record>& records);

/// INTERNAL, naming the record: they contradict each other, or are none. Takes from `fds` what it
/// uses. A group whose GPU is gone ends; one whose descriptors are gone is aborted.
absl::StatusOr<Decoded> decode(const std::vector<Record>& records,
                               std::map<std::string, UniqueFd>* fds, const Gpus& gpus,
                               NoticeBoard& notices);

}  // namespace cco::memd
