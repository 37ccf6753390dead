#include "client/src/window.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/deadline.h"

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
  request.set_wait_for_memory_ms(spec.wait_for_memory_ms);
  request.set_placement(spec.placement);
  request.set_allocation_bytes(spec.allocation_bytes);
  request.set_allocation_offset(spec.allocation_offset);
  request.set_keep_ms(spec.keep_ms);
  return request;
}

// Offers the memory, if it is the caller's own, and makes the call: one step, as an offer ends with
// the daemon that took it.
absl::Status ask_for(Client& client, v1::CreateWindowRequest request, const WindowSpec& spec,
                     v1::CreateWindowResponse* answer) {
  const Deadline deadline(spec.timeout);
  return client.connection().repeat_if_resumed(deadline, [&]() -> absl::Status {
    if (spec.memory) {
      CCO_ASSIGN_OR_RETURN(std::string offer, client.connection().offer(spec.memory));
      request.set_offer(std::move(offer));
    }
    return client.call_collective(&Stub::CreateWindow, request, answer, deadline.left());
  });
}

// Where the window begins in each rank's slot.
absl::StatusOr<std::vector<uint64_t>> offsets_of(const v1::CreateWindowResponse& answer,
                                                 const Topology& topology) {
  if (answer.peer_offsets().empty()) {
    return std::vector<uint64_t>(topology.size, answer.offset());
  }
  if (answer.peer_offsets_size() != static_cast<int>(topology.size)) {
    return absl::InternalError(
        absl::StrFormat("cco-memd places the window of %d ranks; the group has %d",
                        answer.peer_offsets_size(), topology.size));
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
  CCO_RETURN_IF_ERROR(
      ask_for(group->client(), request_for(group->topology(), spec), spec, &answer));
  return build(std::move(group), spec, answer);
}

absl::StatusOr<std::shared_ptr<Window>> Window::create_in_turn(std::shared_ptr<Group> group,
                                                               const Gate::Pass& turn,
                                                               const WindowSpec& spec) {
  v1::CreateWindowRequest request = request_for(group->topology(), spec);
  uint64_t& count = group->unnamed_count(turn);
  request.set_sequence(count);
  v1::CreateWindowResponse answer;
  CCO_RETURN_IF_ERROR(ask_for(group->client(), std::move(request), spec, &answer));
  ++count;  // The daemon has made it, whatever becomes of it here.
  return build(std::move(group), spec, answer);
}

absl::StatusOr<std::shared_ptr<Window>> Window::build(std::shared_ptr<Group> group,
                                                      const WindowSpec& spec,
                                                      const v1::CreateWindowResponse& answer) {
  std::shared_ptr<Window> window(new Window(std::move(group), answer));
  absl::Status placed = window->place(spec, answer);
  if (placed.ok()) return window;
  window->give_up();
  return placed;
}

absl::StatusOr<std::shared_ptr<Window>> Window::open(std::shared_ptr<Group> group,
                                                     const std::string& name) {
  v1::OpenWindowRequest request;
  request.set_group_id(group->topology().group_id);
  request.set_rank(group->topology().rank);
  request.set_name(name);
  v1::OpenWindowResponse answer;
  Connection& connection = group->client().connection();
  CCO_RETURN_IF_ERROR(connection.call(&Stub::OpenWindow, request, &answer, connection.timeout()));
  WindowSpec spec;
  spec.name = name;
  spec.size_bytes = answer.size_bytes();
  spec.keep_ms = answer.keep_ms();
  std::shared_ptr<Window> window(new Window(std::move(group), answer.window()));
  // Not given up if that fails: it may be what another handle stands for.
  CCO_RETURN_IF_ERROR(window->place(spec, answer.window()));
  return window;
}

absl::Status Window::place(const WindowSpec& spec, const v1::CreateWindowResponse& answer) {
  const Topology& topology = group_->topology();
  CCO_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, offsets_of(answer, topology));
  if (spec.placement == v1::PLACEMENT_EXTERNAL || spec.keep_ms != 0) {
    own_slab_ = answer.slab_index();
  }
  CCO_RETURN_IF_ERROR(group_->map_range(answer.slab_index(), offsets, spec.size_bytes));
  for (uint32_t rank = 0; rank < topology.size; ++rank) {
    bases_.push_back(group_->address(rank, offsets[rank]));
  }
  CCO_RETURN_IF_ERROR(group_->windows().add(
      {.generation = device_.generation, .size_bytes = spec.size_bytes, .bases = bases_}));
  const bool at_stride = std::all_of(offsets.begin(), offsets.end(),
                                     [&](uint64_t offset) { return offset == answer.offset(); });
  device_.abi_version = CCO_ABI_VERSION;
  device_.transports =
      CCO_TRANSPORT_LSA | CCO_TRANSPORT_SDMA | CCO_TRANSPORT_TDM | CCO_TRANSPORT_GDA;
  device_.win_base = at_stride ? group_->address(topology.lsa_first, answer.offset()) : 0;
  device_.stride_4g = at_stride ? static_cast<uint32_t>(topology.slot_bytes / kSlotUnitBytes) : 0;
  device_.lsa_rank = topology.lsa_rank;
  device_.lsa_size = topology.lsa_size;
  device_.local_key = window_key(device_.generation);
  device_.size_bytes = spec.size_bytes;
  device_.incarnation = group_->client().connection().incarnation();
  absl::Status written = write_descriptor(answer.descriptor_offset());
  if (!written.ok()) group_->windows().remove(device_.generation);
  return written;
}

