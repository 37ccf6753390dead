#include "device/transport/user_queue.h"

#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/engine_thread.h"
#include "device/transport/host_memory.h"

namespace cco {
namespace {

/// What the producers of one queue share; queues do not share cache lines.
struct alignas(64) ProducerWords {
  uint64_t reserved_index;
  uint64_t committed_index;
  uint64_t seen_index;
};

/// What producers and the software engine share, likewise.
struct alignas(64) EngineWords {
  uint64_t read_index;
  uint64_t write_index;
  uint64_t doorbell;
};

/// A rank's state: the device, the queues, the producers' words, how far copies have landed.
struct StateLayout {
  explicit StateLayout(uint64_t queue_count)
      : queues(sizeof(cco_sdma_device)),
        words(queues + queue_count * sizeof(cco_sdma_queue)),
        landed(words + queue_count * sizeof(ProducerWords)),
        bytes(landed + queue_count * sizeof(uint64_t)) {}
  uint64_t queues, words, landed, bytes;
};

bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

absl::Status check_options(const HostSdmaOptions& options) {
  const uint64_t largest = options.largest_copy;
  if (is_power_of_two(options.ring_bytes) && options.ring_bytes >= kSmallestSdmaRing &&
      largest != 0 && largest % device::impl::kSdmaUnitBytes == 0 &&
      largest <= device::impl::kSdmaLargestCopy &&
      (options.packets == CCO_SDMA_PACKETS_GFX9 || options.packets == CCO_SDMA_PACKETS_GFX1250)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "SDMA rings of %d bytes, copies of up to %d bytes, packets %d: a ring is a power of two from "
      "%d, a copy a multiple of %d up to %d, packets are 1 or 2",
      options.ring_bytes, largest, options.packets, kSmallestSdmaRing, device::impl::kSdmaUnitBytes,
      device::impl::kSdmaLargestCopy));
}

class HostSdma final : public SdmaProvider {
 public:
  HostSdma(HostMemory memory, std::unique_ptr<MemoryPort> port, const HostSdmaOptions& options,
           std::vector<SdmaRing> rings, const WindowRegistry* windows, uint64_t device)
      : memory_(std::move(memory)),
        port_(std::move(port)),
        ring_count_(rings.size()),
        ring_bytes_(options.ring_bytes),
        device_(device),
        engine_(
            options.packets, port_.get(), std::move(rings),
            [windows](uint64_t address, uint64_t bytes) {
              return windows->contains(address, bytes);
            },
            options.schedule) {}

  absl::Status start(const EnginePace& pace) {
    try {
      thread_ = std::make_unique<EngineThread>([this] { return engine_.step(); }, pace);
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("start the thread of a software copy engine: %s", error.what()));
    }
    return absl::OkStatus();
  }

  std::string_view name() const override { return "host"; }
  std::string describe() const override {
    return absl::StrFormat(
        "a copy engine in software, a thread of this process, for %d rings of "
        "%d bytes",
        ring_count_, ring_bytes_);
  }
  uint64_t device() const override { return device_; }
  absl::Status status() const override { return engine_.status(); }

 private:
  const HostMemory memory_;
  const std::unique_ptr<MemoryPort> port_;
  const uint64_t ring_count_;
  const uint64_t ring_bytes_;
  const uint64_t device_;
  SdmaEngine engine_;
  std::unique_ptr<EngineThread> thread_;  // Last: it uses the others.
};

}  // namespace

uint64_t sdma_signal_bytes(uint32_t lsa_size, uint32_t queue_count) {
  return uint64_t{lsa_size} * queue_count * sizeof(uint64_t);
}

uint64_t sdma_state_bytes(uint32_t lsa_size, uint32_t queue_count) {
  return StateLayout(uint64_t{lsa_size} * queue_count).bytes;
}

