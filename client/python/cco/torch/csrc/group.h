// A torch process group as cco groups, and the windows that its ranks' chunks make up.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <utility>
#include <vector>

#include "node.h"
#include "pool.h"

namespace cco_torch {

/// What torch knows of a group: this process's place in it, in the order that its maker gave.
struct TorchGroup {
  int rank = 0;
  int size = 0;
  c10::intrusive_ptr<c10d::Store> store;

  static TorchGroup find(const std::string& name) {
    try {
      const auto group = c10d::resolve_process_group(name);
      TorchGroup found{group->getRank(), group->getSize(), group->getStore()};
      if (found.store) return found;
    } catch (const c10::Error&) {
      // Not a process group: perhaps one that set_group_info() made.
    }
    const auto& info = c10d::symmetric_memory::get_group_info(name);
    return {info.rank, info.world_size, info.store};
  }
};

/// What every rank tells every other before a tensor becomes symmetric.
struct Record {
  uint64_t chunk_id;
  uint64_t chunk_bytes;
  uint64_t offset;  // Of the block in its chunk.
  uint64_t size_bytes;
  uint64_t pad_bytes;
  uint64_t incarnation;  // Of the cco-memd that this rank uses.
  int32_t global_rank;
  int32_t device;  // -1: the CPU.
  cco_unique_id unique_id;
  char problem[512];  // Not empty: why this rank cannot go on.
};

/// All ranks' records, in order, and where the tensor lies in a window that begins, on each rank,
/// so that this is one offset.
struct Meeting {
  explicit Meeting(std::vector<Record> all) : records(std::move(all)), offset(records[0].offset) {
    for (const Record& record : records) offset = std::min(offset, record.offset);
  }
  uint64_t begin_of(size_t rank) const { return records[rank].offset - offset; }

  std::vector<Record> records;
  uint64_t offset;
};

class Window;

/// The ranks of a torch group with one device each, as a cco group. Thread safe.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// Collective.
  Group(std::string name, int rank, int size, c10::Device device, const cco_unique_id& unique_id)
      : name_(std::move(name)), rank_(rank), size_(size), device_(device) {
    Node& node = Node::get(device.type());
    auto options = options_of<cco_group_options>();
    options.rank = static_cast<uint32_t>(rank);
    options.size = static_cast<uint32_t>(size);
    options.device = device.is_cpu() ? rank % static_cast<int>(node.device_count())
                                     : static_cast<int>(device.index());
    options.unique_id = &unique_id;
    check(api().cco_group_create(node.client(), &options, &handle_), "forming group " + name_);
    cco_device_comm view{};
    cco_status status = make_comm(1, &comm_);
    if (status == CCO_OK) status = api().cco_comm_get_device(comm_, &view);
    if (status != CCO_OK) {
      const std::string text = failure(status, "making the communicator of group " + name_);
      api().cco_group_destroy(handle_);
      TORCH_CHECK(false, text);
    }
    abort_word_ = view.abort_word;
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    retire(device_, [comm = comm_, others = others_, handle = handle_] {
      for (const auto& other : others) api().cco_comm_destroy(other.second);
      api().cco_comm_destroy(comm);
      api().cco_group_destroy(handle);
    });
  }

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  cco_group* handle() const { return handle_; }
  cco_comm* comm() const { return comm_; }
  /// One with that many LSA barriers; another for each name, as long as the group. Collective, when
  /// it is asked for first.
  cco_comm* comm_for(const std::string& key, uint32_t barrier_count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cco_comm*& comm = others_[key + "/" + std::to_string(barrier_count)];
    if (comm == nullptr) {
      check(make_comm(barrier_count, &comm), "making communicator " + key + " of group " + name_);
    }
    return comm;
  }
  /// Address, for kernels, of the word that is not 0 once the group is out of order.
  uint64_t abort_word() const { return abort_word_; }
  /// A text if the group is out of order, else empty. Cheap.
  std::string problem() const {
    const cco_status status = api().cco_group_check(handle_);
    return status == CCO_OK ? "" : failure(status, "group " + name_);
  }

