#include "device/transport/gda_proxy.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/gda_layout.h"
#include "device/transport/peer_status.h"
#include "device/transport/work_engine.h"

namespace cco {
namespace {

WorkMeaning meaning_of(const TransportTeam& team, const GdaPlan& plan) {
  WorkMeaning meaning;
  meaning.world_rank = [team, plan](uint32_t peer) -> std::optional<uint32_t> {
    if (!gda_connects(plan, team, peer)) return std::nullopt;
    return peer;
  };
  meaning.signal_offset = [first = plan.signal_offset, slots = uint64_t{team.size},
                           slot = team.rank,
                           total = gda_layout(plan, team.size, team.lsa_size).signal_total](
                              uint32_t, uint64_t index) -> std::optional<uint64_t> {
    if (index >= total) return std::nullopt;
    return first + (index * slots + slot) * sizeof(uint64_t);
  };
  return meaning;
}

class GdaProxy final : public GdaProvider {
 public:
  GdaProxy(uint64_t device, uint32_t depth, uint32_t reached, std::unique_ptr<WorkEngine> engine)
      : device_(device), depth_(depth), reached_(reached), engine_(std::move(engine)) {}

  std::string_view name() const override { return "proxy"; }
  std::string describe() const override {
    return absl::StrFormat(
        "copies issued by a thread of this process for %d rings of %d items; %d ranks are reached",
        engine_->rings().size(), depth_, reached_);
  }
  uint64_t device() const override { return device_; }

  absl::Status status() const override {
    const WorkConsumer::Failure failure = engine_->failure();
    if (failure.reason == 0) return absl::OkStatus();
    return about_peer(absl::InternalError(absl::StrFormat(
                          "proxy: an item of context %d for rank %d: %s", failure.ring,
                          failure.peer, describe_work_error(failure.reason))),
                      failure.peer);
  }
  void restart_signals() override { engine_->restart_signals(); }

 private:
  const uint64_t device_;
  const uint32_t depth_;
  const uint32_t reached_;
  const std::unique_ptr<WorkEngine> engine_;
};

uint32_t count_reached(const TransportTeam& team, const GdaPlan& plan) {
  uint32_t reached = 0;
  for (uint32_t peer = 0; peer < team.size; ++peer) {
    if (team.words[peer] != 0 && gda_connects(plan, team, peer)) ++reached;
  }
  return reached;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GdaProvider>> open_gda_proxy(const TransportTeam& team,
                                                            const GdaPlan& plan) {
  const uint32_t depth = gda_queue_depth(plan);
  // One stream: contexts raise the same signals.
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<WorkEngine> engine,
                       WorkEngine::start(team, meaning_of(team, plan),
                                         {.ring_count = plan.context_count,
                                          .depth = depth,
                                          .stream_count = 1,
                                          .scratch = team.own_words() + plan.state_offset}));
  const GdaLayout layout = gda_layout(plan, team.size, team.lsa_size);
  const uint64_t own = team.own_words();
  std::vector<cco_work_ring> rings;
  for (uint32_t context = 0; context < plan.context_count; ++context) {
    const uint64_t words = own + layout.ring_words_offset + context * sizeof(WorkRingWords);
    rings.push_back(engine->rings()[context].device(words));
  }
  CCO_RETURN_IF_ERROR(team.context->copy_to_device(own + layout.ring_offset, rings.data(),
                                                   rings.size() * sizeof(cco_work_ring)));
  const cco_gda_device device = gda_device_struct(plan, team, CCO_GDA_PROXY, team.size);
  CCO_RETURN_IF_ERROR(
      team.context->copy_to_device(own + layout.device_offset, &device, sizeof device));
  return std::make_unique<GdaProxy>(own + layout.device_offset, depth, count_reached(team, plan),
                                    std::move(engine));
}

}  // namespace cco
