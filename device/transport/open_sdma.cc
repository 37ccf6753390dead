#include <string>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/copy_engine.h"
#include "device/transport/kfd_queues.h"
#include "device/transport/sdma_provider.h"
#include "device/transport/user_queue.h"

namespace cco {
namespace {

absl::Status check_plan(const SdmaPlan& plan) {
  if (plan.queue_count >= 1 && plan.queue_count <= CCO_SDMA_MAX_QUEUES) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%d SDMA queues per peer: 1 to %d are possible",
                                                    plan.queue_count, CCO_SDMA_MAX_QUEUES));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SdmaProvider>> open_sdma(std::string_view name,
                                                        const TransportTeam& team,
                                                        const SdmaPlan& plan,
                                                        std::string* passed_over) {
  CCO_RETURN_IF_ERROR(check_plan(plan));
  if (name == "host" || (name.empty() && team.is_host)) return open_host_sdma(team, plan);
  if (name == "user-queue") return open_kfd_queues(team, plan);
  if (name == "copy-engine") return open_copy_engine(team, plan);
  if (!name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("no SDMA provider '%s': user-queue, copy-engine, host", std::string(name)));
  }
  auto queues = open_kfd_queues(team, plan);
  if (queues.ok()) return queues;
  *passed_over = absl::StrFormat("user-queue: %s", std::string(queues.status().message()));
  auto copies = open_copy_engine(team, plan);
  if (copies.ok()) return copies;
  return absl::FailedPreconditionError(
      absl::StrFormat("no SDMA provider works. %s. copy-engine: %s", *passed_over,
                      std::string(copies.status().message())));
}

}  // namespace cco
