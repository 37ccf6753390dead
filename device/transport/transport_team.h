// What a communicator gives the transports that it is made with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/runtime/gpu_driver.h"
#include "device/transport/window_registry.h"

namespace cco {

/// Everything behind the pointers outlives the transport. Addresses are device addresses of this
/// process.
struct TransportTeam {
  GpuContext* context = nullptr;
  bool is_host = false;  ///< Device addresses are addresses of this CPU.
  uint32_t rank = 0;     ///< World.
  uint32_t size = 1;
  uint32_t lsa_rank = 0;
  uint32_t lsa_size = 1;
  uint32_t lsa_first = 0;
  /// The communicator's words in the control region (cco_device_comm.control), by world rank; 0:
  /// not on this node. Zeroed before any transport is made.
  std::vector<uint64_t> words;
  uint64_t words_generation = 0;  ///< Their window in `windows`.
  const WindowRegistry* windows = nullptr;
  /// For hardware queues; empty if not known. GpuDevice.arch of this rank, and GpuDevice.pci_bus_id
  /// by LSA rank.
  std::string arch = {};
  std::vector<std::string> pci_bus_ids = {};

  uint64_t own_words() const { return words[rank]; }
};

}  // namespace cco
