#include "device/transport/soft_nic_provider.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "device/transport/engine_thread.h"
#include "device/transport/gda_layout.h"
#include "device/transport/gda_plan.h"
#include "device/transport/host_memory.h"
#include "device/transport/nic_format.h"
#include "device/transport/soft_nic.h"

namespace cco {
namespace {

constexpr uint32_t kFirstQpn = 0x100;
constexpr uint32_t kMtuBytes = 4096;
constexpr uint64_t kLineBytes = 64;
// Positions in bnxt's tables have 16 bits, and an operation takes three slots.
constexpr uint32_t kBnxtMostOperations = 16384;
constexpr uint32_t kBnxtSlotsPerOperation = 3;

struct Kind {
  std::string_view name;
  uint32_t provider;
  const NicFormat& (*format)();
};
constexpr Kind kKinds[] = {{"mlx5", CCO_GDA_MLX5, nic_mlx5},
                           {"bnxt", CCO_GDA_BNXT, nic_bnxt},
                           {"ionic", CCO_GDA_IONIC, nic_ionic}};

const char* describe_connection(uint32_t connection) {
  switch (connection) {
    case CCO_GDA_CONNECT_FULL:
      return "every rank";
    case CCO_GDA_CONNECT_CROSS_NODE:
      return "ranks of other nodes";
    case CCO_GDA_CONNECT_RAIL:
      return "ranks of its rail";
    default:
      return "nobody";
  }
}

// Where one queue's parts lie in the host memory of its rank; each on lines of its own.
struct QueuePlaces {
  uint64_t sq = 0;
  uint64_t msn_table = 0;
  uint64_t cq = 0;
  uint64_t doorbell_record = 0;
  uint64_t doorbell = 0;
  uint64_t error = 0;
  uint64_t end = 0;

  QueuePlaces(const NicFormat& format, uint32_t depth_units) {
    const auto take = [this](uint64_t bytes) {
      const uint64_t place = end;
      end += (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
      return place;
    };
    sq = take(uint64_t{depth_units} * format.unit_bytes());
    msn_table = take(format.msn_depth(depth_units) * sizeof(uint64_t));
    cq = take(kLineBytes);
    doorbell_record = take(2 * sizeof(uint32_t));
    doorbell = take(sizeof(uint64_t));
    error = take(sizeof(uint64_t));
  }
};

class SoftNicProvider final : public GdaProvider {
 public:
  SoftNicProvider(const Kind& kind, const TransportTeam& team, const GdaPlan& plan,
                  const NicSchedule& schedule)
      : kind_(kind),
        format_(kind.format()),
        team_(team),
        plan_(plan),
        schedule_(schedule),
        layout_(gda_layout(plan, team.size, team.lsa_size)),
        depth_units_(format_.depth_units(gda_queue_depth(plan))),
        places_(format_, depth_units_) {}

  absl::Status start();

  std::string_view name() const override { return kind_.name; }
  std::string describe() const override;
  uint64_t device() const override { return team_.own_words() + layout_.device_offset; }
  absl::Status status() const override { return nic_->status(); }

 private:
  NicQueue nic_queue(uint32_t peer, uint32_t index, uint64_t place) const;
  cco_gda_queue kernel_queue(const NicQueue& queue, uint32_t index, uint64_t place) const;
  absl::Status publish(const std::vector<cco_gda_queue>& queues) const;

