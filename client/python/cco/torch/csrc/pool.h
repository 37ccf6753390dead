// Memory of this process that tensors are made in.
//
// A driver takes milliseconds, and a file descriptor per rank, for each allocation that others map.
// So tensors share chunks: a chunk is mapped by the peers once, with the first tensor of it that
// meets theirs. Within a chunk memory is handed out upwards and never again: a peer whose kernels
// still write to a tensor that was freed here can not hit another one. A chunk ends with its last
// tensor and handle; peers that have it mapped keep its memory until they let go too.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpu.h"
#include "node.h"

namespace cco_torch {

class Link;        // A block that has met its peers: symm_mem.h.
class Group;       // group.h.
class Rendezvous;  // rendezvous.h.
class Window;      // group.h.

inline constexpr uint64_t kAlignment = 256;
inline constexpr uint64_t kHostChunkBytes = uint64_t{64} << 20;
inline constexpr uint64_t kLargestChunkBytes = uint64_t{1} << 30;

inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

/// One allocation. Handed out by Pool; ends when nobody holds it.
class Chunk {
 public:
  Chunk(c10::Device device, uint64_t size_bytes) : device_(device) {
    retire(device, nullptr);  // What could not end earlier.
    Node& node = Node::get(device.type());
    const int32_t ordinal = device.is_cpu() ? 0 : device.index();
    check(api().cco_memory_create(node.client(), ordinal, size_bytes, &memory_),
          "allocating " + std::to_string(size_bytes) + " bytes on " + device.str());
    auto info = options_of<cco_memory_info>();
    check(api().cco_memory_get_info(memory_, &info), "asking where memory is");
    base_ = reinterpret_cast<char*>(info.address);
    size_bytes_ = info.allocation_bytes;
    fd_ = info.fd;
    static std::atomic<uint64_t>& last = *new std::atomic<uint64_t>(0);
    id_ = ++last;
  }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  ~Chunk() {
    windows_.clear();
    retire(device_, [memory = memory_] { api().cco_memory_destroy(memory); });
  }

  uint64_t id() const { return id_; }
  c10::Device device() const { return device_; }
  uint64_t size_bytes() const { return size_bytes_; }
  char* base() const { return base_; }
  /// Open as long as the chunk.
  int fd() const { return fd_; }

  /// Null: not so much is left.
  char* take(uint64_t size_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t rounded = round_up(size_bytes, kAlignment);
    if (rounded > size_bytes_ - used_) return nullptr;
    used_ += rounded;
    return base_ + (used_ - rounded);
  }

  /// Windows of whole chunks, by group and by the ranks' chunks: kept as long as the chunk, on
  /// every rank, so that all find one or none does.
  std::shared_ptr<Window> find_window(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = windows_.find(key);
    return found == windows_.end() ? nullptr : found->second;
  }
  void keep_window(const std::string& key, std::shared_ptr<Window> window) {
    const std::lock_guard<std::mutex> lock(mutex_);
    windows_[key] = std::move(window);
  }
  /// Those of one group, which no tensor meets in again.
  void forget(const Group* group);

 private:
  const c10::Device device_;
  cco_memory* memory_ = nullptr;
  char* base_ = nullptr;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
  uint64_t id_ = 0;  // Never used again in this process.
  std::mutex mutex_;
  uint64_t used_ = 0;
  std::map<std::string, std::shared_ptr<Window>> windows_;
};

/// One tensor's memory: its bytes, then its signal pad.
struct Block {
  std::shared_ptr<Chunk> chunk;
  char* address = nullptr;
  uint64_t size_bytes = 0;  // As asked for.
  uint64_t pad_bytes = 0;
  std::optional<std::string> group_name;  // To rendezvous with by default.
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Link>> links;  // By group name; guarded by `mutex`.

  uint64_t pad_offset() const { return round_up(size_bytes, kAlignment); }
  uint64_t whole_bytes() const { return pad_offset() + pad_bytes; }
};

class Pool {
 public:
  static Pool& get() {
    static Pool& pool = *new Pool;
    return pool;
  }

