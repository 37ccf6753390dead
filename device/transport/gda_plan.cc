#include "device/transport/gda_plan.h"

#include <bit>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco {
namespace {

constexpr uint32_t kMostWords = 65536;  // Signals, or counters.
constexpr uint32_t kMostBarriers = 1024;
constexpr uint32_t kLeastDepth = 16;
constexpr uint32_t kMostDepth = 32768;
constexpr uint64_t kPartAlignment = 256;

absl::Status check_at_most(const char* what, uint32_t value, uint32_t most) {
  if (value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("GDA: %s is %d, at most %d", what, value, most));
}

absl::Status check_queues(const GdaPlan& plan) {
  if (plan.context_count == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("GDA: context_count is 0, 1 to %d", CCO_GDA_MAX_CONTEXTS));
  }
  CCO_RETURN_IF_ERROR(check_at_most("context_count", plan.context_count, CCO_GDA_MAX_CONTEXTS));
  const uint32_t depth = plan.queue_depth;
  if (depth != 0 && (depth < kLeastDepth || depth > kMostDepth || !std::has_single_bit(depth))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("GDA: queue_depth is %d, a power of two from %d to %d, or 0", depth,
                        kLeastDepth, kMostDepth));
  }
  if (plan.traffic_class < -1 || plan.traffic_class > 255) {
    return absl::InvalidArgumentError(
        absl::StrFormat("GDA: traffic_class is %d, 0 to 255, or -1", plan.traffic_class));
  }
  return absl::OkStatus();
}

absl::Status check_connection(const GdaPlan& plan, const TransportTeam& team) {
  CCO_RETURN_IF_ERROR(check_at_most("connection", plan.connection, CCO_GDA_CONNECT_RAIL));
  const bool has_barriers = plan.rail_barrier_count != 0 || plan.world_barrier_count != 0;
  if (plan.connection == CCO_GDA_CONNECT_NONE && has_barriers) {
    return absl::InvalidArgumentError("GDA: barriers need connections, and the plan has none");
  }
  const bool by_node = plan.connection == CCO_GDA_CONNECT_CROSS_NODE ||
                       plan.connection == CCO_GDA_CONNECT_RAIL || has_barriers;
  if (by_node && team.size % team.lsa_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("GDA: %d ranks are not whole nodes of %d, which rail and cross-node "
                        "connections and barriers need",
                        team.size, team.lsa_size));
  }
  return absl::OkStatus();
}

absl::Status check_words(const GdaPlan& plan, const TransportTeam& team) {
  if (plan.signal_offset % kPartAlignment != 0 || plan.state_offset % kPartAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("GDA: its parts lie at %d and %d, not aligned to %d", plan.signal_offset,
                        plan.state_offset, kPartAlignment));
  }
  if (team.lsa_size == 0 || team.rank >= team.size || team.words.size() != team.size ||
      team.own_words() == 0) {
    return absl::InvalidArgumentError("GDA: the team lacks this rank's own words");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check_gda_plan(const GdaPlan& plan, const TransportTeam& team) {
  CCO_RETURN_IF_ERROR(check_words(plan, team));
  CCO_RETURN_IF_ERROR(check_queues(plan));
  CCO_RETURN_IF_ERROR(check_at_most("signal_count", plan.signal_count, kMostWords));
  CCO_RETURN_IF_ERROR(check_at_most("counter_count", plan.counter_count, kMostWords));
  CCO_RETURN_IF_ERROR(check_at_most("rail_barrier_count", plan.rail_barrier_count, kMostBarriers));
  CCO_RETURN_IF_ERROR(
      check_at_most("world_barrier_count", plan.world_barrier_count, kMostBarriers));
  return check_connection(plan, team);
}

}  // namespace cco
