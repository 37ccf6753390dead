#include "client/src/window.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco::client {
namespace {

using Stub = v1::MemdService::Stub;

v1::CreateWindowRequest request_for(const Topology& topology, const WindowSpec& spec) {
  v1::CreateWindowRequest request;
  request.set_group_id(topology.group_id);
  request.set_rank(topology.rank);
  request.set_name(spec.name);
  request.set_size_bytes(spec.size_bytes);
  request.set_alignment_bytes(spec.alignment_bytes);
  request.set_placement(spec.placement);
  request.set_offer(spec.offer);
  request.set_allocation_bytes(spec.allocation_bytes);
  request.set_allocation_offset(spec.allocation_offset);
  return request;
}

// Where the window begins in each LSA rank's slot.
absl::StatusOr<std::vector<uint64_t>> offsets_of(const v1::CreateWindowResponse& answer,
                                                 const Topology& topology) {
  if (answer.peer_offsets().empty()) {
    return std::vector<uint64_t>(topology.lsa_size, answer.offset());
  }
  if (answer.peer_offsets_size() != static_cast<int>(topology.lsa_size)) {
    return absl::InternalError(
        absl::StrFormat("cco-memd places the window of %d LSA ranks; the group has %d",
                        answer.peer_offsets_size(), topology.lsa_size));
  }
  return std::vector<uint64_t>(answer.peer_offsets().begin(), answer.peer_offsets().end());
}

}  // namespace

absl::StatusOr<std::shared_ptr<Window>> Window::create(std::shared_ptr<Group> group,
                                                       const WindowSpec& spec) {
  if (spec.name.empty()) {
    CCO_ASSIGN_OR_RETURN(const Gate::Pass turn, group->take_turn());
    return create_in_turn(std::move(group), turn, spec);
  }
  v1::CreateWindowResponse answer;
  CCO_RETURN_IF_ERROR(group->client().call_collective(
      &Stub::CreateWindow, request_for(group->topology(), spec), &answer, spec.timeout));
  return build(std::move(group), spec, answer);
}

absl::StatusOr<std::shared_ptr<Window>> Window::create_in_turn(std::shared_ptr<Group> group,
                                                               const Gate::Pass& turn,
                                                               const WindowSpec& spec) {
  v1::CreateWindowRequest request = request_for(group->topology(), spec);
  uint64_t& count = group->unnamed_count(turn);
  request.set_sequence(count);
  v1::CreateWindowResponse answer;
  CCO_RETURN_IF_ERROR(group->client().call_collective(&Stub::CreateWindow, std::move(request),
                                                      &answer, spec.timeout));
  ++count;  // The daemon has made it, whatever becomes of it here.
  return build(std::move(group), spec, answer);
}

absl::StatusOr<std::shared_ptr<Window>> Window::build(std::shared_ptr<Group> group,
                                                      const WindowSpec& spec,
                                                      const v1::CreateWindowResponse& answer) {
  std::shared_ptr<Window> window(new Window(std::move(group)));
  window->window_id_ = answer.window_id();
  window->device_.generation = answer.generation();
  absl::Status placed = window->place(spec, answer);
  if (placed.ok()) return window;
  window->give_up();
  return placed;
}

absl::Status Window::place(const WindowSpec& spec, const v1::CreateWindowResponse& answer) {
  const Topology& topology = group_->topology();
  CCO_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, offsets_of(answer, topology));
  if (spec.placement == v1::PLACEMENT_EXTERNAL) own_slab_ = answer.slab_index();
  CCO_RETURN_IF_ERROR(group_->map_range(answer.slab_index(), offsets, spec.size_bytes));
  for (uint32_t lsa_rank = 0; lsa_rank < topology.lsa_size; ++lsa_rank) {
    peer_bases_.push_back(group_->address(lsa_rank, offsets[lsa_rank]));
  }
  const bool at_stride = std::all_of(offsets.begin(), offsets.end(),
                                     [&](uint64_t offset) { return offset == answer.offset(); });
  device_.abi_version = CCO_ABI_VERSION;
  device_.transports = CCO_TRANSPORT_LSA;
  device_.win_base = at_stride ? group_->address(0, answer.offset()) : 0;
  device_.stride_4g = at_stride ? static_cast<uint32_t>(topology.slot_bytes / kSlotUnitBytes) : 0;
  device_.lsa_rank = topology.lsa_rank;
  device_.lsa_size = topology.lsa_size;
  device_.size_bytes = spec.size_bytes;
  device_.incarnation = group_->client().connection().incarnation();
  return write_descriptor(answer.descriptor_offset());
}

absl::Status Window::write_descriptor(uint64_t descriptor_offset) {
  const size_t table_bytes = peer_bases_.size() * sizeof(uint64_t);
  const size_t total_bytes = sizeof device_ + table_bytes;
  const uint64_t control_bytes = group_->topology().control_bytes;
  if (total_bytes > control_bytes || descriptor_offset > control_bytes - total_bytes ||
      descriptor_offset % alignof(cco_window_device) != 0) {
    return absl::InternalError(
        absl::StrFormat("cco-memd places a descriptor of %d bytes at offset %d of a control region "
                        "of %d bytes",
                        total_bytes, descriptor_offset, control_bytes));
  }
  device_pointer_ = group_->own_address(descriptor_offset);
  device_.peer_bases = device_pointer_ + sizeof device_;
  std::vector<unsigned char> bytes(total_bytes);
  std::memcpy(bytes.data(), &device_, sizeof device_);
  std::memcpy(bytes.data() + sizeof device_, peer_bases_.data(), table_bytes);
  return group_->context().copy_to_device(device_pointer_, bytes.data(), bytes.size());
}

void Window::give_up() {
  // Unmapped first: once every rank has told the daemon, it may put something else there.
  if (own_slab_.has_value()) group_->unmap_slab(*own_slab_);
  v1::DestroyWindowRequest request;
  request.set_group_id(group_->topology().group_id);
  request.set_rank(group_->topology().rank);
  request.set_window_id(window_id_);
  request.set_generation(device_.generation);
  group_->client().call_farewell(&Stub::DestroyWindow, std::move(request));
}

absl::StatusOr<uint64_t> Window::address(uint32_t lsa_rank, uint64_t offset) const {
  if (lsa_rank < peer_bases_.size() && offset < device_.size_bytes) {
    return peer_bases_[lsa_rank] + offset;
  }
  return absl::OutOfRangeError(
      absl::StrFormat("offset %d of LSA rank %d: the window has %d bytes on each of %d ranks",
                      offset, lsa_rank, device_.size_bytes, peer_bases_.size()));
}

}  // namespace cco::client
