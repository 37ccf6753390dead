// The memory of one node's LSA team, as a client lays it out, in this process: slots at a 4 GiB
// stride.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cco/device.hpp"
#include "cco/device/host_launch.h"
#include "device/transport/window_registry.h"

namespace cco::testing {

class EmulatedNode {
 public:
  struct Options {
    uint32_t ranks = 2;
    uint64_t window_bytes = 4096;
    uint32_t signal_count = 16;
    uint32_t barrier_count = 4;
    uint32_t lsa_first = 0;  ///< World rank of LSA rank 0.
    bool by_table = false;   ///< Windows are found through peer_bases instead of the stride.
    /// The ranks are this many each on nodes of their own, which loads and stores do not cross; 0:
    /// all on one. Divides `ranks`; excludes lsa_first.
    uint32_t ranks_per_node = 0;
    uint64_t transport_bytes = 0;  ///< Room for transports among a communicator's words.
  };
  static constexpr uint64_t kWindowGeneration = 1;
  static constexpr uint64_t kWordsGeneration = 2;

  explicit EmulatedNode(const Options& options)
      : options_(options), control_bytes_(control_bytes_for(options)) {
    void* const base = mmap(nullptr, options.ranks * kSlotBytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("no address space for the emulated slots");
    base_ = static_cast<char*>(base);
    for (uint32_t rank = 0; rank < options.ranks; ++rank) {
      if (mprotect(slot(rank), control_bytes_ + options.window_bytes, PROT_READ | PROT_WRITE) !=
          0) {
        throw std::runtime_error("no memory for the emulated slots");
      }
      bases_.push_back(reinterpret_cast<uint64_t>(slot(rank)) + control_bytes_);
      control_bases_.push_back(reinterpret_cast<uint64_t>(slot(rank)));
      window_keys_.push_back(window_key(kWindowGeneration));
      words_keys_.push_back(window_key(kWordsGeneration));
    }
  }
  ~EmulatedNode() { munmap(base_, options_.ranks * kSlotBytes); }
  EmulatedNode(const EmulatedNode&) = delete;
  EmulatedNode& operator=(const EmulatedNode&) = delete;

  device::Window window(uint32_t rank) const {
    return make_window(rank, bases_, options_.window_bytes, kWindowGeneration);
  }

  device::DeviceComm comm(uint32_t rank) const {
    device::DeviceComm comm{};
    comm.abi_version = CCO_ABI_VERSION;
    comm.transports = CCO_TRANSPORT_LSA;
    comm.rank = options_.lsa_first + rank;
    comm.world_size = options_.lsa_first + options_.ranks;
    comm.lsa_rank = rank % lsa_size();
    comm.lsa_size = lsa_size();
    comm.lsa_first = options_.lsa_first + first_of_node(rank);
    comm.signal_count = options_.signal_count;
    comm.barrier_count = options_.barrier_count;
    comm.clock_khz = 1000000;
    comm.flat_base = reinterpret_cast<uint64_t>(slot(first_of_node(rank)));
    comm.slot_bytes = kSlotBytes;
    comm.barrier_offset = 8 * uint64_t{options_.signal_count};
    comm.abort_word = reinterpret_cast<uint64_t>(&abort_word_);
    comm.generation = kWordsGeneration;
    comm.control = make_window(rank, control_bases_, control_bytes_, kWordsGeneration);
    return comm;
  }

  const Options& options() const { return options_; }
  uint32_t lsa_size() const {
    return options_.ranks_per_node == 0 ? options_.ranks : options_.ranks_per_node;
  }
  /// Where the transports' room begins, in the communicator's words.
  uint64_t transport_offset() const {
    return control_bytes_ - (options_.transport_bytes + 4095) / 4096 * 4096;
  }
  uint64_t control_bytes() const { return control_bytes_; }
  const std::vector<uint64_t>& bases() const { return bases_; }
  const std::vector<uint64_t>& control_bases() const { return control_bases_; }

  /// This rank's copy of the window.
  char* data(uint32_t rank) const { return slot(rank) + control_bytes_; }

  void abort(uint32_t reason, uint32_t world_rank) {
    __atomic_store_n(&abort_word_, CCO_ABORT_WORD(reason, world_rank), __ATOMIC_RELEASE);
  }

  /// Runs `body(rank)` as a kernel of this shape on all ranks at once.
  void run(uint32_t blocks, uint32_t threads,
           const std::function<void(uint32_t rank)>& body) const {
    std::vector<std::thread> launches;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      launches.emplace_back([&, rank] { run_on(rank, blocks, threads, body); });
    }
    for (std::thread& launch : launches) launch.join();
  }

  static void run_on(uint32_t rank, uint32_t blocks, uint32_t threads,
                     const std::function<void(uint32_t rank)>& body) {
    const void* arguments[] = {&body, &rank};
    device::launch_on_host(
        {blocks, threads, 0},
        [](void** a) {
          (*static_cast<const std::function<void(uint32_t)>*>(a[0]))(*static_cast<uint32_t*>(a[1]));
        },
        const_cast<void**>(arguments));
  }

 private:
  static constexpr uint64_t kSlotBytes = uint64_t{1} << 32;

  static uint64_t control_bytes_for(const Options& options) {
    const uint64_t words =
        options.signal_count + uint64_t{options.barrier_count} * (options.ranks + 1);
    return (8 * words + 4095) / 4096 * 4096 + (options.transport_bytes + 4095) / 4096 * 4096;
  }
  uint32_t first_of_node(uint32_t rank) const { return rank / lsa_size() * lsa_size(); }
  char* slot(uint32_t rank) const { return base_ + rank * kSlotBytes; }

  device::Window make_window(uint32_t rank, const std::vector<uint64_t>& bases, uint64_t size_bytes,
                             uint64_t generation) const {
    const uint32_t first = first_of_node(rank);
    device::Window window{};
    window.abi_version = CCO_ABI_VERSION;
    window.transports = CCO_TRANSPORT_LSA;
    window.win_base = options_.by_table ? 0 : bases[first];
    window.stride_4g = options_.by_table ? 0 : 1;
    window.lsa_rank = rank - first;
    window.lsa_size = lsa_size();
    window.size_bytes = size_bytes;
    window.generation = generation;
    window.peer_bases = reinterpret_cast<uint64_t>(bases.data() + first);
    const std::vector<uint32_t>& keys =
        generation == kWindowGeneration ? window_keys_ : words_keys_;
    window.remote_keys = reinterpret_cast<uint64_t>(keys.data());
    window.local_key = keys[0];
    return window;
  }

  const Options options_;
  const uint64_t control_bytes_;
  char* base_ = nullptr;
  std::vector<uint64_t> bases_;
  std::vector<uint64_t> control_bases_;
  std::vector<uint32_t> window_keys_;  // By world rank.
  std::vector<uint32_t> words_keys_;
  uint64_t abort_word_ = 0;
};

constexpr uint64_t kLongNs = 60'000'000'000;  ///< Ends a broken test, never a working one.

}  // namespace cco::testing