  /// The pad is zero when it returns. `size_bytes` may be 0.
  char* allocate(c10::Device device, uint64_t size_bytes, uint64_t pad_bytes,
                 const std::optional<std::string>& group_name) {
    const c10::DeviceGuard guard(device);
    auto block = std::make_shared<Block>();
    block->size_bytes = size_bytes == 0 ? 1 : size_bytes;
    block->pad_bytes = pad_bytes;
    block->group_name = group_name;
    place(device, block.get());
    const std::vector<char> zeros(pad_bytes, 0);
    upload(block->address + block->pad_offset(), zeros.data(), pad_bytes, device);
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[block->address] = block;
    return block->address;
  }

  /// A few bytes for a handle's own use, which nothing finds by address.
  std::unique_ptr<Block> scratch(c10::Device device, uint64_t size_bytes) {
    auto block = std::make_unique<Block>();
    block->size_bytes = size_bytes;
    place(device, block.get());
    return block;
  }

  /// Local, whatever the peers do. Nothing if it is not ours.
  void free(void* address) {
    std::shared_ptr<Block> last;  // Ends outside of the lock.
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(static_cast<char*>(address));
    if (found == blocks_.end()) return;
    last = std::move(found->second);
    blocks_.erase(found);
  }

  /// Which block `address` lies in; null: none.
  std::shared_ptr<Block> find(const void* address) {
    const auto* wanted = static_cast<const char*>(address);
    const std::lock_guard<std::mutex> lock(mutex_);
    auto next = blocks_.upper_bound(const_cast<char*>(wanted));
    if (next == blocks_.begin()) return nullptr;
    const std::shared_ptr<Block>& block = std::prev(next)->second;
    return wanted < block->address + block->size_bytes ? block : nullptr;
  }

  /// What tensors keep for a group that torch has destroyed. Handles keep theirs.
  void forget(const Rendezvous* rendezvous);

  std::vector<std::shared_ptr<Block>> blocks() {
    std::vector<std::shared_ptr<Block>> live;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& one : blocks_) live.push_back(one.second);
    return live;
  }

  std::vector<std::shared_ptr<Chunk>> chunks() {
    std::vector<std::shared_ptr<Chunk>> live;
    const std::lock_guard<std::mutex> lock(current_mutex_);
    for (auto one = chunks_.begin(); one != chunks_.end();) {
      std::shared_ptr<Chunk> chunk = one->lock();
      one = chunk == nullptr ? chunks_.erase(one) : std::next(one);
      if (chunk != nullptr) live.push_back(std::move(chunk));
    }
    return live;
  }

 private:
  void place(c10::Device device, Block* block) {
    const uint64_t chunk_bytes = chunk_bytes_of(device);
    const bool is_large = block->whole_bytes() > chunk_bytes / 2;
    const std::lock_guard<std::mutex> lock(current_mutex_);
    std::shared_ptr<Chunk>& current = current_[device];
    if (!is_large && current != nullptr) {
      block->address = current->take(block->whole_bytes());
      block->chunk = current;
    }
    if (block->address != nullptr) return;
    block->chunk =
        std::make_shared<Chunk>(device, is_large ? block->whole_bytes() + kAlignment : chunk_bytes);
    block->address = block->chunk->take(block->whole_bytes());
    chunks_.push_back(block->chunk);
    if (!is_large) current = block->chunk;
  }

  // A small part of what the GPU has: 1 GiB on one of 128 GiB or more.
  static uint64_t chunk_bytes_of(c10::Device device) {
    if (device.is_cpu()) return kHostChunkBytes;
    auto info = options_of<cco_gpu_info>();
    check(api().cco_client_get_gpu(Node::get(device.type()).client(), device.index(), &info),
          "asking for the memory of " + device.str());
    return std::min(kLargestChunkBytes, round_up(info.total_bytes / 128, kHostChunkBytes));
  }

  std::mutex mutex_;  // Never held while a chunk is made or ends.
  std::map<char*, std::shared_ptr<Block>> blocks_;
  std::mutex current_mutex_;  // Of what follows.
  std::list<std::weak_ptr<Chunk>> chunks_;
  std::unordered_map<c10::Device, std::shared_ptr<Chunk>> current_;
};

}  // namespace cco_torch
