#include "client/src/comm.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/deadline.h"

namespace cco::client {
namespace {

constexpr uint64_t kSectionBytes = 256;  // Signals and barriers share no cache line.

uint64_t round_up(uint64_t bytes) {
  return (bytes + kSectionBytes - 1) / kSectionBytes * kSectionBytes;
}

// As abi.h lays the words out.
uint64_t signal_bytes(const Comm::Options& options) {
  return round_up(uint64_t{options.signal_count} * sizeof(uint64_t));
}
uint64_t barrier_bytes(const Comm::Options& options, uint32_t lsa_size) {
  return round_up(uint64_t{options.barrier_count} * (lsa_size + 1) * sizeof(uint64_t));
}

// The daemon compares sizes. Different counts can take equally many bytes, so 1 to 255 more bytes
// tell those apart.
uint64_t fingerprint(const Comm::Options& options) {
  return 1 + (options.signal_count * uint64_t{65537} + options.barrier_count) % 255;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Comm>> Comm::create(std::shared_ptr<Group> group,
                                                   const Options& options) {
  if (options.signal_count > kMaxSignals || options.barrier_count > kMaxBarriers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("signal_count %d and barrier_count %d: the limits are %d and %d",
                        options.signal_count, options.barrier_count, kMaxSignals, kMaxBarriers));
  }
  const Deadline deadline(options.timeout);
  const uint64_t barrier_offset = signal_bytes(options);
  const uint64_t words_bytes = barrier_offset + barrier_bytes(options, group->topology().lsa_size);
  WindowSpec spec;
  spec.placement = v1::PLACEMENT_CONTROL;
  spec.size_bytes = words_bytes + fingerprint(options);
  spec.timeout = options.timeout;
  CCO_ASSIGN_OR_RETURN(const Gate::Pass turn, group->take_turn());
  absl::StatusOr<std::shared_ptr<Window>> words = Window::create_in_turn(group, turn, spec);
  if (!words.ok()) {
    return with_context(absl::StrFormat("signal_count %d and barrier_count %d here",
                                        options.signal_count, options.barrier_count),
                        words.status());
  }
  std::shared_ptr<Comm> comm(new Comm(*std::move(words)));
  absl::Status filled = comm->fill(options, barrier_offset);
  // The words of every rank are zero before any rank uses them.
  if (filled.ok()) filled = group->barrier_in_turn(turn, deadline.left());
  if (filled.ok()) return comm;
  comm->give_up();
  return filled;
}

absl::Status Comm::fill(const Options& options, uint64_t barrier_offset) {
  Group& group = words_->group();
  const Topology& topology = group.topology();
  device_.abi_version = CCO_ABI_VERSION;
  device_.transports = CCO_TRANSPORT_LSA;
  device_.rank = topology.rank;
  device_.world_size = topology.size;
  device_.lsa_rank = topology.lsa_rank;
  device_.lsa_size = topology.lsa_size;
  device_.lsa_first = topology.lsa_first;
  device_.signal_count = options.signal_count;
  device_.barrier_count = options.barrier_count;
  device_.clock_khz = group.context().clock_khz();
  device_.flat_base = group.flat_base();
  device_.slot_bytes = topology.slot_bytes;
  device_.signal_offset = 0;
  device_.barrier_offset = barrier_offset;
  device_.abort_word = group.abort_word_address();
  device_.generation = words_->device().generation;
  device_.incarnation = words_->device().incarnation;
  device_.control = words_->device();
  CCO_ASSIGN_OR_RETURN(const uint64_t own, words_->address(topology.lsa_rank, 0));
  return group.context().fill_zero(own, words_->device().size_bytes);
}

}  // namespace cco::client
