// torch's two interfaces: a tensor's memory on all ranks, and the allocator that makes it. Methods
// that some releases of torch lack in their interface are written without `override`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryTypes.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <utility>
#include <vector>

#include "group.h"
#include "pads.h"
#include "pool.h"
#include "rendezvous.h"

namespace cco_torch {

inline size_t pad_size_of_torch() {
#if CCO_TORCH_RELEASE < 210
  return c10d::symmetric_memory::signal_pad_size;
#else
  return c10d::symmetric_memory::get_signal_pad_size();
#endif
}

/// A block that has met its peers: where all copies are.
class Link {
 public:
  /// Collective.
  Link(std::shared_ptr<Rendezvous> rendezvous, const std::shared_ptr<Block>& block)
      : rendezvous_(std::move(rendezvous)), chunk_(block->chunk) {
    Rendezvous::Met met = rendezvous_->meet(*block);
    group_ = std::move(met.group);
    window_ = std::move(met.window);
    offset_ = met.meeting.offset;
    size_bytes_ = block->size_bytes;
    pad_bytes_ = block->pad_bytes;
    const auto size = static_cast<size_t>(group_->size());
    for (size_t rank = 0; rank < size; ++rank) {
      void* address = block->address;  // Its own copy is where the tensor says.
      if (static_cast<int>(rank) != group_->rank()) {
        check(api().cco_window_get_address(window_->handle(), static_cast<uint32_t>(rank), offset_,
                                           &address),
              "asking where rank " + std::to_string(rank) + "'s copy is");
      }
      buffers_.push_back(address);
      pads_.push_back(static_cast<char*>(address) + block->pad_offset());
      global_ranks_.push_back(met.meeting.records[rank].global_rank);
    }
    upload_tables(size);
  }

  const Rendezvous* rendezvous() const { return rendezvous_.get(); }
  Group& group() const { return *group_; }
  c10::Device device() const { return chunk_->device(); }
  cco_window* window() const { return window_->handle(); }
  uint64_t window_offset() const { return offset_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t pad_bytes() const { return pad_bytes_; }
  const std::vector<void*>& buffers() const { return buffers_; }
  const std::vector<void*>& pads() const { return pads_; }
  const std::vector<int>& global_ranks() const { return global_ranks_; }
  void** buffers_on_device() const { return reinterpret_cast<void**>(tables_->address); }
  void** pads_on_device() const { return buffers_on_device() + buffers_.size(); }
  int* global_ranks_on_device() const {
    return reinterpret_cast<int*>(pads_on_device() + buffers_.size());
  }

 private:
  void upload_tables(size_t size) {
    tables_ = Pool::get().scratch(device(), size * (2 * sizeof(void*) + sizeof(int)));
    std::vector<char> bytes(tables_->size_bytes);
    std::memcpy(bytes.data(), buffers_.data(), size * sizeof(void*));
    std::memcpy(bytes.data() + size * sizeof(void*), pads_.data(), size * sizeof(void*));
    std::memcpy(bytes.data() + 2 * size * sizeof(void*), global_ranks_.data(), size * sizeof(int));
    upload(tables_->address, bytes.data(), bytes.size(), device());
  }

  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::shared_ptr<Chunk> chunk_;
  std::shared_ptr<Group> group_;
  std::shared_ptr<Window> window_;
  std::unique_ptr<Block> tables_;
  uint64_t offset_ = 0;  // Of the tensor in the window.
  uint64_t size_bytes_ = 0;
  uint64_t pad_bytes_ = 0;
  std::vector<void*> buffers_;
  std::vector<void*> pads_;
  std::vector<int> global_ranks_;
};

inline void Pool::forget(const Rendezvous* rendezvous) {
  for (const std::shared_ptr<Block>& block : blocks()) {
    std::shared_ptr<Link> last;  // Ends outside of the lock.
    const std::lock_guard<std::mutex> lock(block->mutex);
    const auto found = block->links.find(rendezvous->name());
    if (found == block->links.end() || found->second->rendezvous() != rendezvous) continue;
    last = std::move(found->second);
    block->links.erase(found);
  }
}

class SymmetricMemory : public c10d::symmetric_memory::SymmetricMemory {
 public:
  SymmetricMemory(std::shared_ptr<Link> link, size_t offset)
      : link_(std::move(link)), offset_(offset) {}

  std::vector<void*> get_buffer_ptrs() override { return link_->buffers(); }
  std::vector<void*> get_signal_pad_ptrs() override { return link_->pads(); }
  void** get_buffer_ptrs_dev() override { return link_->buffers_on_device(); }
  void** get_signal_pad_ptrs_dev() override { return link_->pads_on_device(); }
  size_t get_buffer_size() override { return link_->size_bytes(); }
  size_t get_signal_pad_size() { return link_->pad_bytes(); }
  size_t get_offset() { return offset_; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }

  void barrier(int channel, size_t timeout_ms) override {
    use(channel, timeout_ms, {"barrier", Signal::kAll, Signal::kAll});
  }
  void put_signal(int dst_rank, int channel, size_t timeout_ms) override {
    check_rank(dst_rank);
    use(channel, timeout_ms, {"put_signal", dst_rank, Signal::kNone});
  }
  void wait_signal(int src_rank, int channel, size_t timeout_ms) override {
    check_rank(src_rank);
    use(channel, timeout_ms, {"wait_signal", Signal::kNone, src_rank});
  }

