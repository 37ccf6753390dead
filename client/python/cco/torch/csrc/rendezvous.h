// How the ranks of a torch group meet: each tells all others, through torch's store, where its part
// of a tensor is.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "group.h"

namespace cco_torch {

/// One torch group. Thread safe.
class Rendezvous {
 public:
  Rendezvous(std::string name, const TorchGroup& torch)
      : name_(std::move(name)), rank_(torch.rank), size_(torch.size), store_(torch.store) {}

  /// Whether this is still what torch means by the name.
  bool is_of(const TorchGroup& torch) const {
    return store_.lock().get() == torch.store.get() && rank_ == torch.rank && size_ == torch.size;
  }
  /// torch has destroyed the group.
  bool is_over() const { return store_.expired(); }
  const std::string& name() const { return name_; }

  struct Met {
    Meeting meeting;
    std::shared_ptr<Group> group;
    std::shared_ptr<Window> window;
  };
  /// Collective: the blocks of all ranks become one symmetric tensor.
  Met meet(const Block& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Met met{Meeting(exchange(describe(block))), nullptr, nullptr};
    check_agreement(met.meeting.records);
    std::string devices;
    for (const Record& record : met.meeting.records) devices += std::to_string(record.device) + ",";
    std::shared_ptr<Group>& group = groups_[devices];
    if (group == nullptr) {
      group = std::make_shared<Group>(name_, rank_, size_, block.chunk->device(),
                                      met.meeting.records[0].unique_id);
    }
    met.group = group;
    met.window = group->window_for(*block.chunk, met.meeting, "torch-" + std::to_string(turn_));
    return met;
  }

  std::vector<std::shared_ptr<Group>> groups() {
    std::vector<std::shared_ptr<Group>> all;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& one : groups_) all.push_back(one.second);
    return all;
  }

 private:
  Record describe(const Block& block) const {
    Record record{};
    const c10::Device device = block.chunk->device();
    try {
      record.incarnation = Node::get(device.type()).incarnation();
    } catch (const std::exception& error) {
      std::snprintf(record.problem, sizeof record.problem, "%s", error.what());
    }
    if (rank_ == 0) check(api().cco_unique_id_create(&record.unique_id), "making a unique id");
    record.device = device.is_cpu() ? -1 : device.index();
    record.global_rank = rank_;
    try {
      record.global_rank = c10d::resolve_process_group("0")->getRank();
    } catch (const c10::Error&) {
      // No world: ranks are counted within this group.
    }
    record.chunk_id = block.chunk->id();
    record.chunk_bytes = block.chunk->size_bytes();
    record.offset = static_cast<uint64_t>(block.address - block.chunk->base());
    record.size_bytes = block.size_bytes;
    record.pad_bytes = block.pad_bytes;
    return record;
  }

  std::string key_for(uint64_t turn, const std::string& what) const {
    return "cco/" + name_ + "/" + std::to_string(turn) + "/" + what;
  }
  std::string key_for(uint64_t turn, int rank) const { return key_for(turn, std::to_string(rank)); }

