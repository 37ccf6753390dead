#include "client/mori/comm.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/mori/errors.h"

namespace cco::compat {
namespace {

using mori::cco::ccoComm;
using mori::cco::ccoUniqueId;
using mori::cco::ccoWindow_t;

constexpr uint64_t kSlotUnitBytes = uint64_t{4} << 30;
constexpr uint32_t kTimeoutMs = 300'000;
constexpr uint32_t kBarrierTimeoutMs = 3'600'000;  // The longest there is: MORI's waits for ever.

static_assert(sizeof(ccoUniqueId) == sizeof(cco_unique_id));

}  // namespace

absl::StatusOr<std::unique_ptr<ccoComm>> Comm::create(const ccoUniqueId& id, int size, int rank,
                                                      size_t slot_bytes) {
  if (size <= 0 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank %d of %d: ranks count from 0, below their number", rank, size));
  }
  if (slot_bytes > std::numeric_limits<size_t>::max() - kSlotUnitBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("perRankVmmSize %d is more than an address can hold", slot_bytes));
  }
  auto comm = std::make_unique<ccoComm>();
  CCO_RETURN_IF_ERROR(comm->attach(id, size, rank, slot_bytes));
  return comm;
}

absl::Status Comm::attach(const ccoUniqueId& id, int size, int rank, size_t slot_bytes) {
  CCO_RETURN_IF_ERROR(from_client(::cco::Client::create({}, &client_)));
  cco_client_info node{};
  CCO_RETURN_IF_ERROR(from_client(client_.get_info(&node)));
  cco_unique_id secret;
  std::memcpy(&secret, &id, sizeof secret);
  ::cco::Group::Options options;
  options.rank = static_cast<uint32_t>(rank);
  options.size = static_cast<uint32_t>(size);
  options.unique_id = &secret;
  options.slot_bytes = (slot_bytes + kSlotUnitBytes - 1) / kSlotUnitBytes * kSlotUnitBytes;
  options.timeout_ms = kTimeoutMs;
  options.device = CCO_DEVICE_CURRENT;
  CCO_RETURN_IF_ERROR(from_client(::cco::Group::create(client_, options, &group_)));
  CCO_RETURN_IF_ERROR(from_client(group_.get_info(&info_)));
  CCO_ASSIGN_OR_RETURN(memory_, LocalMemory::open(client_, info_.device));
  const std::lock_guard lock(mutex_);
  arena_ = std::make_unique<DeviceArena>(memory_.get());
  table_ = std::make_unique<WindowTable>(arena_.get());
  return absl::OkStatus();
}

Comm::~Comm() {
  const std::lock_guard lock(mutex_);
  dev_comms_.clear();
  windows_.clear();
  blocks_.clear();
}

absl::Status Comm::agree(const absl::Status& mine) {
  const std::string text(mine.message());
  const absl::Status agreed = from_client(group_.agree(text.c_str(), kTimeoutMs));
  return mine.ok() ? agreed : mine;
}

absl::Status Comm::check_room(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  uint64_t used_bytes = 0;
  for (const auto& [pointer, block] : blocks_) used_bytes += block.size_bytes;
  if (size_bytes <= info_.slot_bytes && used_bytes <= info_.slot_bytes - size_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d bytes: this rank has %d of %d; a larger perRankVmmSize gives more",
                      size_bytes, used_bytes, info_.slot_bytes));
}

void* Comm::keep(std::unique_ptr<LocalPiece> piece) {
  void* const pointer = reinterpret_cast<void*>(piece->address());
  Block block;
  block.size_bytes = piece->size_bytes();
  block.piece = std::move(piece);
  const std::lock_guard lock(mutex_);
  blocks_.emplace(pointer, std::move(block));
  return pointer;
}

absl::StatusOr<void*> Comm::allocate(size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  CCO_RETURN_IF_ERROR(check_room(size_bytes));
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<LocalPiece> piece, memory_->allocate(size_bytes));
  return keep(std::move(piece));
}

absl::StatusOr<void*> Comm::import(const void* pointer, size_t size_bytes) {
  if (pointer == nullptr || size_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("externalPtr %p of %d bytes", pointer, size_bytes));
  }
  CCO_RETURN_IF_ERROR(check_room(size_bytes));
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<LocalPiece> piece, memory_->import(pointer, size_bytes));
  return keep(std::move(piece));
}

absl::Status Comm::free(void* pointer) {
  if (pointer == nullptr) return absl::OkStatus();
  std::map<void*, Block>::node_type ended;  // Its memory is released without the lock.
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end() || found->second.freed) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%p is no memory of this communicator, or has been freed", pointer));
  }
  found->second.freed = true;
  if (!found->second.registered) ended = blocks_.extract(found);
  return absl::OkStatus();
}

absl::StatusOr<ccoWindow_t> Comm::create_window(absl::Status mine, size_t size_bytes,
                                                void** local) {
  if (size_bytes == 0) mine.Update(absl::InvalidArgumentError("a window of 0 bytes"));
  CCO_RETURN_IF_ERROR(agree(mine));
  Block block;
  ::cco::Window::Options options;
  options.size_bytes = size_bytes;
  options.alignment_bytes = memory_->granularity_bytes();
  options.timeout_ms = kTimeoutMs;
  CCO_RETURN_IF_ERROR(from_client(::cco::Window::create(group_, nullptr, options, &block.window)));
  block.size_bytes = size_bytes;
  block.registered = true;
  void* pointer = nullptr;
  CCO_RETURN_IF_ERROR(from_client(block.window.get_address(info_.lsa_rank, 0, &pointer)));
  {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(pointer, std::move(block));
  }
  absl::StatusOr<ccoWindow_t> window = publish(pointer, {}, size_bytes);
  if (window.ok()) {
    *local = pointer;
    return window;
  }
  const std::lock_guard lock(mutex_);
  blocks_.erase(pointer);
  return window;
}