  int get_rank() override { return link_->group().rank(); }
  int get_world_size() override { return link_->group().size(); }
  c10::Device get_device() { return link_->device(); }
  const std::vector<int>& get_rank_to_global_rank() override { return link_->global_ranks(); }
  int* get_rank_to_global_rank_dev() override { return link_->global_ranks_on_device(); }
  bool world_within_direct_access() { return true; }

  const Link& link() const { return *link_; }

 private:
  void check_rank(int rank) const {
    TORCH_CHECK(rank >= 0 && rank < link_->group().size(), "cco.torch: no rank ", rank,
                " in a group of ", link_->group().size());
  }
  void use(int channel, size_t timeout_ms, const Signal& signal) {
    const uint64_t channels =
        link_->pad_bytes() / sizeof(uint32_t) / static_cast<uint64_t>(link_->group().size());
    TORCH_CHECK(channel >= 0 && static_cast<uint64_t>(channel) < channels, "cco.torch: channel ",
                channel, ": a signal pad of ", link_->pad_bytes(), " bytes has ",
                channels == 0 ? "none" : "channels 0 to " + std::to_string(channels - 1),
                " for a group of ", link_->group().size(),
                ". Each takes 4 bytes for each rank: "
                "symm_mem.set_signal_pad_size(), before the tensor is made, makes room for more");
    const std::string lost = link_->group().problem();
    TORCH_CHECK(lost.empty(), lost);
    const PadUse use{link_->pads(), link_->pads_on_device(), link_->group(), channel, timeout_ms};
    run(use, signal, link_->device());
  }

  const std::shared_ptr<Link> link_;
  const size_t offset_;
};

class Allocator : public c10d::symmetric_memory::SymmetricMemoryAllocator {
 public:
  Allocator(std::string name, c10::DeviceType type) : name_(std::move(name)), type_(type) {}

  void* alloc(size_t size, int device_idx, const std::optional<std::string>& group_name) override {
    Rendezvouses::get().sweep();
    return Pool::get().allocate(device_of(device_idx), size, pad_size_of_torch(), group_name);
  }

  void free(void* ptr) override {
    if (is_exiting()) return;
    Pool::get().free(ptr);
    Rendezvouses::get().sweep();
  }

  size_t get_alloc_size(void* ptr) override { return block_of(ptr, "get_alloc_size")->size_bytes; }
  bool has_allocation(void* ptr) { return Pool::get().find(ptr) != nullptr; }

  c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory> rendezvous(
      void* ptr, const std::optional<std::string>& group_name) override {
    const std::shared_ptr<Block> block = block_of(ptr, "rendezvous");
    const std::optional<std::string>& name = group_name ? group_name : block->group_name;
    TORCH_CHECK(name, "cco.torch: rendezvous() without a group of a tensor that was made without");
    const c10::DeviceGuard guard(block->chunk->device());
    if (!block->chunk->device().is_cpu()) PadKernels::get().prepare(block->chunk->device());
    std::shared_ptr<Rendezvous> meeting = Rendezvouses::get().find(*name);
    const auto offset = static_cast<size_t>(static_cast<char*>(ptr) - block->address);
    return c10::make_intrusive<SymmetricMemory>(link_of(std::move(meeting), block), offset);
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return type_; }
  std::string name() override { return name_; }

  /// Where a tensor lies in cco's words; null: it has not met its peers in that group.
  static std::shared_ptr<Link> find_link(const void* ptr, const std::string& group_name) {
    const std::shared_ptr<Block> block = Pool::get().find(ptr);
    if (block == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(block->mutex);
    const auto found = block->links.find(group_name);
    return found == block->links.end() ? nullptr : found->second;
  }

 private:
  c10::Device device_of(int index) const {
    if (type_ == c10::DeviceType::CPU) return c10::Device(type_);
    if (index >= 0) return c10::Device(type_, static_cast<c10::DeviceIndex>(index));
    return c10::impl::VirtualGuardImpl(type_).getDevice();
  }

  static std::shared_ptr<Block> block_of(const void* ptr, const char* function) {
    std::shared_ptr<Block> block = Pool::get().find(ptr);
    TORCH_CHECK(block != nullptr, "cco.torch: ", function, "(", ptr,
                "): not memory of this back-end. Make the tensor by symm_mem.empty(), after "
                "symm_mem.set_backend(); other tensors become windows by cco.torch.register()");
    return block;
  }

  // A link of a group that torch has replaced is made anew.
  static std::shared_ptr<Link> link_of(std::shared_ptr<Rendezvous> rendezvous,
                                       const std::shared_ptr<Block>& block) {
    const std::string name = rendezvous->name();
    {
      const std::lock_guard<std::mutex> lock(block->mutex);
      const auto found = block->links.find(name);
      if (found != block->links.end() && found->second->rendezvous() == rendezvous.get()) {
        return found->second;
      }
    }
    const WithoutInterpreter others_run;
    auto link = std::make_shared<Link>(std::move(rendezvous), block);
    const std::lock_guard<std::mutex> lock(block->mutex);
    block->links[name] = link;
    return link;
  }

  const std::string name_;
  const c10::DeviceType type_;
};

}  // namespace cco_torch