  /// Collective, if the ranks' chunks have not met before. `window_name`: not used before.
  std::shared_ptr<Window> window_for(Chunk& chunk, const Meeting& meeting,
                                     const std::string& window_name);

 private:
  cco_status make_comm(uint32_t barrier_count, cco_comm** made) const {
    auto options = options_of<cco_comm_options>();
    options.barrier_count = barrier_count;
    options.gda_traffic_class = -1;
    return api().cco_comm_create(handle_, &options, made);
  }
  cco_window* register_window(const Chunk& chunk, const Meeting& meeting,
                              const std::string& window_name) const;

  const std::string name_;
  const int rank_;
  const int size_;
  const c10::Device device_;
  cco_group* handle_ = nullptr;
  cco_comm* comm_ = nullptr;
  std::mutex mutex_;  // Held while other ranks are waited for.
  std::map<std::string, cco_comm*> others_;
  uint64_t abort_word_ = 0;
};

/// Each rank's part of a chunk, mapped here.
class Window {
 public:
  Window(std::shared_ptr<Group> group, c10::Device device, cco_window* handle)
      : group_(std::move(group)), device_(device), handle_(handle) {}
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    // The group goes after its window.
    retire(device_, [handle = handle_, group = group_] { api().cco_window_destroy(handle); });
  }
  cco_window* handle() const { return handle_; }
  const Group* group() const { return group_.get(); }

 private:
  const std::shared_ptr<Group> group_;
  const c10::Device device_;
  cco_window* const handle_;
};

// Where tensors lie at one place in their chunks, as they do if all ranks make the same ones, later
// tensors share the window. Others get one of their own.
inline std::shared_ptr<Window> Group::window_for(Chunk& chunk, const Meeting& meeting,
                                                 const std::string& window_name) {
  // This object's address tells groups apart: a chunk's windows keep their groups.
  std::string key = std::to_string(reinterpret_cast<uintptr_t>(this));
  bool is_shared = true;
  for (size_t rank = 0; rank < meeting.records.size(); ++rank) {
    key += "/" + std::to_string(meeting.records[rank].chunk_id);
    is_shared = is_shared && meeting.begin_of(rank) == 0;
  }
  std::shared_ptr<Window> window = is_shared ? chunk.find_window(key) : nullptr;
  if (window != nullptr) return window;
  window = std::make_shared<Window>(shared_from_this(), device_,
                                    register_window(chunk, meeting, window_name));
  if (is_shared) chunk.keep_window(key, window);
  return window;
}

inline cco_window* Group::register_window(const Chunk& chunk, const Meeting& meeting,
                                          const std::string& window_name) const {
  auto options = options_of<cco_window_options>();
  options.size_bytes = ~uint64_t{0};
  for (size_t rank = 0; rank < meeting.records.size(); ++rank) {
    options.size_bytes =
        std::min(options.size_bytes, meeting.records[rank].chunk_bytes - meeting.begin_of(rank));
  }
  auto memory = options_of<cco_external_memory>();
  memory.fd = chunk.fd();
  memory.allocation_bytes = chunk.size_bytes();
  memory.allocation_offset = meeting.begin_of(static_cast<size_t>(rank_));
  cco_window* made = nullptr;
  cco_status status =
      api().cco_window_register(handle_, window_name.c_str(), &options, &memory, &made);
  const std::string why = status == CCO_OK ? "" : failure(status, "registering memory");
  // A rank that could not map it tells the others: all forget the window then.
  status = api().cco_group_agree(handle_, why.c_str(), 0);
  if (status == CCO_OK) return made;
  const std::string text = why.empty() ? failure(status, "rendezvous in group " + name_) : why;
  api().cco_window_destroy(made);
  TORCH_CHECK(false, text);
}

inline void Chunk::forget(const Group* group) {
  std::vector<std::shared_ptr<Window>> over;  // End outside of the lock.
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto one = windows_.begin(); one != windows_.end();) {
    const bool goes = one->second->group() == group;
    if (goes) over.push_back(std::move(one->second));
    one = goes ? windows_.erase(one) : std::next(one);
  }
}

}  // namespace cco_torch