absl::StatusOr<Comm::Block*> Comm::claim(void* pointer, size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end() || found->second.freed) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%p is not what ccoMemAlloc(), ccoMemImport() or ccoWindowRegister() have returned",
        pointer));
  }
  if (size_bytes == 0 || size_bytes > found->second.size_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes of an allocation of %d bytes",
                                                      size_bytes, found->second.size_bytes));
  }
  if (found->second.registered) {
    return absl::FailedPreconditionError(absl::StrFormat("%p is in a window already", pointer));
  }
  found->second.registered = true;
  return &found->second;
}

void Comm::unclaim(void* pointer) {
  std::map<void*, Block>::node_type ended;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  found->second.registered = false;
  if (found->second.freed) ended = blocks_.extract(found);
}

absl::StatusOr<::cco::Window> Comm::offer(const Block& block, size_t size_bytes) {
  ::cco::Window window;
  if (block.piece == nullptr) {  // Its window is there still, on every rank.
    CCO_RETURN_IF_ERROR(from_client(group_.barrier(kTimeoutMs)));
    return window;
  }
  ::cco::Window::Options options;
  options.size_bytes = size_bytes;
  options.timeout_ms = kTimeoutMs;
  CCO_RETURN_IF_ERROR(from_client(::cco::Window::register_memory(
      group_, nullptr, options,
      {block.piece->fd(), block.piece->allocation_bytes(), block.piece->allocation_offset()},
      &window)));
  cco_window_device device{};
  CCO_RETURN_IF_ERROR(from_client(window.get_device(&device)));
  if (device.stride_4g == 0) {
    return absl::FailedPreconditionError(
        "the ranks' memory begins at different places of a granule, which address arithmetic by "
        "winBase and stride4G can not reach: import from the beginning of an allocation");
  }
  return window;
}

absl::StatusOr<ccoWindow_t> Comm::register_window(const absl::Status& mine, void* pointer,
                                                  size_t size_bytes) {
  const absl::StatusOr<Block*> block = mine.ok() ? claim(pointer, size_bytes) : mine;
  if (!block.ok()) return agree(block.status());
  const auto make = [&]() -> absl::StatusOr<ccoWindow_t> {
    CCO_RETURN_IF_ERROR(agree(absl::OkStatus()));
    CCO_ASSIGN_OR_RETURN(::cco::Window own, offer(**block, size_bytes));
    return publish(pointer, std::move(own), size_bytes);
  };
  absl::StatusOr<ccoWindow_t> window = make();
  if (!window.ok()) unclaim(pointer);
  return window;
}

absl::StatusOr<ccoWindow_t> Comm::publish(void* pointer, ::cco::Window own, size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const ::cco::Window& window = own ? own : blocks_.at(pointer).window;
  cco_window_device device{};
  const cco_window_device* on_device = nullptr;
  CCO_RETURN_IF_ERROR(from_client(window.get_device(&device)));
  CCO_RETURN_IF_ERROR(from_client(window.get_device_pointer(&on_device)));
  const auto handle = reinterpret_cast<ccoWindow_t>(const_cast<cco_window_device*>(on_device));
  const uint64_t stride_bytes = uint64_t{device.stride_4g} << 32;
  const uint64_t local_base = device.win_base + stride_bytes * device.lsa_rank;
  CCO_RETURN_IF_ERROR(table_->add(local_base, size_bytes, handle));
  const auto alias = reinterpret_cast<uint64_t>(pointer);
  if (alias != local_base) CCO_RETURN_IF_ERROR(table_->add(alias, size_bytes, handle));
  windows_[handle] = {std::move(own), pointer, size_bytes, local_base, stride_bytes};
  return handle;
}

absl::Status Comm::deregister(ccoWindow_t window) {
  void* block = nullptr;
  std::map<ccoWindow_t, Registered>::node_type ended;
  {
    const std::lock_guard lock(mutex_);
    const auto found = windows_.find(window);
    if (found == windows_.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%p is no window of this communicator", window));
    }
    CCO_RETURN_IF_ERROR(table_->remove(window));
    block = found->second.block;
    ended = windows_.extract(found);
  }
  ended = {};  // Peers' mappings go before the memory.
  unclaim(block);
  return absl::OkStatus();
}

void* Comm::peer_pointer(const void* local, int world_rank) {
  const auto lsa_rank = static_cast<uint32_t>(world_rank) - info_.lsa_first;
  if (world_rank < 0 || lsa_rank >= info_.lsa_size) return nullptr;
  const auto address = reinterpret_cast<uint64_t>(local);
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, window] : windows_) {
    for (const uint64_t base : {window.local_base, reinterpret_cast<uint64_t>(window.block)}) {
      if (address - base >= window.size_bytes) continue;
      if (lsa_rank == info_.lsa_rank) return const_cast<void*>(local);
      const uint64_t peer_base =
          window.local_base + (uint64_t{lsa_rank} - info_.lsa_rank) * window.stride_bytes;
      return reinterpret_cast<void*>(peer_base + (address - base));
    }
  }
  return nullptr;
}

absl::Status Comm::barrier() { return from_client(group_.barrier(kBarrierTimeoutMs)); }

}  // namespace cco::compat