  // Counted within the group, so that what ranks do in other groups does not matter.
  std::vector<Record> exchange(const Record& own) {
    const auto store = store_.lock();
    TORCH_CHECK(store, "cco.torch: the process group ", name_, " has been destroyed");
    const uint64_t turn = turn_++;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&own);
    store->set(key_for(turn, rank_), std::vector<uint8_t>(bytes, bytes + sizeof own));
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_; ++rank) keys.push_back(key_for(turn, rank));
    std::vector<Record> records(static_cast<size_t>(size_));
    try {
      std::vector<std::vector<uint8_t>> values;
      if (store->hasExtendedApi()) {
        values = store->multiGet(keys);
      } else {
        for (const std::string& key : keys) values.push_back(store->get(key));
      }
      for (size_t rank = 0; rank < values.size(); ++rank) {
        TORCH_CHECK(values[rank].size() == sizeof(Record), "rank ", rank, " sent ",
                    values[rank].size(), " bytes instead of ", sizeof(Record),
                    ": the ranks run different releases of cco.torch");
        std::memcpy(&records[rank], values[rank].data(), sizeof(Record));
      }
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "cco.torch: rendezvous ", turn, " of group ", name_, ", rank ", rank_,
                  " of ", size_, ": ", missing(*store, keys), error.what());
    }
    // A store outlives process groups: the next of this name begins at turn 0 again, and must not
    // find anything. The last to have read all takes it away.
    const std::string readers = key_for(turn, "readers");
    if (store->add(readers, 1) == size_) {
      keys.push_back(readers);
      for (const std::string& key : keys) store->deleteKey(key);
    }
    return records;
  }

  static std::string missing(c10d::Store& store, const std::vector<std::string>& keys) {
    std::string text;
    for (size_t rank = 0; rank < keys.size(); ++rank) {
      try {
        if (!store.check({keys[rank]})) text += (text.empty() ? "" : ", ") + std::to_string(rank);
      } catch (const std::exception&) {
        return "the store of the process group does not answer: ";
      }
    }
    return text.empty() ? "" : "these ranks have not come: " + text + ": ";
  }

  // The same on all ranks, from the same records.
  void check_agreement(const std::vector<Record>& records) const {
    const Record& first = records[0];
    for (size_t rank = 0; rank < records.size(); ++rank) {
      TORCH_CHECK(records[rank].problem[0] == '\0', "cco.torch: rank ", rank, " of group ", name_,
                  " cannot rendezvous: ", records[rank].problem);
    }
    for (size_t rank = 0; rank < records.size(); ++rank) {
      const Record& one = records[rank];
      TORCH_CHECK(one.incarnation == first.incarnation, "cco.torch: rank ", rank, " of group ",
                  name_,
                  " uses another cco-memd than rank 0: is it on another host? Symmetric "
                  "memory of torch is for the ranks of one node");
      TORCH_CHECK((one.device < 0) == (first.device < 0), "cco.torch: rank ", rank, " of group ",
                  name_, " brings a tensor on another kind of device than rank 0");
      TORCH_CHECK(one.size_bytes == first.size_bytes && one.pad_bytes == first.pad_bytes,
                  "cco.torch: rank ", rank, " of group ", name_, " brings a tensor of ",
                  one.size_bytes, " bytes (signal pad ", one.pad_bytes, "), rank 0 one of ",
                  first.size_bytes, " (", first.pad_bytes,
                  "). Symmetric tensors are of one size, and all ranks rendezvous in one order");
    }
  }

  const std::string name_;
  const int rank_;
  const int size_;
  // Weak: the store's server, and its port, are torch's to end.
  const c10::weak_intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;  // One rendezvous at a time; held while other ranks are waited for.
  uint64_t turn_ = 0;
  // By the ranks' devices: a rank may bring tensors of one and of another.
  std::map<std::string, std::shared_ptr<Group>> groups_;
};

/// By torch's names.
class Rendezvouses {
 public:
  static Rendezvouses& get() {
    static Rendezvouses& all = *new Rendezvouses;
    return all;
  }

  std::shared_ptr<Rendezvous> find(const std::string& name) {
    sweep();
    const TorchGroup torch = TorchGroup::find(name);
    std::shared_ptr<Rendezvous> old;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::shared_ptr<Rendezvous>& one = all_[name];
      if (one != nullptr && one->is_of(torch)) return one;
      old = std::exchange(one, std::make_shared<Rendezvous>(name, torch));
    }
    forget(old);
    return find(name);
  }

  /// Lets go of the groups that torch has destroyed: what is in use by handles ends with those.
  void sweep() {
    std::vector<std::shared_ptr<Rendezvous>> over;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto one = all_.begin(); one != all_.end();) {
        const bool goes = one->second->is_over();
        if (goes) over.push_back(std::move(one->second));
        one = goes ? all_.erase(one) : std::next(one);
      }
    }
    for (const std::shared_ptr<Rendezvous>& one : over) forget(one);
  }

  size_t count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return all_.size();
  }

 private:
  static void forget(const std::shared_ptr<Rendezvous>& one) {
    if (one == nullptr) return;
    Pool::get().forget(one.get());
    for (const std::shared_ptr<Group>& group : one->groups()) {
      for (const std::shared_ptr<Chunk>& chunk : Pool::get().chunks()) chunk->forget(group.get());
    }
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Rendezvous>> all_;
};

}  // namespace cco_torch
