#include "device/transport/gda_layout.h"

#include <algorithm>

namespace cco {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint32_t kDefaultQueueDepth = 1024;

}  // namespace

GdaLayout gda_layout(const GdaPlan& plan, uint32_t world_size, uint32_t lsa_size) {
  GdaLayout layout;
  layout.node_count = std::max(world_size / lsa_size, 1u);
  layout.rail_barrier_slots =
      plan.connection == CCO_GDA_CONNECT_RAIL ? layout.node_count : world_size;
  layout.signal_total = plan.signal_count + plan.rail_barrier_count * layout.rail_barrier_slots +
                        plan.world_barrier_count * layout.node_count;
  uint64_t next = plan.state_offset;
  const auto take = [&next](uint64_t count, uint64_t size) {
    const uint64_t offset = next;
    next += (count * size + kLineBytes - 1) / kLineBytes * kLineBytes;
    return offset;
  };
  const uint64_t queues = uint64_t{world_size} * plan.context_count;
  layout.device_offset = take(1, sizeof(cco_gda_device));
  layout.shadow_offset = take(layout.signal_total, sizeof(uint64_t));
  layout.counter_offset = take(plan.counter_count, sizeof(uint64_t));
  layout.epoch_offset =
      take(uint64_t{plan.rail_barrier_count} + plan.world_barrier_count, sizeof(uint64_t));
  layout.ring_offset = take(plan.context_count, sizeof(cco_work_ring));
  layout.ring_words_offset = take(plan.context_count, sizeof(WorkRingWords));
  layout.queue_offset = take(queues, sizeof(cco_gda_queue));
  layout.queue_state_offset = take(queues, sizeof(cco_gda_queue_state));
  layout.sink_offset = take(queues, sizeof(uint64_t));
  layout.end_offset = next;
  return layout;
}

uint64_t gda_signal_bytes(const GdaPlan& plan, uint32_t world_size, uint32_t lsa_size) {
  // The proxy's signals have a slot for each sender.
  return sizeof(uint64_t) * gda_layout(plan, world_size, lsa_size).signal_total * world_size;
}

uint64_t gda_state_bytes(const GdaPlan& plan, uint32_t world_size, uint32_t lsa_size) {
  return gda_layout(plan, world_size, lsa_size).end_offset - plan.state_offset;
}

cco_gda_device gda_device_struct(const GdaPlan& plan, const TransportTeam& team, uint32_t provider,
                                 uint32_t signal_slots) {
  const GdaLayout layout = gda_layout(plan, team.size, team.lsa_size);
  const uint32_t rail_signals = plan.rail_barrier_count * layout.rail_barrier_slots;
  cco_gda_device device{};
  device.abi_version = CCO_ABI_VERSION;
  device.provider = provider;
  device.connection = plan.connection;
  device.context_count = plan.context_count;
  device.node_count = layout.node_count;
  device.signal_count = plan.signal_count;
  device.signal_slots = signal_slots;
  device.counter_count = plan.counter_count;
  device.rail_barrier_count = plan.rail_barrier_count;
  device.rail_signal_first = plan.signal_count;
  device.world_barrier_count = plan.world_barrier_count;
  device.world_signal_first = plan.signal_count + rail_signals;
  device.world_barrier_first = plan.world_barrier_first;
  device.rail_barrier_slots = layout.rail_barrier_slots;
  const bool proxy = provider == CCO_GDA_PROXY;
  device.queues = proxy ? 0 : team.own_words() + layout.queue_offset;
  device.rings = proxy ? team.own_words() + layout.ring_offset : 0;
  device.signal_offset = plan.signal_offset;
  device.shadow_offset = layout.shadow_offset;
  device.counter_offset = layout.counter_offset;
  device.epoch_offset = layout.epoch_offset;
  return device;
}

bool gda_connects(const GdaPlan& plan, const TransportTeam& team, uint32_t peer) {
  if (peer >= team.size) return false;
  const bool other_node = peer - team.lsa_first >= team.lsa_size;  // Below lsa_first it wraps.
  switch (plan.connection) {
    case CCO_GDA_CONNECT_FULL:
      return true;
    case CCO_GDA_CONNECT_CROSS_NODE:
      return other_node;
    case CCO_GDA_CONNECT_RAIL:
      return other_node && peer % team.lsa_size == team.rank % team.lsa_size;
    default:
      return false;
  }
}

uint32_t gda_queue_depth(const GdaPlan& plan) {
  return plan.queue_depth != 0 ? plan.queue_depth : kDefaultQueueDepth;
}

}  // namespace cco