absl::StatusOr<uint64_t> write_user_queue_tables(const TransportTeam& team, const SdmaPlan& plan,
                                                 uint32_t packets, uint64_t largest_copy,
                                                 const std::vector<UserQueuePlaces>& queues) {
  const StateLayout layout(queues.size());
  const uint64_t address = team.own_words() + plan.state_offset;
  std::vector<uint8_t> state(layout.bytes);  // The words begin at zero.
  cco_sdma_device device{};
  device.abi_version = CCO_ABI_VERSION;
  device.provider = CCO_SDMA_USER_QUEUE;
  device.queue_count = plan.queue_count;
  device.packets = packets;
  device.queues = address + layout.queues;
  device.signal_offset = plan.signal_offset;
  device.landed = address + layout.landed;
  device.largest_copy = largest_copy;
  std::memcpy(state.data(), &device, sizeof device);
  for (size_t i = 0; i < queues.size(); ++i) {
    const UserQueuePlaces& places = queues[i];
    const uint64_t words = address + layout.words + i * sizeof(ProducerWords);
    const cco_sdma_queue queue = {
        .ring = places.ring,
        .ring_bytes = places.ring_bytes,
        .read_index = places.read_index,
        .write_index = places.write_index,
        .doorbell = places.doorbell,
        .reserved_index = words + offsetof(ProducerWords, reserved_index),
        .committed_index = words + offsetof(ProducerWords, committed_index),
        .seen_index = words + offsetof(ProducerWords, seen_index)};
    std::memcpy(state.data() + layout.queues + i * sizeof queue, &queue, sizeof queue);
  }
  CCO_RETURN_IF_ERROR(team.context->copy_to_device(address, state.data(), state.size()));
  return address;
}

absl::StatusOr<std::unique_ptr<SdmaProvider>> open_host_sdma(const TransportTeam& team,
                                                             const SdmaPlan& plan,
                                                             const HostSdmaOptions& options) {
  CCO_RETURN_IF_ERROR(check_options(options));
  const uint64_t count = uint64_t{team.lsa_size} * plan.queue_count;
  const uint64_t words_bytes = count * sizeof(EngineWords);
  // Rings first: they are page-aligned, as their size is a multiple of a page.
  const uint64_t rings_bytes = count * options.ring_bytes;
  CCO_ASSIGN_OR_RETURN(HostMemory memory,
                       HostMemory::allocate(team.context, rings_bytes + words_bytes));
  std::vector<SdmaRing> rings;
  std::vector<UserQueuePlaces> places;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t ring = i * options.ring_bytes;
    const uint64_t words = rings_bytes + i * sizeof(EngineWords);
    auto* const here = reinterpret_cast<EngineWords*>(memory.data() + words);
    rings.push_back(
        {reinterpret_cast<const uint32_t*>(memory.data() + ring), options.ring_bytes,
         &here->read_index, &here->write_index, &here->doorbell,
         absl::StrFormat("queue %d to LSA rank %d", i % plan.queue_count, i / plan.queue_count),
         static_cast<uint32_t>(team.lsa_first + i / plan.queue_count)});
    const uint64_t there = memory.address() + words;
    places.push_back({.ring = memory.address() + ring,
                      .ring_bytes = options.ring_bytes,
                      .read_index = there + offsetof(EngineWords, read_index),
                      .write_index = there + offsetof(EngineWords, write_index),
                      .doorbell = there + offsetof(EngineWords, doorbell)});
  }
  CCO_ASSIGN_OR_RETURN(
      std::unique_ptr<MemoryPort> port,
      open_memory_port(team.context, team.is_host, team.own_words() + plan.state_offset));
  CCO_ASSIGN_OR_RETURN(
      const uint64_t device,
      write_user_queue_tables(team, plan, options.packets, options.largest_copy, places));
  auto provider = std::make_unique<HostSdma>(std::move(memory), std::move(port), options,
                                             std::move(rings), team.windows, device);
  CCO_RETURN_IF_ERROR(provider->start(team.is_host ? kHostPace : kGpuPace));
  return provider;
}

}  // namespace cco
