// Broker: taking GPUs out of service, and bringing them back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

constexpr Milliseconds kMaxDeadline{3'600'000};

bool has_ranks_on(const Group& group, int gpu) {
  for (const Rank& rank : group.ranks) {
    if (rank.gpu == gpu) return true;
  }
  return false;
}

}  // namespace

GpuService Broker::service(int gpu) const {
  const auto drain = drains_.find(gpu);
  const bool is_open = slabs_.is_open(gpu);
  if (drain == drains_.end()) return is_open ? GpuService::kServing : GpuService::kReturning;
  // Its files are closed with this process.
  if (options_.drains_by_restart && is_open) return GpuService::kDraining;
  return drain->second.service;
}

Milliseconds Broker::drain_left(int gpu) const {
  if (service(gpu) != GpuService::kDraining) return Milliseconds(0);
  const auto left = std::chrono::ceil<Milliseconds>(drains_.at(gpu).deadline - executor_.now());
  return std::max(left, Milliseconds(0));
}

absl::Status Broker::check_serving(int gpu) const {
  const std::string& uuid = slabs_.gpus()[static_cast<size_t>(gpu)].uuid;
  constexpr char kNext[] = ": use another GPU, or wait for `ccoctl undrain`";
  switch (service(gpu)) {
    case GpuService::kServing:
      return absl::OkStatus();
    case GpuService::kDraining:
      return until_changed(
          absl::UnavailableError(absl::StrCat("GPU ", uuid, " is being drained by an operator (",
                                              drain_left(gpu).count(), " ms left)", kNext)));
    case GpuService::kDrained:
      return until_changed(absl::UnavailableError(
          absl::StrCat("GPU ", uuid, " has been drained by an operator", kNext)));
    case GpuService::kReturning:
      return absl::UnavailableError(
          absl::StrCat("cco-memd starts itself anew to open GPU ", uuid, " again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> Broker::drainable(const Session& session,
                                                   const std::string& gpu_uuid) const {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  if (!session.who.is_operator) {
    return absl::PermissionDeniedError(
        absl::StrCat("user ", session.who.uid, " is no operator: root, the daemon's own user, and ",
                     "members of operator_group in cco-memd's configuration are"));
  }
  std::vector<int> gpus;
  if (!gpu_uuid.empty()) {
    CCO_ASSIGN_OR_RETURN(const int gpu, slabs_.find_gpu(gpu_uuid));
    gpus.push_back(gpu);
  } else {
    for (size_t i = 0; i < slabs_.gpus().size(); ++i) gpus.push_back(static_cast<int>(i));
  }
  return gpus;
}

absl::StatusOr<std::vector<int>> Broker::drain(Session& session, const std::string& gpu_uuid,
                                               Milliseconds deadline) {
  absl::StatusOr<std::vector<int>> gpus = drainable(session, gpu_uuid);
  if (gpus.ok() && deadline > kMaxDeadline) {
    gpus = absl::InvalidArgumentError(absl::StrCat("deadline_ms is ", deadline.count(),
                                                   "; it takes 0 to ", kMaxDeadline.count()));
  }
  if (gpus.ok() && !options_.drain_refusal.empty()) {
    gpus = absl::FailedPreconditionError(options_.drain_refusal);
  }
  audit(
      session, "DrainGpu",
      absl::StrCat("gpu=", gpu_uuid.empty() ? "all" : gpu_uuid, " deadline_ms=", deadline.count()),
      gpus.status());
  if (!gpus.ok()) return gpus;
  for (const int gpu : *gpus) {
    if (service(gpu) != GpuService::kDrained) begin_drain(gpu, deadline);
  }
  return gpus;
}

absl::StatusOr<std::vector<int>> Broker::undrain(Session& session, const std::string& gpu_uuid) {
  absl::StatusOr<std::vector<int>> gpus = drainable(session, gpu_uuid);
  audit(session, "UndrainGpu", absl::StrCat("gpu=", gpu_uuid.empty() ? "all" : gpu_uuid),
        gpus.status());
  if (!gpus.ok()) return gpus;
  for (const int gpu : *gpus) {
    const auto drain = drains_.find(gpu);
    if (drain == drains_.end()) continue;
    executor_.cancel(drain->second.timer);
    drains_.erase(drain);
    changes_.drains = true;
    tell_draining(gpu, false);
    wants_restart_ |= !slabs_.is_open(gpu);
    journal_.record(Severity::kInfo, "gpu_undrained",
                    absl::StrCat("gpu=", slabs_.gpus()[static_cast<size_t>(gpu)].uuid));
  }
  return gpus;
}

void Broker::begin_drain(int gpu, Milliseconds deadline) {
  GpuDrain& drain = drains_[gpu];
  executor_.cancel(drain.timer);
  drain.service = GpuService::kDraining;
  drain.deadline = executor_.now() + deadline;
  drain.timer = executor_.call_at(drain.deadline, [this, gpu] { revoke(gpu); });
  changes_.drains = true;
  journal_.record(Severity::kWarning, "gpu_draining",
                  absl::StrCat("gpu=", slabs_.gpus()[static_cast<size_t>(gpu)].uuid,
                               " deadline_ms=", deadline.count(), " users=", users(gpu).size()));
  tell_draining(gpu, true);
  end_forming(gpu);
  const absl::Status refusal = check_serving(gpu);
  for (const auto& [id, group] : groups_) {
    if (has_ranks_on(*group, gpu)) end_waits(id, refusal);
  }
  finish_drain(gpu);
}

void Broker::tell_draining(int gpu, bool holds) {
  for (auto& [id, group] : groups_) {
    for (Rank& rank : group->ranks) {
      if (rank.gpu == gpu) rank.notice->set_condition(CCO_CONDITION_DRAINING, holds);
    }
  }
}

void Broker::end_forming(int gpu) {
  const absl::Status status = check_serving(gpu);
  for (auto forming = forming_.begin(); forming != forming_.end();) {
    auto& call = *forming->second.call;
    bool has_rank = false;
    for (uint32_t rank = 0; rank < call.size(); ++rank) {
      has_rank |= call.has(rank) && call.args(rank).gpu == gpu;
    }
    if (has_rank) call.fail(status);
    // One that waits for a GPU is erased when the GPU has answered.
    forming = has_rank && !call.is_doing() ? forming_.erase(forming) : std::next(forming);
  }
}

void Broker::revoke(int gpu) {
  const std::string& uuid = slabs_.gpus()[static_cast<size_t>(gpu)].uuid;
  journal_.record(
      Severity::kWarning, "gpu_revoked",
      absl::StrCat("gpu=", uuid, " users=", users(gpu).size(), " bytes=", slabs_.usage(gpu).bytes));
  for (auto& [id, group] : groups_) {
    if (!has_ranks_on(*group, gpu)) continue;
    uint32_t first = 0;
    while (group->ranks[first].gpu != gpu) ++first;
    abort_group(*group, CCO_ABORT_WORD(CCO_ABORT_REVOKED, first),
                absl::StrCat("an operator has taken GPU ", uuid, " out of service"), first);
    changes_.groups.insert(id);
    for (auto& [index, set] : group->slabs) {
      for (uint32_t rank = 0; rank < group->size(); ++rank) {
        if (group->ranks[rank].gpu != gpu || set.ids[rank] == SlabId{}) continue;
        set.revoked.push_back(revoke_slab(std::exchange(set.ids[rank], SlabId{})));
      }
    }
  }
  drop_kept_on(gpu);
  revoke_attached(gpu);
  finish_drain(gpu);
}

void Broker::drop_kept_on(int gpu) {
  for (auto kept = kept_windows_.all().begin(); kept != kept_windows_.all().end();) {
    const KeptWindow& window = (kept++)->second;
    if (std::find(window.gpus.begin(), window.gpus.end(), gpu) == window.gpus.end()) continue;
    drop_kept(window.id, "kept_window_revoked");
  }
}

bool Broker::is_drained_out(int gpu) const {
  const auto drain = drains_.find(gpu);
  return drain != drains_.end() && drain->second.service == GpuService::kDraining &&
         slabs_.is_empty(gpu);
}

void Broker::finish_drain(int gpu) {
  const auto drain = drains_.find(gpu);
  if (drain == drains_.end() || drain->second.service != GpuService::kDraining) return;
  // Nobody can use what is kept there, and nobody else is waited for.
  if (std::none_of(groups_.begin(), groups_.end(),
                   [gpu](const auto& group) { return has_ranks_on(*group.second, gpu); })) {
    drop_kept_on(gpu);
  }
  if (!is_drained_out(gpu)) return;
  // The end of the process closes all, even if the GPU does not answer any more.
  if (options_.drains_by_restart) return set_drained(gpu);
  slabs_.when_idle(gpu, [this, gpu] { set_drained(gpu); });
}

void Broker::set_drained(int gpu) {
  if (!is_drained_out(gpu)) return;
  GpuDrain& drain = drains_.at(gpu);
  executor_.cancel(drain.timer);
  drain.service = GpuService::kDrained;
  changes_.drains = true;
  wants_restart_ |= options_.drains_by_restart && slabs_.is_open(gpu);
  journal_.record(Severity::kWarning, "gpu_drained",
                  absl::StrCat("gpu=", slabs_.gpus()[static_cast<size_t>(gpu)].uuid,
                               " revoked_bytes=", slabs_.usage(gpu).revoked_bytes));
}

void Broker::restore_drains(GpuDrains drains) {
  drains_ = std::move(drains);
  for (auto& [gpu, drain] : drains_) {
    tell_draining(gpu, true);
    if (drain.service != GpuService::kDraining) continue;
    drain.timer = executor_.call_at(drain.deadline, [this, gpu = gpu] { revoke(gpu); });
    finish_drain(gpu);
  }
}

std::vector<GpuUser> Broker::users(int gpu) const {
  std::vector<GpuUser> users;
  for (const auto& [id, group] : groups_) {
    if (!has_ranks_on(*group, gpu)) continue;
    uint64_t bytes = 0;
    std::map<SessionId, uint32_t> ranks;  // Of those that may map it.
    for (uint32_t rank = 0; rank < group->size(); ++rank) {
      const Rank& member = group->ranks[rank];
      if (member.may_map) ranks[member.session] += member.gpu == gpu ? 1 : 0;
      if (member.gpu != gpu) continue;
      for (const auto& [index, set] : group->slabs) bytes += set.sizes[rank];
    }
    for (const auto& [session, count] : ranks) users.push_back({session, id, count, bytes});
  }
  return users;
}

}  // namespace cco::memd
