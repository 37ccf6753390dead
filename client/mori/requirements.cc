#include "client/mori/requirements.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco::compat {
namespace {

using mori::cco::CCO_GDA_CONNECTION_FULL;
using mori::cco::CCO_GDA_CONNECTION_NONE;
using mori::cco::CCO_GDA_CONNECTION_RAIL;
using mori::cco::ccoDevCommRequirements;
using mori::cco::ccoDevResourceRequirements;

constexpr uint64_t kDefaultAlignmentBytes = 256;

// An older program's struct is shorter: what it lacks has its default.
ccoDevCommRequirements complete(const ccoDevCommRequirements& given) {
  ccoDevCommRequirements known = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
  const size_t bytes = given.size == 0 ? sizeof known : std::min(given.size, sizeof known);
  std::memcpy(&known, &given, bytes);
  return known;
}

absl::Status add_count(const char* name, int wanted, uint32_t* total) {
  if (wanted >= 0 && static_cast<uint32_t>(wanted) <= std::numeric_limits<uint32_t>::max() / 2) {
    *total += static_cast<uint32_t>(wanted);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat("%s is %d", name, wanted));
}

uint64_t aligned(uint64_t offset, size_t alignment_bytes) {
  const uint64_t unit = alignment_bytes == 0 ? kDefaultAlignmentBytes : alignment_bytes;
  return (offset + unit - 1) / unit * unit;
}

// Walks the list; `visit(entry, first signal, first counter, offset of its buffer)`. Returns the
// bytes of all buffers.
template <typename Visit>
uint64_t walk(const ccoDevCommRequirements& known, Visit visit) {
  uint32_t signal = static_cast<uint32_t>(known.gdaSignalCount);
  uint32_t counter = static_cast<uint32_t>(known.gdaCounterCount);
  uint64_t end = 0;
  for (const ccoDevResourceRequirements* entry = known.resourceRequirementsList; entry != nullptr;
       entry = entry->next) {
    const uint64_t offset = aligned(end, entry->bufferAlign);
    visit(*entry, signal, counter, offset);
    signal += static_cast<uint32_t>(entry->gdaSignalCount);
    counter += static_cast<uint32_t>(entry->gdaCounterCount);
    if (entry->bufferSize != 0) end = offset + entry->bufferSize;
  }
  return end;
}

absl::Status check_entry(const ccoDevResourceRequirements& entry, uint64_t buffer_bytes) {
  if ((entry.bufferAlign & (entry.bufferAlign - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bufferAlign %d is no power of two", entry.bufferAlign));
  }
  const uint64_t most = std::numeric_limits<uint32_t>::max();  // Handles are 32-bit offsets.
  if (entry.bufferSize > most || entry.bufferAlign > most || buffer_bytes > most) {
    return absl::InvalidArgumentError("the buffers of the resource list exceed 4 GiB");
  }
  return absl::OkStatus();
}

absl::Status add_list(const ccoDevCommRequirements& known, Requirements* result) {
  absl::Status outcome;
  result->buffer_bytes = walk(
      known, [&](const ccoDevResourceRequirements& entry, uint32_t, uint32_t, uint64_t offset) {
        if (outcome.ok()) outcome = check_entry(entry, offset);
        if (outcome.ok()) {
          outcome = add_count("gdaSignalCount", entry.gdaSignalCount, &result->signal_count);
        }
        if (outcome.ok()) {
          outcome = add_count("gdaCounterCount", entry.gdaCounterCount, &result->counter_count);
        }
      });
  return outcome;
}

}  // namespace

absl::StatusOr<Requirements> read_requirements(const ccoDevCommRequirements& given,
                                               bool has_other_nodes) {
  if (given.magic != mori::cco::CCO_API_MAGIC) {
    return absl::InvalidArgumentError(
        absl::StrFormat("magic is %#x instead of %#x: use CCO_DEV_COMM_REQUIREMENTS_INITIALIZER",
                        given.magic, mori::cco::CCO_API_MAGIC));
  }
  const ccoDevCommRequirements known = complete(given);
  unsigned connection = 0;  // The enumeration can not hold what is checked here.
  static_assert(sizeof connection == sizeof known.gdaConnectionType);
  std::memcpy(&connection, &known.gdaConnectionType, sizeof connection);
  if (connection > CCO_GDA_CONNECTION_RAIL) {
    return absl::InvalidArgumentError(
        absl::StrFormat("gdaConnectionType is %d", static_cast<int>(connection)));
  }
  Requirements result;
  result.connection = has_other_nodes || known.gdaConnectionType == CCO_GDA_CONNECTION_FULL
                          ? known.gdaConnectionType
                          : CCO_GDA_CONNECTION_NONE;
  CCO_RETURN_IF_ERROR(add_count("gdaSignalCount", known.gdaSignalCount, &result.signal_count));
  CCO_RETURN_IF_ERROR(add_count("gdaCounterCount", known.gdaCounterCount, &result.counter_count));
  CCO_RETURN_IF_ERROR(add_count("gdaQueueDepth", known.gdaQueueDepth, &result.queue_depth));
  CCO_RETURN_IF_ERROR(
      add_count("lsaBarrierCount", known.lsaBarrierCount, &result.lsa_barrier_count));
  CCO_RETURN_IF_ERROR(
      add_count("railGdaBarrierCount", known.railGdaBarrierCount, &result.rail_barrier_count));
  CCO_RETURN_IF_ERROR(add_count("barrierCount", known.barrierCount, &result.world_barrier_count));
  CCO_RETURN_IF_ERROR(add_count("sdmaQueueCount", known.sdmaQueueCount, &result.sdma_queue_count));
  CCO_RETURN_IF_ERROR(add_list(known, &result));
  result.context_count = static_cast<uint32_t>(std::max(known.gdaContextCount, 0));
  result.traffic_class = known.gdaTrafficClass;
  if (!result.has_gda()) result.signal_count = result.counter_count = 0;
  if (!result.has_gda() || !has_other_nodes) result.rail_barrier_count = 0;
  return result;
}

void assign_resources(const ccoDevCommRequirements& given) {
  walk(complete(given), [](const ccoDevResourceRequirements& entry, uint32_t signal,
                           uint32_t counter, uint64_t offset) {
    if (entry.outBufferHandle != nullptr) *entry.outBufferHandle = static_cast<uint32_t>(offset);
    if (entry.outGdaSignalStart != nullptr) *entry.outGdaSignalStart = signal;
    if (entry.outGdaCounterStart != nullptr) *entry.outGdaCounterStart = counter;
  });
}

}  // namespace cco::compat