  const Kind& kind_;
  const NicFormat& format_;
  const TransportTeam team_;
  const GdaPlan plan_;
  const NicSchedule schedule_;
  const GdaLayout layout_;
  const uint32_t depth_units_;
  const QueuePlaces places_;
  std::vector<uint32_t> unreachable_;  ///< Meant to be connected, but not on this node.
  uint32_t connected_ = 0;
  HostMemory memory_;
  std::unique_ptr<MemoryPort> port_;
  std::unique_ptr<SoftNic> nic_;
  std::optional<EngineThread> thread_;  // Last: it uses the others.
};

absl::Status SoftNicProvider::start() {
  std::vector<uint32_t> peers;
  for (uint32_t peer = 0; peer < team_.size; ++peer) {
    if (!gda_connects(plan_, team_, peer)) continue;
    (team_.words[peer] != 0 ? peers : unreachable_).push_back(peer);
  }
  connected_ = static_cast<uint32_t>(peers.size());
  const uint64_t count = uint64_t{connected_} * plan_.context_count;
  if (count != 0) {
    CCO_ASSIGN_OR_RETURN(memory_, HostMemory::allocate(team_.context, count * places_.end));
  }
  CCO_ASSIGN_OR_RETURN(port_, open_memory_port(team_.context, team_.is_host,
                                               team_.own_words() + plan_.state_offset));

  std::vector<NicQueue> nic_queues;
  std::vector<cco_gda_queue> kernel_queues(uint64_t{team_.size} * plan_.context_count);
  for (const uint32_t peer : peers) {
    for (uint32_t context = 0; context < plan_.context_count; ++context) {
      const uint32_t index = peer * plan_.context_count + context;
      const uint64_t place = nic_queues.size() * places_.end;
      nic_queues.push_back(nic_queue(peer, index, place));
      format_.reset_completion(nic_queues.back());
      kernel_queues[index] = kernel_queue(nic_queues.back(), index, place);
    }
  }
  CCO_RETURN_IF_ERROR(publish(kernel_queues));
  const SoftNic::Options options{&format_, team_.rank, port_.get(), team_.windows, schedule_};
  nic_ = std::make_unique<SoftNic>(options, std::move(nic_queues));
  thread_.emplace([nic = nic_.get()] { return nic->step(); }, team_.is_host ? kHostPace : kGpuPace);
  return absl::OkStatus();
}

NicQueue SoftNicProvider::nic_queue(uint32_t peer, uint32_t index, uint64_t place) const {
  auto* const base = reinterpret_cast<uint8_t*>(memory_.data()) + place;
  NicQueue queue;
  queue.qpn = kFirstQpn + index;
  queue.peer = peer;
  queue.depth_units = depth_units_;
  queue.mtu_bytes = kMtuBytes;
  queue.sq = base + places_.sq;
  queue.cq = base + places_.cq;
  queue.doorbell = reinterpret_cast<const uint64_t*>(base + places_.doorbell);
  queue.doorbell_record = reinterpret_cast<const uint32_t*>(base + places_.doorbell_record);
  queue.msn_table = base + places_.msn_table;
  queue.msn_depth = format_.msn_depth(depth_units_);
  queue.consumed_units = schedule_.first_index;
  const bool is_bnxt = kind_.provider == CCO_GDA_BNXT;
  queue.operations = schedule_.first_index / (is_bnxt ? kBnxtSlotsPerOperation : 1);
  return queue;
}

cco_gda_queue SoftNicProvider::kernel_queue(const NicQueue& queue, uint32_t index,
                                            uint64_t place) const {
  const uint64_t base = memory_.address() + place;
  cco_gda_queue kernel{};
  kernel.qpn = queue.qpn;
  kernel.sq_depth = depth_units_;
  kernel.sq = base + places_.sq;
  kernel.cq = base + places_.cq;
  kernel.cq_depth = 1;
  kernel.mtu_bytes = queue.mtu_bytes;
  kernel.doorbell_record = kind_.provider == CCO_GDA_MLX5 ? base + places_.doorbell_record : 0;
  kernel.doorbell = base + places_.doorbell;
  kernel.msn_table = queue.msn_depth != 0 ? base + places_.msn_table : 0;
  kernel.msn_depth = queue.msn_depth;
  kernel.peer = queue.peer;
  kernel.state =
      team_.own_words() + layout_.queue_state_offset + index * sizeof(cco_gda_queue_state);
  kernel.sink = layout_.sink_offset + index * sizeof(uint64_t);
  kernel.sink_key = window_key(team_.words_generation);
  kernel.max_message_bytes = schedule_.max_message_bytes;
  kernel.error = base + places_.error;
  return kernel;
}

absl::Status SoftNicProvider::publish(const std::vector<cco_gda_queue>& queues) const {
  const cco_gda_device device = gda_device_struct(plan_, team_, kind_.provider, 1);
  GpuContext& context = *team_.context;
  if (schedule_.first_index != 0) {
    cco_gda_queue_state state{};
    state.reserved = state.rung = state.completed = state.covered = schedule_.first_index;
    const std::vector<cco_gda_queue_state> states(queues.size(), state);
    CCO_RETURN_IF_ERROR(context.copy_to_device(team_.own_words() + layout_.queue_state_offset,
                                               states.data(), states.size() * sizeof state));
  }
  CCO_RETURN_IF_ERROR(context.copy_to_device(team_.own_words() + layout_.queue_offset,
                                             queues.data(), queues.size() * sizeof queues[0]));
  return context.copy_to_device(this->device(), &device, sizeof device);
}

std::string SoftNicProvider::describe() const {
  std::string text = absl::StrFormat(
      "software NIC in the format of %s: a CPU thread of this process serves %d contexts of %d "
      "operations to each of %d ranks (%s), messages up to %d bytes",
      std::string(kind_.name), plan_.context_count, gda_queue_depth(plan_), connected_,
      describe_connection(plan_.connection), schedule_.max_message_bytes);
  if (plan_.traffic_class >= 0) {
    text += absl::StrFormat(", traffic class %d", plan_.traffic_class);
  }
  if (!unreachable_.empty()) {
    text += absl::StrFormat("; not connected, for they are not on this node: ranks %s",
                            absl::StrJoin(unreachable_, ", "));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GdaProvider>> open_soft_nic(std::string_view kind,
                                                           const TransportTeam& team,
                                                           const GdaPlan& plan,
                                                           const NicSchedule& schedule) {
  CCO_RETURN_IF_ERROR(check_gda_plan(plan, team));
  for (const Kind& known : kKinds) {
    if (known.name != kind) continue;
    if (known.provider == CCO_GDA_BNXT && gda_queue_depth(plan) > kBnxtMostOperations) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "GDA: queue_depth is %d, with bnxt at most %d", plan.queue_depth, kBnxtMostOperations));
    }
    auto provider = std::make_unique<SoftNicProvider>(known, team, plan, schedule);
    CCO_RETURN_IF_ERROR(provider->start());
    return std::unique_ptr<GdaProvider>(std::move(provider));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("no NIC format '%s': mlx5, bnxt, ionic", std::string(kind)));
}

}  // namespace cco