// The descriptor, the addresses of the team's copies, and a remote key per world rank.
absl::Status Window::write_descriptor(uint64_t descriptor_offset) {
  const Topology& topology = group_->topology();
  const absl::Span<const uint64_t> team =
      absl::MakeConstSpan(bases_).subspan(topology.lsa_first, topology.lsa_size);
  const std::vector<uint32_t> keys(topology.size, device_.local_key);
  const size_t team_bytes = team.size() * sizeof(uint64_t);
  const size_t keys_bytes = keys.size() * sizeof(uint32_t);
  const size_t total_bytes = sizeof device_ + team_bytes + keys_bytes;
  if (total_bytes > topology.control_bytes ||
      descriptor_offset > topology.control_bytes - total_bytes ||
      descriptor_offset % alignof(cco_window_device) != 0) {
    return absl::InternalError(
        absl::StrFormat("cco-memd places a descriptor of %d bytes at offset %d of a control region "
                        "of %d bytes",
                        total_bytes, descriptor_offset, topology.control_bytes));
  }
  device_pointer_ = group_->own_address(descriptor_offset);
  device_.peer_bases = device_pointer_ + sizeof device_;
  device_.remote_keys = device_.peer_bases + team_bytes;
  std::vector<unsigned char> bytes(total_bytes);
  std::memcpy(bytes.data(), &device_, sizeof device_);
  std::memcpy(bytes.data() + sizeof device_, team.data(), team_bytes);
  std::memcpy(bytes.data() + sizeof device_ + team_bytes, keys.data(), keys_bytes);
  return group_->context().copy_to_device(device_pointer_, bytes.data(), bytes.size());
}

void Window::give_up() {
  group_->windows().remove(device_.generation);
  // A kernel that still holds the descriptor's address finds a window that was never registered.
  if (device_pointer_ != 0) {
    const cco_window_device none{};
    group_->context().copy_to_device(device_pointer_, &none, sizeof none).IgnoreError();
  }
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
  const Topology& topology = group_->topology();
  if (lsa_rank < topology.lsa_size && offset < device_.size_bytes) {
    return bases_[topology.lsa_first + lsa_rank] + offset;
  }
  return absl::OutOfRangeError(
      absl::StrFormat("offset %d of LSA rank %d: the window has %d bytes on each of %d ranks",
                      offset, lsa_rank, device_.size_bytes, topology.lsa_size));
}

}  // namespace cco::client
