#include "device/transport/copy_engine.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/peer_status.h"
#include "device/transport/work_engine.h"

namespace cco {
namespace {

constexpr uint32_t kDepth = 1024;

/// This rank's own state: the struct that kernels see, then the rings' words, then the rings.
uint64_t words_offset(const SdmaPlan& plan, uint32_t queue) {
  return plan.state_offset + sizeof(cco_sdma_device) + queue * sizeof(WorkRingWords);
}
uint64_t rings_offset(const SdmaPlan& plan) { return words_offset(plan, plan.queue_count); }

WorkMeaning meaning_of(const TransportTeam& team, const SdmaPlan& plan) {
  WorkMeaning meaning;
  meaning.world_rank = [first = team.lsa_first,
                        size = team.lsa_size](uint32_t peer) -> std::optional<uint32_t> {
    if (peer >= size) return std::nullopt;
    return first + peer;
  };
  meaning.signal_offset = [plan, own = uint64_t{team.lsa_rank} * plan.queue_count](
                              uint32_t ring, uint64_t index) -> std::optional<uint64_t> {
    if (index != own + ring) return std::nullopt;
    return plan.signal_offset + index * sizeof(uint64_t);
  };
  return meaning;
}

class CopyEngine final : public SdmaProvider {
 public:
  CopyEngine(uint64_t device, uint32_t lsa_first, std::unique_ptr<WorkEngine> engine)
      : device_(device), lsa_first_(lsa_first), engine_(std::move(engine)) {}

  std::string_view name() const override { return "copy-engine"; }
  std::string describe() const override {
    return absl::StrFormat("copies issued by a thread of this process for %d rings of %d items",
                           engine_->rings().size(), kDepth);
  }
  uint64_t device() const override { return device_; }
  absl::Status status() const override {
    const WorkConsumer::Failure failure = engine_->failure();
    if (failure.reason == 0) return absl::OkStatus();
    return about_peer(absl::InternalError(absl::StrFormat(
                          "copy-engine: an item of queue %d for LSA rank %d: %s", failure.ring,
                          failure.peer, describe_work_error(failure.reason))),
                      lsa_first_ + failure.peer);
  }
  void restart_signals() override { engine_->restart_signals(); }

 private:
  const uint64_t device_;
  const uint32_t lsa_first_;
  const std::unique_ptr<WorkEngine> engine_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SdmaProvider>> open_copy_engine(const TransportTeam& team,
                                                               const SdmaPlan& plan) {
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<WorkEngine> engine,
                       WorkEngine::start(team, meaning_of(team, plan),
                                         {.ring_count = plan.queue_count,
                                          .depth = kDepth,
                                          .stream_count = plan.queue_count,
                                          .scratch = team.own_words() + plan.state_offset}));
  const uint64_t own = team.own_words();
  std::vector<cco_work_ring> rings;
  for (uint32_t queue = 0; queue < plan.queue_count; ++queue) {
    rings.push_back(engine->rings()[queue].device(own + words_offset(plan, queue)));
  }
  CCO_RETURN_IF_ERROR(team.context->copy_to_device(own + rings_offset(plan), rings.data(),
                                                   rings.size() * sizeof(cco_work_ring)));
  cco_sdma_device device{};
  device.abi_version = CCO_ABI_VERSION;
  device.provider = CCO_SDMA_COPY_ENGINE;
  device.queue_count = plan.queue_count;
  device.rings = own + rings_offset(plan);
  device.signal_offset = plan.signal_offset;
  CCO_RETURN_IF_ERROR(
      team.context->copy_to_device(own + plan.state_offset, &device, sizeof device));
  return std::make_unique<CopyEngine>(own + plan.state_offset, team.lsa_first, std::move(engine));
}

}  // namespace cco
