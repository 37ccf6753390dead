#include "client/src/comm_layout.h"

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/transports.h"

namespace cco::client {
namespace {

constexpr uint64_t kSectionBytes = 256;
constexpr uint32_t kOptionalTransports = CCO_TRANSPORT_SDMA | CCO_TRANSPORT_GDA;
constexpr uint32_t kAlwaysThere = CCO_TRANSPORT_LSA | CCO_TRANSPORT_TDM;

absl::Status check_limit(const char* name, uint32_t value, uint32_t limit) {
  if (value <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d; the limit is %d", name, value, limit));
}

absl::StatusOr<std::string> provider_name(const char* asked, const char* variable) {
  if (asked != nullptr) return std::string(asked);
  const char* const set = std::getenv(variable);
  if (set == nullptr) return std::string();
  if (*set != '\0') return std::string(set);
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is set and empty; name a provider, or unset it", variable));
}

absl::StatusOr<GdaPlan> gda_plan(const cco_comm_options& options) {
  CCO_RETURN_IF_ERROR(check_limit("gda_signal_count", options.gda_signal_count, kMaxSignals));
  CCO_RETURN_IF_ERROR(check_limit("gda_counter_count", options.gda_counter_count, kMaxSignals));
  CCO_RETURN_IF_ERROR(check_limit("rail_barrier_count", options.rail_barrier_count, kMaxBarriers));
  CCO_RETURN_IF_ERROR(
      check_limit("world_barrier_count", options.world_barrier_count, kMaxBarriers));
  GdaPlan plan;
  if (options.gda_connection != 0) plan.connection = options.gda_connection;
  if (options.gda_context_count != 0) plan.context_count = options.gda_context_count;
  plan.signal_count = options.gda_signal_count;
  plan.counter_count = options.gda_counter_count;
  plan.queue_depth = options.gda_queue_depth;
  plan.traffic_class = options.gda_traffic_class;
  plan.rail_barrier_count = options.rail_barrier_count;
  plan.world_barrier_count = options.world_barrier_count;
  plan.world_barrier_first = options.barrier_count;
  return plan;
}

}  // namespace

absl::StatusOr<CommOptions> resolve_comm_options(const cco_comm_options& options) {
  CommOptions result;
  CCO_RETURN_IF_ERROR(check_limit("signal_count", options.signal_count, kMaxSignals));
  CCO_RETURN_IF_ERROR(check_limit("barrier_count", options.barrier_count, kMaxBarriers));
  result.signal_count = options.signal_count;
  result.barrier_count = options.barrier_count;
  CCO_ASSIGN_OR_RETURN(result.timeout, Client::collective_timeout(options.timeout_ms));
  if ((options.transports & ~(kOptionalTransports | kAlwaysThere)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("transports is %#x; it takes CCO_TRANSPORT_SDMA (%#x) and "
                        "CCO_TRANSPORT_GDA (%#x)",
                        options.transports, CCO_TRANSPORT_SDMA, CCO_TRANSPORT_GDA));
  }
  if ((options.transports & CCO_TRANSPORT_SDMA) != 0) {
    CCO_ASSIGN_OR_RETURN(result.sdma_provider,
                         provider_name(options.sdma_provider, "CCO_SDMA_PROVIDER"));
    CCO_RETURN_IF_ERROR(
        check_limit("sdma_queue_count", options.sdma_queue_count, CCO_SDMA_MAX_QUEUES));
    result.sdma.emplace();
    if (options.sdma_queue_count != 0) result.sdma->queue_count = options.sdma_queue_count;
  }
  if ((options.transports & CCO_TRANSPORT_GDA) != 0) {
    CCO_ASSIGN_OR_RETURN(result.gda_provider,
                         provider_name(options.gda_provider, "CCO_GDA_PROVIDER"));
    CCO_ASSIGN_OR_RETURN(result.gda, gda_plan(options));
  } else if (options.rail_barrier_count != 0 || options.world_barrier_count != 0) {
    return absl::InvalidArgumentError(
        "rail_barrier_count or world_barrier_count without CCO_TRANSPORT_GDA in transports: they "
        "cross nodes by GDA");
  }
  return result;
}

CommLayout lay_out(const Topology& topology, CommOptions* options) {
  CommLayout layout;
  uint64_t used = 0;
  const auto take = [&used](uint64_t bytes) {
    const uint64_t offset = used;
    used += (bytes + kSectionBytes - 1) / kSectionBytes * kSectionBytes;
    return offset;
  };
  const uint64_t barriers =
      options->barrier_count + (options->gda.has_value() ? options->gda->world_barrier_count : 0);
  layout.signal_offset = take(uint64_t{options->signal_count} * sizeof(uint64_t));
  layout.barrier_offset = take(barriers * (topology.lsa_size + 1) * sizeof(uint64_t));
  if (options->sdma.has_value()) {
    SdmaPlan& plan = *options->sdma;
    plan.signal_offset = take(sdma_signal_bytes(topology.lsa_size, plan.queue_count));
    plan.state_offset = take(sdma_state_bytes(topology.lsa_size, plan.queue_count));
  }
  if (options->gda.has_value()) {
    GdaPlan& plan = *options->gda;
    plan.signal_offset = take(gda_signal_bytes(plan, topology.size, topology.lsa_size));
    plan.state_offset = take(gda_state_bytes(plan, topology.size, topology.lsa_size));
  }
  if (options->sdma.has_value() || options->gda.has_value()) {
    layout.proof_offset = take(proof_bytes(topology.size));
  }
  layout.descriptor_offset = take(sizeof(cco_device_comm));
  layout.size_bytes = used;
  return layout;
}

uint64_t fingerprint(const CommOptions& options) {
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t value) { hash = hash * 65537 + value + 1; };
  mix(options.signal_count);
  mix(options.barrier_count);
  if (options.sdma.has_value()) mix(options.sdma->queue_count);
  if (options.gda.has_value()) {
    mix(options.gda->connection);
    mix(options.gda->context_count);
    mix(options.gda->signal_count);
    mix(options.gda->rail_barrier_count);
    mix(options.gda->world_barrier_count);
    for (const char letter : options.gda_provider) mix(static_cast<unsigned char>(letter));
  }
  return 1 + hash % 255;
}

}  // namespace cco::client
