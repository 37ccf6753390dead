#include "client/src/comm.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/deadline.h"

namespace cco::client {

absl::StatusOr<std::shared_ptr<Comm>> Comm::create(std::shared_ptr<Group> group,
                                                   CommOptions options) {
  const Deadline deadline(options.timeout);
  const CommLayout layout = lay_out(group->topology(), &options);
  WindowSpec spec;
  spec.placement = v1::PLACEMENT_CONTROL;
  spec.size_bytes = layout.size_bytes + fingerprint(options);
  spec.timeout = options.timeout;
  CCO_ASSIGN_OR_RETURN(const Gate::Pass turn, group->take_turn());
  absl::StatusOr<std::shared_ptr<Window>> words = Window::create_in_turn(group, turn, spec);
  if (!words.ok()) {
    return with_context(absl::StrFormat("signal_count %d and barrier_count %d here",
                                        options.signal_count, options.barrier_count),
                        words.status());
  }
  std::shared_ptr<Comm> comm(new Comm(*std::move(words)));
  absl::Status made = comm->fill(options, layout);
  if (made.ok()) {
    // The words of every rank are zero before any rank uses them; arm() begins with that, too.
    const bool has_transports = options.sdma.has_value() || options.gda.has_value();
    if (has_transports) {
      made = comm->arm(options, layout, turn, deadline);
    } else {
      made = comm->write_descriptor(layout);
      if (made.ok()) made = group->barrier_in_turn(turn, deadline.left());
    }
  }
  if (made.ok()) return comm;
  comm->give_up();
  return made;
}

absl::Status Comm::write_descriptor(const CommLayout& layout) {
  Group& group = words_->group();
  CCO_ASSIGN_OR_RETURN(device_pointer_,
                       words_->address(group.topology().lsa_rank, layout.descriptor_offset));
  return group.context().copy_to_device(device_pointer_, &device_, sizeof device_);
}

absl::Status Comm::fill(const CommOptions& options, const CommLayout& layout) {
  Group& group = words_->group();
  const Topology& topology = group.topology();
  device_.abi_version = CCO_ABI_VERSION;
  device_.transports = CCO_TRANSPORT_LSA | CCO_TRANSPORT_TDM;
  device_.rank = topology.rank;
  device_.world_size = topology.size;
  device_.lsa_rank = topology.lsa_rank;
  device_.lsa_size = topology.lsa_size;
  device_.lsa_first = topology.lsa_first;
  device_.signal_count = options.signal_count;
  device_.barrier_count = options.barrier_count;
  if (options.gda.has_value()) device_.barrier_count += options.gda->world_barrier_count;
  device_.clock_khz = group.context().clock_khz();
  device_.flat_base = group.flat_base();
  device_.slot_bytes = topology.slot_bytes;
  device_.signal_offset = layout.signal_offset;
  device_.barrier_offset = layout.barrier_offset;
  device_.abort_word = group.abort_word_address();
  device_.generation = words_->device().generation;
  device_.incarnation = words_->device().incarnation;
  device_.control = words_->device();
  CCO_ASSIGN_OR_RETURN(const uint64_t own, words_->address(topology.lsa_rank, 0));
  return group.context().fill_zero(own, words_->device().size_bytes);
}

absl::Status Comm::arm(const CommOptions& options, const CommLayout& layout, const Gate::Pass& turn,
                       const Deadline& deadline) {
  Group& group = words_->group();
  transports_ = Transports::open(group, *words_, options, layout);
  transports_->describe(&device_);
  // Opening uses own words alone. From here on those of all ranks are zero but for queues.
  CCO_RETURN_IF_ERROR(group.barrier_in_turn(turn, deadline.left()));
  transports_->prove(device_);
  CCO_RETURN_IF_ERROR(transports_->publish());
  CCO_RETURN_IF_ERROR(group.barrier_in_turn(turn, deadline.left()));
  const absl::Status verdict = transports_->verdict();
  // Nobody leaves, and no rank's words are reused, while another still reads them.
  CCO_RETURN_IF_ERROR(group.barrier_in_turn(turn, deadline.left()));
  CCO_RETURN_IF_ERROR(verdict);
  CCO_RETURN_IF_ERROR(transports_->clear());
  // Before the last barrier: who fails here leaves nobody with a communicator that has no peer.
  CCO_RETURN_IF_ERROR(write_descriptor(layout));
  return group.barrier_in_turn(turn, deadline.left());
}

absl::Status Comm::check() const {
  if (transports_ == nullptr) return absl::OkStatus();
  return transports_->status();
}

void Comm::give_up() {
  transports_.reset();
  if (device_pointer_ != 0) {
    const cco_device_comm none{};  // As for a window's descriptor.
    words_->group().context().copy_to_device(device_pointer_, &none, sizeof none).IgnoreError();
  }
  words_->give_up();
}

}  // namespace cco::client
