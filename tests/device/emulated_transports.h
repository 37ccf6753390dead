// Transports for the ranks of an EmulatedNode, as libcco_client makes them for a communicator.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/runtime/open_driver.h"
#include "device/transport/gda_provider.h"
#include "device/transport/sdma_provider.h"
#include "device/transport/soft_nic_provider.h"
#include "tests/device/emulated_node.h"

namespace cco::testing {

class EmulatedTransports {
 public:
  struct Options {
    EmulatedNode::Options node;  ///< transport_bytes is set here.
    std::string sdma;            ///< Provider; "": none.
    SdmaPlan sdma_plan;          ///< The offsets are set here.
    std::string gda;
    GdaPlan gda_plan;
    std::optional<NicSchedule> nic_schedule;  ///< With a NIC's format as `gda`.
  };

  explicit EmulatedTransports(Options options)
      : options_(sized(std::move(options))), node_(options_.node) {
    driver_ = or_throw(open_driver({.kind = DriverKind::kHost}));
    for (uint32_t rank = 0; rank < node_.options().ranks; ++rank) add_rank(rank);
  }

  EmulatedNode& node() { return node_; }
  /// The communicator with its transports.
  device::DeviceComm comm(uint32_t rank) const {
    device::DeviceComm comm = node_.comm(rank);
    const Rank& self = *ranks_[rank];
    if (self.sdma != nullptr) comm.sdma = self.sdma->device();
    if (self.gda != nullptr) comm.gda = self.gda->device();
    comm.transports |=
        (comm.sdma != 0 ? CCO_TRANSPORT_SDMA : 0) | (comm.gda != 0 ? CCO_TRANSPORT_GDA : 0);
    return comm;
  }
  SdmaProvider& sdma(uint32_t rank) { return *ranks_[rank]->sdma; }
  GdaProvider& gda(uint32_t rank) { return *ranks_[rank]->gda; }
  WindowRegistry& windows(uint32_t rank) { return ranks_[rank]->windows; }
  TransportTeam& team(uint32_t rank) { return ranks_[rank]->team; }
  /// Ends the threads behind a rank's transports, as the death of its process would.
  void stop(uint32_t rank) {
    ranks_[rank]->sdma.reset();
    ranks_[rank]->gda.reset();
  }

 private:
  struct Rank {
    std::unique_ptr<GpuContext> context;
    WindowRegistry windows;
    TransportTeam team;
    std::unique_ptr<SdmaProvider> sdma;  // Before what it uses.
    std::unique_ptr<GdaProvider> gda;
  };

  static uint64_t round_up(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

  static Options sized(Options options) {
    const uint32_t ranks = options.node.ranks;
    const uint32_t lsa_size =
        options.node.ranks_per_node == 0 ? ranks : options.node.ranks_per_node;
    uint64_t bytes = 0;
    const auto take = [&bytes](uint64_t size) {
      const uint64_t offset = bytes;
      bytes += round_up(size);
      return offset;
    };
    if (!options.sdma.empty()) {
      options.sdma_plan.signal_offset =
          take(sdma_signal_bytes(lsa_size, options.sdma_plan.queue_count));
      options.sdma_plan.state_offset =
          take(sdma_state_bytes(lsa_size, options.sdma_plan.queue_count));
    }
    if (!options.gda.empty()) {
      options.gda_plan.signal_offset = take(gda_signal_bytes(options.gda_plan, ranks, lsa_size));
      options.gda_plan.state_offset = take(gda_state_bytes(options.gda_plan, ranks, lsa_size));
    }
    options.node.transport_bytes = bytes;
    return options;
  }

  template <typename T>
  static T or_throw(absl::StatusOr<T> result) {
    if (!result.ok()) throw std::runtime_error(result.status().ToString());
    return *std::move(result);
  }

  void add_rank(uint32_t rank) {
    ranks_.push_back(std::make_unique<Rank>());
    Rank& self = *ranks_.back();
    self.context = or_throw(driver_->open(0));
    const absl::Status added[] = {self.windows.add({EmulatedNode::kWindowGeneration,
                                                    options_.node.window_bytes, node_.bases()}),
                                  self.windows.add({EmulatedNode::kWordsGeneration,
                                                    node_.control_bytes(), node_.control_bases()})};
    for (const absl::Status& status : added) {
      if (!status.ok()) throw std::runtime_error(status.ToString());
    }
    const device::DeviceComm comm = node_.comm(rank);
    self.team.context = self.context.get();
    self.team.is_host = true;
    self.team.rank = rank;
    self.team.size = node_.options().ranks;
    self.team.lsa_rank = comm.lsa_rank;
    self.team.lsa_size = comm.lsa_size;
    self.team.lsa_first = comm.lsa_first;
    self.team.words = node_.control_bases();
    self.team.words_generation = EmulatedNode::kWordsGeneration;
    self.team.windows = &self.windows;
    SdmaPlan sdma_plan = options_.sdma_plan;
    sdma_plan.signal_offset += node_.transport_offset();
    sdma_plan.state_offset += node_.transport_offset();
    if (!options_.sdma.empty()) {
      std::string passed_over;
      self.sdma = or_throw(open_sdma(options_.sdma, self.team, sdma_plan, &passed_over));
    }
    GdaPlan gda_plan = options_.gda_plan;
    gda_plan.signal_offset += node_.transport_offset();
    gda_plan.state_offset += node_.transport_offset();
    if (options_.gda.empty()) return;
    self.gda =
        or_throw(options_.nic_schedule.has_value()
                     ? open_soft_nic(options_.gda, self.team, gda_plan, *options_.nic_schedule)
                     : open_gda(options_.gda, self.team, gda_plan));
  }

  const Options options_;
  EmulatedNode node_;
  std::unique_ptr<GpuDriver> driver_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace cco::testing
